"""TCP: the sockets' side of a `Connection`, on asyncio."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from net.connection import Connection, ConnectionLimits, Sink
from quorate.protocol import ErrorWord

WRITE_BUFFER_BYTES: Final = 1 << 20
"""Replies that may wait unread for one client before it is not read from any more."""

BACKLOG: Final = 1024


def listening_socket(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    """A bound socket that shares its port with this node's other workers. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, kind)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


class TcpProtocol(asyncio.Protocol):
    """One client's socket. `admit` says why a client can't be served, or None."""

    def __init__(self, sink: Sink, limits: Callable[[], ConnectionLimits], admit: Callable[[Connection], str | None]):
        self._sink = sink
        self._limits = limits
        self._admit = admit
        self._connection: Connection | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """A client has connected."""
        transport = cast("asyncio.Transport", base)  # uvloop's is none by inheritance
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection = Connection(transport, self._sink, self._limits())
        why_not = self._admit(connection)
        if why_not is not None:
            connection.refuse_all(ErrorWord.OVERLOADED, why_not)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        assert self._connection is not None
        self._connection.receive(data)

    def eof_received(self) -> bool:
        """The client sends nothing more."""
        assert self._connection is not None
        self._connection.end()
        return True

    def pause_writing(self) -> None:
        """Too much waits unread."""
        assert self._connection is not None
        self._connection.stall(True)

    def resume_writing(self) -> None:
        """The client has read."""
        assert self._connection is not None
        self._connection.stall(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            connection.lost()


async def listen_tcp(
    host: str,
    port: int,
    sink: Sink,
    limits: Callable[[], ConnectionLimits],
    admit: Callable[[Connection], str | None],
) -> asyncio.Server:
    """Serve clients on host and port. Raises OSError."""
    sock = listening_socket(host, port, socket.SOCK_STREAM)
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: TcpProtocol(sink, limits, admit), sock=sock, backlog=BACKLOG)
