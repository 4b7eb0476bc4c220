"""Sockets that listen, and whether an address is of this machine."""

import socket


def listening_socket(host: str, port: int, kind: socket.SocketKind, *, shares: bool = True) -> socket.socket:
    """Bind a socket, which `shares` its port with this node's other workers. Raises OSError."""
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


def is_loopback(host: str) -> bool:
    """Whether an address, as the system writes it, is of this machine: nobody elsewhere can send from it."""
    if host in ("127.0.0.1", "::1", "localhost"):
        return True
    if not host.startswith(("127.", "::ffff:127.")):
        return False
    return host.removeprefix("::ffff:").replace(".", "").isdigit()  # and no name that only begins so
