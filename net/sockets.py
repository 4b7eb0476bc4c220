"""Sockets that listen, and how those that are open find out that the other end is gone."""

import socket
from typing import Final

KEEP_ALIVE_S: Final = 15
"""After so much silence the other end's system is asked whether it is still there."""

KEEP_ALIVE_STEP_S: Final = 5
KEEP_ALIVE_TRIES: Final = 3
UNHEARD_MS: Final = 30_000
"""Sent bytes that are not acknowledged for so long end a connection: the machine at its other end has vanished."""


def listening_socket(host: str, port: int, kind: socket.SocketKind, *, shares: bool = True) -> socket.socket:
    """A bound socket, which `shares` its port with this node's other workers. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, kind)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


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


def is_loopback(host: str) -> bool:
    """Whether an address, as the system writes it, is of this machine: nobody elsewhere can send from it."""
    if host in ("127.0.0.1", "::1", "localhost"):
        return True
    if not host.startswith(("127.", "::ffff:127.")):
        return False
    return host.removeprefix("::ffff:").replace(".", "").isdigit()  # and no name that only begins so
