"""TCP, with TLS or without: the sockets' side of a `Connection`, on asyncio."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, cast

from net.accepting import ALL, BURST, Acceptor, Entering, Intake
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits, Sink, Transport
from net.clients.reading_turn import ReadingTurn
from net.protocols.session import MakeSession
from net.sockets import listening_socket
from net.tls import names_of
from quorate.keep_alive import keep_alive
from quorate.protocol import ErrorWord

WRITE_BUFFER_BYTES: Final = 1 << 20
"""Replies that may wait unread for one client before it is not read from any more."""

TAKES_TIME_BYTES: Final = 4 << 10
"""What a stranger sends that is shorter takes less than it costs to see how long it took."""

TLS_PIECE_BYTES: Final = 64 << 10
"""So much is handed to TLS at a time."""

BACKLOG: Final = 1024
HANDSHAKE_S: Final = 5.0
HANDSHAKES_MAX: Final = 500
HANDSHAKES_EACH: Final = 100
"""Clients that are being taken in at once by TLS, of all addresses and of each; the oldest makes room for the next."""

SHUTDOWN_S: Final = 3.0
"""What a client may take to end TLS in order."""


Admit = Callable[[Connection, Any, tuple[str, ...]], str | None]
"""Says why a client from an address, whose certificate has those names, can't be served, or None."""


class _TlsEnd:
    """A stream with TLS, which ends both ways at once."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.close = self.write_eof = transport.close
        self.abort = transport.abort
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        """In pieces: what goes down in one is encrypted at once, and counted nowhere while it is not read."""
        if len(data) <= TLS_PIECE_BYTES:
            self._transport.write(data)
            return
        view = memoryview(data)
        for at in range(0, len(data), TLS_PIECE_BYTES):
            self._transport.write(view[at : at + TLS_PIECE_BYTES])


class TcpProtocol(asyncio.Protocol):
    """One client's socket."""

    def __init__(
        self,
        sink: Sink[Connection],
        make_session: MakeSession,
        limits: Callable[[], ConnectionLimits],
        admit: Admit,
        *,
        protocol: str = "",
        affinity: Any = None,
        state: bytes = b"",
    ) -> None:
        self._state = state
        self._protocol = protocol
        self._habit = affinity
        self._sink = sink
        self._turn: ReadingTurn = sink.turn
        self._make_session = make_session
        self._limits = limits
        self._admit = admit
        self._connection: Connection | None = None
        self._is_tls = False

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """Take in a client that has connected."""
        transport = cast("asyncio.Transport", base)  # uvloop's is none by inheritance
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        limits = self._limits()
        end: Transport = _TlsEnd(transport) if self._is_tls else transport
        session = self._make_session(limits.request)
        self._connection = connection = Connection(end, self._sink, session, limits)
        connection.protocol, connection.affinity = self._protocol, self._habit
        if self._state:
            connection.resume(self._state)
        certificate = transport.get_extra_info("peercert") if self._is_tls else None
        names = () if not certificate else names_of(certificate)
        why_not = self._admit(connection, transport.get_extra_info("peername"), names)
        if why_not is not None:
            connection.refuse_all(ErrorWord.OVERLOADED, why_not)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        connection = self._connection
        assert connection is not None
        account = connection.account
        if account.is_known:
            connection.receive(data, in_time=self._turn.may_hear())
        elif self._turn.may_hear_stranger():
            self._hear_stranger(connection, data)
        else:
            self._turn.note_stranger(len(data))
            connection.receive(data, in_time=False)

    def _hear_stranger(self, connection: Connection, data: bytes) -> None:
        """Reckon what that takes: all of it for strangers' slice of this turn, what is large for long."""
        turn = self._turn
        turn.begin_stranger(len(data))
        account = connection.account
        # the last piece of something large may be short, and takes the time of all
        size = len(data) + account.partial
        if size < TAKES_TIME_BYTES:
            connection.receive(data)
        else:
            begun = time.thread_time()
            connection.receive(data)
            self._sink.strangers.spent(connection, time.thread_time() - begun, size)
        turn.end_stranger()
        if account.is_known:  # it has shown a token
            turn.was_known(len(data))

    def eof_received(self) -> bool:
        """Note that the client sends nothing more."""
        assert self._connection is not None
        self._connection.end()
        return not self._is_tls  # with TLS nothing can be sent after its end, either

    def pause_writing(self) -> None:
        """Too much waits unread."""
        assert self._connection is not None
        self._connection.stall(True)

    def resume_writing(self) -> None:
        """Note that the client has read."""
        assert self._connection is not None
        self._connection.stall(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is closed."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            connection.lost()


def paced(at_once: Callable[[], float]) -> Callable[[], float]:
    """Let no more than a burst come at one moment: a handshake takes longer than all else of taking one in."""
    return lambda: min(at_once(), BURST)


class TcpServer:
    """Serves clients on a bound socket, from now on until it is closed. `make` makes a client's protocol.

    `tls` gives what holds at that moment, what was loaded last; None: without TLS. `turned_away` is told of addresses
    that did not come in, and why; for `at_once` see `Acceptor`.
    """

    def __init__(
        self,
        bound: socket.socket,
        make: Callable[[], TcpProtocol],
        tls: Callable[[], ssl.SSLContext] | None = None,
        turned_away: Callable[[str, str], None] = lambda address, why: None,
        *,
        at_once: Callable[[], float] = lambda: ALL,
    ) -> None:
        self._make = make
        self._tls = tls
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._intake = Intake(HANDSHAKES_MAX, HANDSHAKES_EACH)
        self._entering = 0
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # these are those of each client's socket
        keep_alive(bound)
        self._acceptor = Acceptor(bound, self._came, BACKLOG, at_once if tls is None else paced(at_once))

    def close(self) -> bool:
        """Take no more clients but those who wait already; whether any is being taken in."""
        self._acceptor.finish()
        return len(self._intake) > 0 or self._entering > 0

    def _came(self, sock: socket.socket, address: str) -> None:
        if self._tls is None:
            self._entering += 1
            Entering(self._loop.connect_accepted_socket(self._make, sock), sock, self._entered)
        else:
            self._intake.begin(sock, address, self._shake_hands(sock, address, self._tls))

    def _entered(self) -> None:
        self._entering -= 1

    async def _shake_hands(self, sock: socket.socket, address: str, tls: Callable[[], ssl.SSLContext]) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, sock, ssl=tls(), ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=SHUTDOWN_S
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is one
            self._turned_away(
                address, f"it did not come in by TLS: {getattr(error, 'reason', None) or str(error) or 'it left'}"
            )
            sock.close()


async def listen_tcp(
    host: str,
    port: int,
    make: Callable[[], TcpProtocol],
    tls: Callable[[], ssl.SSLContext] | None = None,
    bound: socket.socket | None = None,
    turned_away: Callable[[str, str], None] = lambda address, why: None,
    *,
    at_once: Callable[[], float] = lambda: ALL,
) -> TcpServer:
    """Serve clients on host and port, or on a socket that is bound already, by TLS if `tls` is given. Raises OSError.

    `make` makes the protocol of one client; for `turned_away` and `at_once` see `TcpServer`.
    """
    sock = listening_socket(host, port, socket.SOCK_STREAM) if bound is None else bound
    return TcpServer(sock, make, tls, turned_away, at_once=at_once)
