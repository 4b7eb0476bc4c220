"""Datagrams: who sent one is known by the port's protocol, as a connection is."""

from typing import Any

from net.clients.udp import DatagramClient, UdpProtocol
from net.protocols import BESIDE, is_told_addresses
from net.protocols.json_session import JsonSession
from net.protocols.session import RequestLimits
from quorate.protocol import Request


class Sink:
    def __init__(self) -> None:
        self.clients: list[DatagramClient] = []

    def received_datagram(self, client: DatagramClient, request: Request) -> None:
        self.clients.append(client)

    def broken_datagram(self, client: DatagramClient, error: Exception) -> None:
        raise AssertionError(error)


def test_a_sender_to_a_port_beside_the_main_one_is_not_sent_to_that() -> None:
    sink, transport = Sink(), object()
    for protocol, is_told in (("json", True), ("json" + BESIDE, False)):
        port = UdpProtocol(sink, JsonSession, RequestLimits, 3, protocol)
        made: Any = transport
        port.connection_made(made)
        port.datagram_received(b'{"action":7,"queue":"q"}', ("127.0.0.1", 5))
        assert is_told_addresses(sink.clients[-1]) == is_told
