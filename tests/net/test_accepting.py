"""Taking in connections: those who wait when a port is closed are not cut off."""

import asyncio
import socket

from net.accepting import Acceptor


def test_those_who_wait_when_it_closes_come_in() -> None:
    came: list[tuple[socket.socket, str]] = []

    async def run() -> list[socket.socket]:
        bound = socket.socket()
        bound.setblocking(False)
        bound.bind(("127.0.0.1", 0))
        acceptor = Acceptor(bound, lambda sock, host: came.append((sock, host)))
        clients = [socket.create_connection(bound.getsockname(), timeout=5) for _ in range(20)]
        acceptor.close()
        acceptor.close()
        return clients

    clients = asyncio.run(run())
    assert [host for _, host in came] == ["127.0.0.1"] * 20
    for (sock, _), client in zip(came, clients, strict=True):
        sock.sendall(b"hello")
        assert client.recv(10) == b"hello"
        sock.close()
        client.close()
