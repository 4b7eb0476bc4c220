"""Auditor: writes down who did what, one JSON object a line, on a thread of its own."""

import json
import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from actors.messages.audit import Audit
from actors.runtime.blocking import BlockingActor
from actors.runtime.contract import Runtime

log = logging.getLogger("quorate.audit")

FILE_BYTES_MAX: Final = 16 << 20
"""Then it is moved to the same name with .1 behind it, that to .2, and so on."""

FILES_KEPT: Final = 5


class _File(RotatingFileHandler):
    """Says once that it can't be written to, and again when it could meanwhile."""

    has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's
        """Note that the disk is full, or the folder is gone."""
        if not self.has_failed:
            self.has_failed = True
            log.exception("the audit log %s can't be written", self.baseFilename)


class Auditor(BlockingActor):
    """Appends what was allowed to the file at `path`, and what was refused to one beside it (`audit.refused.log`).

    So nobody who is refused often enough moves the other on. Both are for the node's user alone. Lines that can't be
    written are lost.
    """

    def __init__(self, runtime: Runtime, path: Path) -> None:
        super().__init__(runtime)
        path.parent.mkdir(parents=True, exist_ok=True)
        refused = path.with_name(f"{path.stem}.refused{path.suffix}")
        self._allowed, self._refused = (
            _File(one, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8") for one in (path, refused)
        )

    def on_receive(self, message: Any) -> None:
        """`Audit`."""
        assert isinstance(message, Audit)
        for line in message.lines:
            file = self._allowed if line["allowed"] else self._refused
            before = file.has_failed
            text = json.dumps(line, ensure_ascii=True, separators=(",", ":"))
            file.emit(logging.LogRecord("", logging.INFO, "", 0, text, None, None))
            if before and file.stream is not None:
                file.has_failed = False

    def on_stop(self) -> None:
        """All is written."""
        self._allowed.close()
        self._refused.close()
