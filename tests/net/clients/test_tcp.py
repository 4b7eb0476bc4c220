"""Clients' sockets: nobody who has been let in by the system is shut out when a server takes no more."""

import asyncio
import contextlib
import functools
import gc
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
import uvloop

from net.accepting import ALL, BURST
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.held_bytes import Account, HeldBytes
from net.clients.reading_turn import ReadingTurn
from net.clients.tcp import TcpProtocol, listen_tcp, paced
from net.protocols import PROTOCOLS, NodeFacts
from net.protocols.session import RequestLimits, Session
from net.sockets import listening_socket
from quorate.keep_alive import KEEP_ALIVE_S, KEEP_ALIVE_STEP_S, KEEP_ALIVE_TRIES, UNHEARD_MS
from quorate.protocol import Reply, Request
from tests.faults.security import Authority

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
        return TcpProtocol(sink, PROTOCOLS["json"].sessions(), ConnectionLimits, lambda *arguments: None)

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


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_clients_socket_has_the_options_of_the_one_that_listens(new_loop: Any) -> None:
    loop = new_loop()
    bound = listening_socket("127.0.0.1", 0, socket.SOCK_STREAM)
    sink: Any = Stopping()
    came: list[Any] = []

    def admit(connection: Connection, *arguments: Any) -> None:
        came.append(connection.transport)

    def make() -> TcpProtocol:
        return TcpProtocol(sink, PROTOCOLS["json"].sessions(), ConnectionLimits, admit)

    server = loop.run_until_complete(listen_tcp("127.0.0.1", 0, make, bound=bound))
    try:
        with socket.create_connection(bound.getsockname(), timeout=5):
            loop.run_until_complete(asyncio.sleep(0.1))
            sock = came[0].get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for option, value in (
                (socket.TCP_KEEPIDLE, KEEP_ALIVE_S),
                (socket.TCP_KEEPINTVL, KEEP_ALIVE_STEP_S),
                (socket.TCP_KEEPCNT, KEEP_ALIVE_TRIES),
                (socket.TCP_USER_TIMEOUT, UNHEARD_MS),
            ):
                assert sock.getsockopt(socket.IPPROTO_TCP, option) == value
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        server.close()
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()


@pytest.mark.parametrize(("at_once", "may_come"), [(ALL, BURST), (BURST, BURST), (4.0, 4.0)])
def test_handshakes_are_never_begun_as_fast_as_they_come(at_once: float, may_come: float) -> None:
    assert paced(lambda: at_once)() == may_come


def _come_and_go(port: int, requests: bytes, context: ssl.SSLContext | None) -> None:
    """One after the other: some end in order, others are reset, and some send what is no request."""
    for number in range(12):
        sock: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
        sock.sendall(b"\0nonsense\r\n\r\n" if number % 3 == 2 else requests)
        with contextlib.suppress(OSError):
            sock.recv(1000)
        if number % 3 == 1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()


REQUESTS: dict[str, bytes] = {
    "json": b'{"action":8}',
    "disque": b"PING\r\nGETJOB NOHANG FROM q\r\n",
    "gmq": b'{"method":"Service.Info","params":[{}],"id":1}',
    "metaq": b"version 1\r\nput t 0 1 0 1\r\nxtransaction TX:a:1 a BEGIN 1\r\nput t 0 1 0 TX:a:1 1\r\nx",
}


@pytest.mark.parametrize("with_tls", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_of_a_connection_that_is_gone_needs_the_garbage_collector(
    protocol: str, with_tls: bool, tmp_path: Path
) -> None:
    """Workers do not look through what has stayed for a while (`Collector`): what is in a ring then is never free."""
    authority = Authority(tmp_path)
    certificate = authority.issue("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    loop = uvloop.new_event_loop()
    sink: Any = Stopping()

    def make() -> TcpProtocol:
        return TcpProtocol(sink, session, ConnectionLimits, lambda *arguments: None)

    def session(limits: RequestLimits) -> Session:
        return PROTOCOLS[protocol].sessions()(limits, NodeFacts(1, 5))

    bound = listening_socket("127.0.0.1", 0, socket.SOCK_STREAM)
    server = loop.run_until_complete(listen_tcp("127.0.0.1", 0, make, (lambda: tls) if with_tls else None, bound))
    context = ssl.create_default_context(cafile=authority.ca) if with_tls else None
    going = functools.partial(_come_and_go, bound.getsockname()[1], REQUESTS[protocol], context)
    loop.run_until_complete(loop.run_in_executor(None, going))  # what is made once is made
    gc.collect()
    gc.disable()
    try:
        loop.run_until_complete(loop.run_in_executor(None, going))
        loop.run_until_complete(asyncio.sleep(0.1))
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        rings = {f"{type(one).__module__}.{type(one).__name__}" for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        server.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    assert not [name for name in rings if name.startswith(("actors.", "net.", "quorate.", "uvloop.", "ssl."))], rings
