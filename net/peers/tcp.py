"""TCP between nodes: the sockets' side of a `PeerLink`, on asyncio."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from net.peers.link import PeerLink, PeerTransport
from net.sockets import keep_alive, listening_socket

PEER_BUFFER_BYTES: Final = 64 << 20
"""What may wait unsent for another node: far more than the windows of pushes and pulls allow."""

PEER_SILENT_MS: Final = 3000
"""A link whose bytes are not acknowledged for so long is closed by the system."""

DIAL_S: Final = 2.0


class PeerProtocol(asyncio.Protocol):
    """One stream to another node, either way. `connected` gives its link."""

    def __init__(self, connected: Callable[[PeerTransport], PeerLink], buffer_bytes: int = PEER_BUFFER_BYTES) -> None:
        self._connected = connected
        self._buffer_bytes = buffer_bytes
        self._link: PeerLink | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """The stream is open."""
        transport = cast("asyncio.Transport", base)
        transport.set_write_buffer_limits(high=self._buffer_bytes)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock, PEER_SILENT_MS)
        self._link = self._connected(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        assert self._link is not None
        self._link.receive(data)

    def pause_writing(self) -> None:
        """The node does not take what it is sent: it is dialled again when it does."""
        assert self._link is not None
        self._link.cut(f"{self._buffer_bytes} bytes wait for it")

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is closed."""
        if self._link is not None:
            self._link.lost(f"the link is closed{'' if exc is None else f': {exc}'}")


async def dial_peer(
    host: str, port: int, connected: Callable[[PeerTransport], PeerLink], failed: Callable[[str], None]
) -> None:
    """Open a stream to another node; one of the two is called."""
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(loop.create_connection(lambda: PeerProtocol(connected), host, port), DIAL_S)
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: a name that is none
        failed(f"can't be reached: {error.strerror if isinstance(error, OSError) and error.strerror else error!r}")


async def listen_peers(host: str, port: int, accepted: Callable[[PeerTransport], PeerLink]) -> asyncio.Server:
    """Let other nodes in on host and port. Raises OSError."""
    sock = listening_socket(host, port, socket.SOCK_STREAM)
    return await asyncio.get_running_loop().create_server(lambda: PeerProtocol(accepted), sock=sock)
