"""UDP: a datagram is one request, and its reply one datagram to where it came from."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from net.protocols.codec import Fault
from net.protocols.json_codec import CodecLimits, decode_request, encode_reply, fault_reply
from net.sockets import listening_socket
from quorate.protocol import Code, ErrorWord, Reply, Request

REPLY_BYTES_MAX: Final = 65_507
"""The largest payload of an IPv4 datagram."""


class DatagramClient:
    """Who sent a datagram. A new one for every datagram: senders are not remembered."""

    __slots__ = ("_address", "_transport")

    def __init__(self, transport: asyncio.DatagramTransport, address: Any) -> None:
        self._transport = transport
        self._address = address

    def answer(self, order: int, reply: Reply) -> None:
        """Send the reply, or why it does not fit."""
        data = encode_reply(reply)
        if len(data) > REPLY_BYTES_MAX:
            reason = f"the reply has {len(data)} bytes, and a datagram takes {REPLY_BYTES_MAX}: ask over TCP"
            data = encode_reply(
                Reply(action=reply.action, code=Code.ERROR, seq=reply.seq, error=ErrorWord.TOO_LARGE, reason=reason)
            )
        if not self._transport.is_closing():
            self._transport.sendto(data, self._address)


class DatagramSink(Protocol):
    """Where requests go."""

    def received_datagram(self, client: DatagramClient, request: Request) -> None:
        """A request came; answer it by `client.answer(0, reply)`."""


class UdpProtocol(asyncio.DatagramProtocol):
    """The node's datagram socket."""

    def __init__(self, sink: DatagramSink, limits: Callable[[], CodecLimits]) -> None:
        self._sink = sink
        self._limits = limits
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = cast("asyncio.DatagramTransport", base)  # uvloop's is none by inheritance

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """A datagram has come."""
        assert self._transport is not None
        client = DatagramClient(self._transport, addr)
        found = decode_request(data, self._limits())
        if isinstance(found, Fault):
            client.answer(0, fault_reply(found))
        else:
            self._sink.received_datagram(client, found)


async def listen_udp(
    host: str, port: int, sink: DatagramSink, limits: Callable[[], CodecLimits]
) -> asyncio.DatagramTransport:
    """Serve datagrams on host and port. Raises OSError."""
    sock = listening_socket(host, port, socket.SOCK_DGRAM)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: UdpProtocol(sink, limits), sock=sock)
    return transport
