"""UDP: a datagram is one request, and its reply one datagram to where it came from."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from net.clients.connection import NO_REQUEST
from net.protocols.session import Ask, Fault, MakeSession, RequestLimits
from net.sockets import is_loopback, listening_socket
from quorate.protocol import Code, ErrorWord, Reply, Request

REPLY_BYTES_MAX: Final = 65_507
"""The largest payload of an IPv4 datagram."""

REPLY_FACTOR: Final = 10
"""A reply to another machine is at most so many times as long as its request: whoever forges a sender's address makes
this node send hardly more to it than he could send himself (as RFC 9000, section 8, which allows 3)."""


Answered = Callable[[Request | None, Reply, Any], bytes | Request | Ask]
"""See `net.protocols.session.Session.answered`."""


class DatagramClient:
    """Who sent a datagram of `size` bytes, to a port for `protocol`. A new one for every datagram: senders are not
    remembered.
    """

    __slots__ = ("_answered", "_transport", "address", "note", "protocol", "reply_bytes_max", "size")

    def __init__(
        self,
        transport: asyncio.DatagramTransport,
        address: Any,
        answered: Answered,
        reply_bytes_max: int = REPLY_BYTES_MAX,
        size: int = 0,
        *,
        protocol: str = "",
    ) -> None:
        self.size = size
        self.note: Any = None
        self.protocol = protocol
        self._transport = transport
        self._answered = answered
        self.address = address
        self.reply_bytes_max = reply_bytes_max

    has_left = False
    has_ended = False
    is_gone = False
    """A datagram's sender may always be there."""

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Send the reply, or why it does not fit, or nothing if even that is too much for so short a request."""
        data = self._bytes_of(request, reply)
        if len(data) > self.reply_bytes_max:
            error = reply.error or ErrorWord.TOO_LARGE
            why = f"the reply has {len(data)} bytes, and this datagram may be answered with {self.reply_bytes_max}"
            for reason in (f"{why}: ask over TCP", None):
                refused = Reply(action=reply.action, code=Code.ERROR, seq=reply.seq, error=error, reason=reason)
                data = self._bytes_of(request, refused)
                if len(data) <= self.reply_bytes_max:
                    break
        if len(data) <= self.reply_bytes_max and not self._transport.is_closing():
            self._transport.sendto(data, self.address)

    def _bytes_of(self, request: Request, reply: Reply) -> bytes:
        data = self._answered(request, reply, self.note)
        assert isinstance(data, bytes), "a datagram is one request, and one reply"
        return data


class DatagramSink(Protocol):
    """Where requests go."""

    def received_datagram(self, client: DatagramClient, request: Request) -> None:
        """Do what a request asks; answer it by `client.answer(0, request, reply)`."""

    def broken_datagram(self, client: DatagramClient, error: Exception) -> None:
        """Answer nothing to a datagram on which its session has raised."""


class UdpProtocol(asyncio.DatagramProtocol):
    """The node's datagram socket."""

    def __init__(
        self,
        sink: DatagramSink,
        make_session: MakeSession,
        limits: Callable[[], RequestLimits],
        reply_factor: int,
        protocol: str = "",
    ) -> None:
        self._reply_factor = reply_factor
        self._protocol = protocol
        self._sink = sink
        self._make_session = make_session
        self._limits = limits
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """Serve the socket that is there now."""
        self._transport = cast("asyncio.DatagramTransport", base)  # uvloop's is none by inheritance

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Do what a datagram asks: it holds one whole request, or it is refused."""
        assert self._transport is not None
        session = self._make_session(self._limits())
        is_bounded = self._reply_factor and not is_loopback(addr[0])
        reply_bytes_max = min(self._reply_factor * len(data), REPLY_BYTES_MAX) if is_bounded else REPLY_BYTES_MAX
        about = (reply_bytes_max, len(data))
        client = DatagramClient(self._transport, addr, session.answered, *about, protocol=self._protocol)
        try:
            found = session.receive(data)
        except Exception as error:  # whatever it is: this datagram alone has made it
            self._sink.broken_datagram(client, error)
            return
        if len(found) == 1 and not session.partial_bytes:
            one = found[0]
            if isinstance(one, Ask):
                client.note, one = one.note, one.request
            if isinstance(one, Request):
                self._sink.received_datagram(client, one)
                return
        fault = found[0] if found and isinstance(found[0], Fault) else None
        if fault is None:
            what = "a datagram is one request, and this holds more" if found else "it is not whole"
            fault = Fault(ErrorWord.BAD_JSON, f"{what}, {len(data)} bytes: larger requests belong on TCP")
        try:
            client.answer(0, NO_REQUEST, session.fault_reply(fault))
        except Exception as error:
            self._sink.broken_datagram(client, error)


async def listen_udp(
    host: str,
    port: int,
    sink: DatagramSink,
    make_session: MakeSession,
    limits: Callable[[], RequestLimits],
    reply_factor: int = REPLY_FACTOR,
    *,
    protocol: str = "",
) -> asyncio.DatagramTransport:
    """Serve datagrams on host and port, for `protocol`; `reply_factor` as `REPLY_FACTOR`, 0: no such limit. Raises
    OSError.
    """
    sock = listening_socket(host, port, socket.SOCK_DGRAM)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: UdpProtocol(sink, make_session, limits, reply_factor, protocol), sock=sock
    )
    return transport
