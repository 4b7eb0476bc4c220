"""TCP: the sockets' side of a `Connection`, on asyncio."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from net.clients.connection import Connection, ConnectionLimits, Sink
from net.protocols.codec import MakeCodec
from net.sockets import keep_alive, listening_socket
from quorate.protocol import ErrorWord

WRITE_BUFFER_BYTES: Final = 1 << 20
"""Replies that may wait unread for one client before it is not read from any more."""

BACKLOG: Final = 1024


class TcpProtocol(asyncio.Protocol):
    """One client's socket. `admit` says why a client from an address can't be served, or None."""

    def __init__(
        self,
        sink: Sink,
        make_codec: MakeCodec,
        limits: Callable[[], ConnectionLimits],
        admit: Callable[[Connection, Any], str | None],
        protocol: str = "",
        habit: Any = None,
    ) -> None:
        self._protocol = protocol
        self._habit = habit
        self._sink = sink
        self._make_codec = make_codec
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
            keep_alive(sock)
        limits = self._limits()
        self._connection = connection = Connection(transport, self._sink, self._make_codec(limits.codec), limits)
        connection.protocol, connection.habit = self._protocol, self._habit
        why_not = self._admit(connection, transport.get_extra_info("peername"))
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
    make_codec: MakeCodec,
    limits: Callable[[], ConnectionLimits],
    admit: Callable[[Connection, Any], str | None],
    bound: socket.socket | None = None,
    protocol: str = "",
) -> asyncio.Server:
    """Serve clients on host and port, or on a socket that is bound already. Raises OSError."""
    sock = listening_socket(host, port, socket.SOCK_STREAM) if bound is None else bound
    loop = asyncio.get_running_loop()
    return await loop.create_server(
        lambda: TcpProtocol(sink, make_codec, limits, admit, protocol), sock=sock, backlog=BACKLOG
    )
