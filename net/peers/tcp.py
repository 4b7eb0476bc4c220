"""TCP between nodes, with TLS or without: the sockets' side of a `PeerLink`, on asyncio."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Final, cast

from net.accepting import Acceptor, Intake, turn_away
from net.peers.connect_quota import ConnectQuota
from net.peers.link import CLOSED, Connected, Origin, PeerLink
from net.sockets import listening_socket
from net.tls import NODE_NAME, nodes_of
from quorate.keep_alive import keep_alive

STREAM_BYTES: Final = 256 << 10
"""With more unsent in it a stream is full: clients' requests wait outside of it, so that the cluster's own words do not
wait behind them."""

PEER_SILENT_MS: Final = 3000
"""A link whose bytes are not acknowledged for so long is closed by the system."""

DIAL_S: Final = 2.0
HANDSHAKE_S: Final = 3.0
"""A TLS handshake takes no longer; whoever dials gives up sooner."""

HANDSHAKES_MAX: Final = 100
"""Connections that are being taken in at once."""


class PeerProtocol(asyncio.Protocol):
    """One stream to another node, either way. `connected` gives its link. For `is_trusted`, `proved` see `Origin`."""

    def __init__(
        self,
        connected: Connected,
        *,
        is_trusted: bool = False,
        proved: Callable[[], None] = lambda: None,
    ) -> None:
        self._connected = connected
        self._is_trusted = is_trusted
        self._proved = proved
        self._link: PeerLink | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """Begin on a stream that is open."""
        transport = cast("asyncio.Transport", base)
        transport.set_write_buffer_limits(high=STREAM_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock, PEER_SILENT_MS)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        certificate = transport.get_extra_info("peercert")
        certified = None if certificate is None else nodes_of(certificate)
        self._link = self._connected(transport, Origin(address, certified, self._is_trusted, self._proved))

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        assert self._link is not None
        self._link.receive(data)

    def pause_writing(self) -> None:
        """Much waits unsent."""
        assert self._link is not None
        self._link.fill(True)

    def resume_writing(self) -> None:
        """Note that it has left."""
        assert self._link is not None
        self._link.fill(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the stream is closed."""
        if self._link is not None:
            self._link.lost(f"{CLOSED}{'' if exc is None else f': {exc}'}")


async def dial_peer(
    host: str, port: int, connected: Connected, failed: Callable[[str], None], tls: ssl.SSLContext | None = None
) -> None:
    """Open a stream to another node, by TLS if `tls` is given; one of the two is called."""
    loop = asyncio.get_running_loop()
    try:
        name = None if tls is None else NODE_NAME
        await asyncio.wait_for(
            loop.create_connection(lambda: PeerProtocol(connected), host, port, ssl=tls, server_hostname=name), DIAL_S
        )
    except ssl.SSLError as error:
        failed(f"the TLS handshake failed: {error.reason or error}")
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: a name that is none
        failed(f"can't be reached: {error.strerror if isinstance(error, OSError) and error.strerror else error!r}")


class PeerServer:
    """Lets other nodes in on host and port, those that may come: see `ConnectQuota`. Raises OSError.

    `tls` gives what holds at that moment, None: none. `expected` are the addresses of nodes; `turned_away` is told of
    addresses that did not get as far as a link, and why.
    """

    def __init__(
        self,
        host: str,
        port: int,
        accepted: Connected,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        *,
        expected: Iterable[str] = (),
        turned_away: Callable[[str, str], None] = lambda address, why: None,
    ) -> None:
        self._accepted = accepted
        self._tls = tls
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._quota = ConnectQuota(expected)
        self._intake = Intake(HANDSHAKES_MAX)
        self._acceptor = Acceptor(listening_socket(host, port, socket.SOCK_STREAM), self._came)

    def close(self) -> None:
        """Let nobody in any more."""
        self._acceptor.close()

    def _came(self, sock: socket.socket, address: str) -> None:
        if not self._quota.may_come(time.monotonic(), address):
            turn_away(sock)
            self._turned_away(address, "it comes too often without a proof")
            return
        self._intake.begin(sock, address, self._take(sock, address))

    async def _take(self, sock: socket.socket, address: str) -> None:
        def proved() -> None:
            self._quota.proved(time.monotonic(), address)

        tls = self._tls()
        handshake_s = None if tls is None else HANDSHAKE_S
        try:
            await self._loop.connect_accepted_socket(
                lambda: PeerProtocol(self._accepted, proved=proved), sock, ssl=tls, ssl_handshake_timeout=handshake_s
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is one
            self._turned_away(
                address, f"it did not come in by TLS: {getattr(error, 'reason', None) or str(error) or 'it left'}"
            )
            sock.close()
