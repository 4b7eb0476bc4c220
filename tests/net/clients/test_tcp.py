"""Clients' sockets: nobody who has been let in by the system is shut out when a server takes no more."""

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.held_bytes import Account, HeldBytes
from net.clients.reading_turn import ReadingTurn
from net.clients.tcp import TcpProtocol, listen_tcp
from net.protocols import PROTOCOLS
from net.sockets import listening_socket
from quorate.protocol import Reply, Request

CLIENTS = 30


class Stopping:
    """Answers each request at once: the node is stopping."""

    def __init__(self) -> None:
        self.turn = ReadingTurn(lambda: 0.0, lambda: None, HeldBytes(1 << 20))

    @property
    def room(self) -> "Stopping":
        return self

    def account(self) -> Account:
        return Account(HeldBytes(1 << 20))

    def received(self, connection: Connection, order: int, request: Request) -> None:
        connection.answer(order, request, Reply(action=request.action, code=1, error="stopping", seq=request.seq))

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_waits_to_be_taken_in_when_a_server_closes_is_answered(new_loop: Any) -> None:
    loop = new_loop()
    bound = listening_socket("127.0.0.1", 0, socket.SOCK_STREAM)
    port = bound.getsockname()[1]
    sink: Any = Stopping()

    def make() -> TcpProtocol:
        return TcpProtocol(sink, PROTOCOLS["json"], ConnectionLimits, lambda *arguments: None)

    server = loop.run_until_complete(listen_tcp("127.0.0.1", 0, make, bound=bound))
    clients = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(CLIENTS)]
    for number, client in enumerate(clients):
        client.sendall(b'{"action":6,"seq":%d}' % number)
    assert server.close(), "before the loop has looked at any of them"
    assert server.close()
    loop.run_until_complete(asyncio.wait_for(asyncio.sleep(0.2), 5))
    for number, client in enumerate(clients):
        assert client.recv(1000).endswith(b'"error":"stopping","seq":%d}\n' % number)
        client.close()
    assert not server.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
