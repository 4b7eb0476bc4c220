"""What a worker's ports know of who is there: how many may come in at once."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from actors.gateway.access import AccessTable
from actors.node import ports
from actors.node.ports import Ports
from net.accepting import ALL, BURST, CROWD_BURST
from net.clients.held_bytes import HeldBytes
from net.clients.moving import MovedClient, MovedIn
from net.clients.reading_turn import OTHERS_S, ReadingTurn
from net.protocols import BESIDE


@pytest.mark.parametrize("is_open", [True, False])
def test_all_come_at_once_but_where_somebody_who_has_shown_a_token_would_wait(
    is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def listen_tcp(*arguments: Any, at_once: Any) -> None:
        asked.append(at_once)

    monkeypatch.setattr(ports, "listen_tcp", listen_tcp)
    now, held = 0.0, HeldBytes(1 << 20)
    turn = ReadingTurn(lambda: now, lambda: None, held)
    listener: Any = SimpleNamespace(turn=turn, admit=None, turned_away=SimpleNamespace(note=None))
    security: Any = SimpleNamespace(access=AccessTable(None if is_open else {}), clients_tls=None)
    unused: Any = SimpleNamespace()
    config: Any = {
        "host": "127.0.0.1", "port": 0, "tls": False, "shards": 1, "cluster_node_list": [], "advertise_host": "",
        "listeners": [{"protocol": "disque", "host": "127.0.0.1", "port": 0, "tls": True, "debug": False}],
    }  # fmt: skip

    async def run() -> None:
        opened = Ports(
            asyncio.get_running_loop(), config, 0, listener, unused,
            sockets=unused, security=lambda: security, facts=unused, failed=unused,
        )  # fmt: skip
        monkeypatch.setattr(ports, "DATAGRAM_PROTOCOLS", frozenset())
        await opened.open(None)

    asyncio.run(run())
    assert len(asked) == 2, "each of its ports for clients"
    for at_once in asked:
        assert at_once() == ALL, "nobody asks"
        held.read += 10
        assert at_once() == (ALL if is_open else BURST), "somebody known was heard"
        turn.strangers_wait = True
        assert at_once() == CROWD_BURST
        turn.strangers_wait = False
        now += OTHERS_S
        assert at_once() == ALL


def test_who_moved_here_speaks_its_protocol_wherever_its_listener_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a listener without TLS beside a main port with it; what is no protocol is closed."""
    made: list[str] = []

    def protocol(name: str, *arguments: Any) -> asyncio.Protocol:
        made.append(name)
        return asyncio.Protocol()

    unused: Any = SimpleNamespace()
    pairs = [socket.socketpair() for _ in range(2)]
    names = ("json" + BESIDE, "dance")
    moved = [MovedIn(pair[0], MovedClient(name, 1)) for pair, name in zip(pairs, names, strict=True)]

    async def run() -> None:
        there = Ports(
            asyncio.get_running_loop(), unused, 0, unused, unused,
            sockets=unused, security=unused, facts=unused, failed=lambda what, error: made.append(str(error)),
        )  # fmt: skip
        monkeypatch.setattr(there, "_protocol", protocol)
        for one in moved:
            there._moved_in(one)
        while not made:
            await asyncio.sleep(0.001)
        for _, other in pairs:
            other.close()
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert made == ["json" + BESIDE]
    assert moved[1].sock.fileno() == -1, "closed"
