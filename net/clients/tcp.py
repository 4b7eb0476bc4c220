"""TCP: the sockets' side of a `Connection`, on asyncio."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from net.clients.connection import Connection, ConnectionLimits, Sink
from net.peers.link import MAGIC, PeerLink, PeerTransport
from net.peers.tcp import PeerProtocol
from net.sockets import listening_socket
from quorate.protocol import ErrorWord

WRITE_BUFFER_BYTES: Final = 1 << 20
"""Replies that may wait unread for one client before it is not read from any more."""

BACKLOG: Final = 1024

PEER_GRACE_S: Final = 0.2
"""How long a stream over the limit has to turn out to be another node's."""


class TcpProtocol(asyncio.Protocol):
    """One client's socket. `admit` says why a client can't be served, or None.

    Another node uses the same port: it is known by the first bytes that it says, and `peer` takes the stream over.
    """

    def __init__(
        self,
        sink: Sink,
        limits: Callable[[], ConnectionLimits],
        admit: Callable[[Connection], str | None],
        peer: Callable[[PeerTransport], PeerLink] | None = None,
    ) -> None:
        self._sink = sink
        self._limits = limits
        self._admit = admit
        self._peer = peer
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._why_not: str | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = transport = cast("asyncio.Transport", base)  # uvloop's is none by inheritance
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection = Connection(transport, self._sink, self._limits())
        self._why_not = self._admit(connection)
        if self._why_not is not None:
            asyncio.get_running_loop().call_later(PEER_GRACE_S, self._refuse)

    def _refuse(self) -> None:
        """Too many clients; but another node must get in all the same, and has had the time to say what it is."""
        if self._why_not is not None and self._connection is not None:
            self._connection.refuse_all(ErrorWord.OVERLOADED, self._why_not)
        self._why_not = None

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        assert self._connection is not None
        if self._peer is not None and data.startswith(MAGIC):
            self._become_peer(data)
        else:
            self._peer = None
            if self._why_not is not None:
                self._refuse()
            self._connection.receive(data)

    def _become_peer(self, data: bytes) -> None:
        """It is a node, not a client."""
        assert self._transport is not None
        assert self._connection is not None
        assert self._peer is not None
        self._connection.lost()
        self._connection = None
        protocol = PeerProtocol(self._peer)
        protocol.connection_made(self._transport)
        self._transport.set_protocol(protocol)
        protocol.data_received(data)

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
    peer: Callable[[PeerTransport], PeerLink] | None = None,
) -> asyncio.Server:
    """Serve clients on host and port, and other nodes by `peer`. Raises OSError."""
    sock = listening_socket(host, port, socket.SOCK_STREAM)
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: TcpProtocol(sink, limits, admit, peer), sock=sock, backlog=BACKLOG)
