"""TCP connections whose other end has vanished are ended by the system: of clients, and of nodes."""

import socket
from typing import Final

KEEP_ALIVE_S: Final = 15
"""After so much silence the other end's system is asked whether it is still there."""

KEEP_ALIVE_STEP_S: Final = 5
KEEP_ALIVE_TRIES: Final = 3
UNHEARD_MS: Final = 30_000
"""Sent bytes that are not acknowledged for so long end a connection: the machine at its other end has vanished."""


def keep_alive(sock: socket.socket, unheard_ms: int = UNHEARD_MS) -> None:
    """Let the system end a connection whose other end has vanished: a consumer that is gone must take no message."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEP_ALIVE_S),
        ("TCP_KEEPINTVL", KEEP_ALIVE_STEP_S),
        ("TCP_KEEPCNT", KEEP_ALIVE_TRIES),
        ("TCP_USER_TIMEOUT", unheard_ms),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
