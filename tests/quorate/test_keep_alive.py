"""What the system knows of the other end of a stream, and how that is asked through a transport."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.tcp import TcpProtocol, listen_tcp
from net.protocols import PROTOCOLS
from net.sockets import listening_socket
from quorate.keep_alive import peer_has_ended
from tests.net.clients.test_tcp import Stopping


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _half_close(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


WAYS: list[Callable[[socket.socket], None]] = [_reset, _half_close, socket.socket.close]


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_has_ended_though_what_was_sent_before_is_unread(way: Callable[[socket.socket], None]) -> None:
    with listening_socket("127.0.0.1", 0, socket.SOCK_STREAM) as bound:
        bound.listen()
        bound.setblocking(True)
        theirs = socket.create_connection(bound.getsockname(), timeout=5)
        theirs.sendall(b"unread")
        ours, _ = bound.accept()
    with ours, theirs:
        assert not peer_has_ended(ours)
        way(theirs)
        assert peer_has_ended(ours)
        if way is not _reset:
            assert ours.recv(100) == b"unread"
            assert peer_has_ended(ours)
    assert peer_has_ended(ours), "it is closed here"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("way", WAYS)
def test_a_connection_that_is_not_read_from_knows_that_its_client_has_ended(
    new_loop: Any, way: Callable[[socket.socket], None]
) -> None:
    loop = new_loop()
    bound = listening_socket("127.0.0.1", 0, socket.SOCK_STREAM)
    sink: Any = Stopping()
    came: list[Connection] = []

    def make() -> TcpProtocol:
        admit: Any = lambda connection, *arguments: came.append(connection)  # noqa: E731
        return TcpProtocol(sink, PROTOCOLS["json"].sessions(), ConnectionLimits, admit)

    server = loop.run_until_complete(listen_tcp("127.0.0.1", 0, make, bound=bound))
    try:
        with socket.create_connection(bound.getsockname(), timeout=5) as client:
            loop.run_until_complete(asyncio.sleep(0.05))
            [connection] = came
            connection.transport.pause_reading()
            seen = [(connection.has_ended, connection.has_left)]
            way(client)
            loop.run_until_complete(asyncio.sleep(0.05))
            seen.append((connection.has_ended, connection.has_left))
            assert seen == [(False, False), (True, False)], "the system knows it, and nobody has read it"
    finally:
        for connection in came:
            connection.abort()
        server.close()
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
