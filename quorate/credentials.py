"""How a client shows who it is, and how it finds out who it talks to."""

import os
import ssl
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from quorate.errors import ConnectionFailedError
from quorate.protocol import Action

TOKEN_VARIABLE: Final = "QUORATE_TOKEN"
TLS_VARIABLE: Final = "QUORATE_TLS"
CA_VARIABLE: Final = "QUORATE_CA"
"""Environment variables for a client that is given nothing else: the token, 1 for TLS, the authority's file."""

NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""What OpenSSL calls an answer that is none of TLS."""


@dataclass(frozen=True)
class Credentials:
    """`token`: what the node knows this client by, None: it shows none. `has_tls`: nodes are spoken to by TLS alone.

    `ca`: a file with the authorities whose certificates count (PEM), None: those that the system trusts. `cert` and
    `key`: the client's own certificate, and its key where it is in another file. A node's certificate has to name the
    host that is dialled.
    """

    token: str | None = field(default=None, repr=False)
    has_tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """For TLS 1.2 and later; None without TLS. Raises `ConnectionFailedError` for unfit files."""
        if not self.has_tls:
            return None
        named = f"ca {self.ca}"
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.cert is not None:
                named = f"cert {self.cert}, key {self.key or self.cert}"
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise ConnectionFailedError(f"{named}: can't be used: {error.strerror or error}") from error
        return context

    @property
    def greeting(self) -> dict[str, Any] | None:
        """What is asked first on a connection, and has to be answered before anything else is sent; None: nothing is.

        The token is shown. Without one, a client that speaks TLS asks who leads: its handshake has ended before the
        node says what it thinks of the client's certificate, and a request that was sent by then may have been done.
        """
        if self.token is not None:
            return {"action": int(Action.AUTHENTICATE), "token": self.token}
        return {"action": int(Action.LEADER)} if self.has_tls else None

    def __getstate__(self) -> dict[str, object]:
        """Without the context, which can't travel."""
        return {name: value for name, value in self.__dict__.items() if name != "context"}

    @staticmethod
    def of(
        token: str | None = None,
        *,
        tls: bool = False,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> "Credentials":
        """As they are given, and else as the environment says. A `ca` or a `cert` asks for TLS as well."""
        found = (token or os.environ.get(TOKEN_VARIABLE) or "").strip() or None
        ca = ca or os.environ.get(CA_VARIABLE) or None
        files = [None if one is None else str(one) for one in (ca, cert, key)]
        wants_tls = tls or os.environ.get(TLS_VARIABLE, "").lower() in ("1", "true")
        return Credentials(found, wants_tls or ca is not None or cert is not None, *files)


NOTHING: Final = Credentials()
