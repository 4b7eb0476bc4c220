"""TCP connections: the system ends those whose other end has vanished, and reports whether one has ended."""

import select
import socket
from typing import Any, Final

KEEP_ALIVE_S: Final = 15
"""After so much silence the other end's system is asked whether it is still there."""

KEEP_ALIVE_STEP_S: Final = 5
KEEP_ALIVE_TRIES: Final = 3
UNHEARD_MS: Final = 30_000
"""Sent bytes that are not acknowledged for so long end a connection: the machine at its other end has vanished."""

ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)
"""What Linux reports of a stream whose other end was closed or shut down for writing; a reset it reports unasked."""


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


def peer_has_ended(sock: Any) -> bool:
    """Whether the other end of a stream sends nothing more by now, even if what it sent before has not been read yet.

    `sock` is a socket, or asyncio's view of one; None: the transport has none. A socket that is closed here has ended.
    False where the system does not report it.
    """
    if sock is None or not ENDED:
        return False
    descriptor = sock.fileno()
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, ENDED)
    return bool(poll.poll(0))
