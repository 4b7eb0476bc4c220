"""What a shell offers behind a command, where the user has asked it to complete (`qctl --install-completion`)."""

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from quorate import Client
from quorate.credentials import Credentials
from quorate.urls import found

PATIENCE_S: Final = 0.3
"""A person waits for it: without an answer until then nothing is offered."""

OFFERED_MAX: Final = 100


def queue_names(incomplete: str) -> list[str]:
    """Give names of queues that begin so; of the node that the environment names. Nothing, where it does not answer."""
    with suppress(Exception):  # whatever it is, a shell's line is no place for it
        file = os.environ.get("QUORATE_TOKEN_FILE")
        token = Path(file).read_text(encoding="utf-8").strip() if file else None
        nodes, shown = found(None, None, None, Credentials.of(token, tls=bool(os.environ.get("QUORATE_TLS"))))
        with Client(nodes=nodes, credentials=shown, timeout=PATIENCE_S, retry_connect=False) as connection:
            rows = connection.queue_rows(f"{incomplete}*" if incomplete else None, system=True)
            return [row.name for row in islice(rows, OFFERED_MAX) if row.name.startswith(incomplete)]
    return []
