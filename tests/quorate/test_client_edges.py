"""Where a client meets what it does not expect: forks, dark nodes, wrong arguments, replies that are not its own."""

import asyncio
import datetime
import multiprocessing
import os
import pickle
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from quorate import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    NewMessage,
    ProtocolViolationError,
    RefusedError,
    UnknownOutcomeError,
)
from quorate.protocol import Action
from quorate.shard_map import LEARN_AFTER, RENEW_S, ShardMap
from quorate.trying import WAIT_SLICE_S
from tests.conftest import StartNode
from tests.node import free_port


def in_child(what: Callable[[], str]) -> str:
    """What a forked child says."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, what().encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader, "rb") as file:
        return file.read().decode()


def test_a_child_has_connections_of_its_own_and_nobody_gets_anothers_reply(start_node: StartNode) -> None:
    """Of 600 consumes in forked processes 130 returned the other process's message."""
    with start_node().client() as client:
        ids = {name: client.produce(name, name, retry=60) for name in ("parent", "child")}
        assert client._asking._pool._idle

        def show_own() -> str:
            mine = {connection._socket.getsockname() for connection in client._asking._pool._idle}
            shown = {client.show(ids["child"]).data for _ in range(200)}
            its = {connection._socket.getsockname() for connection in client._asking._pool._idle}
            return f"{sorted(shown)} {len(mine)} {len(its)}"

        done: list[str] = []
        child = threading.Thread(target=lambda: done.append(in_child(show_own)))
        child.start()
        shown = {client.show(ids["parent"]).data for _ in range(400)}
        child.join()
        assert shown == {"parent"}
        assert done == ["['child'] 0 1"]
        assert client.show(ids["parent"]).data == "parent", "its own connections are as they were"


def test_a_child_can_ask_although_a_thread_held_a_lock_at_the_fork(start_node: StartNode) -> None:
    with start_node().client() as client:
        client.produce("q", "x")
        with client._asking._pool._lock, client._asking._map._lock:
            assert in_child(lambda: str(client.monitor("q")["size"])) == "1"


def test_a_connection_that_was_in_use_when_its_client_was_closed_is_closed_after_it(start_node: StartNode) -> None:
    with start_node().client() as client:
        waiting = threading.Thread(target=client.consume, args=("none",), kwargs={"wait": 1.0})
        waiting.start()
        time.sleep(0.3)
        client.close()
        waiting.join()
        assert not client._asking._pool._idle


class Wrong:
    """Answers every request with the same line."""

    def __init__(self, line: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._line = line
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._listener:
            connection, _ = self._listener.accept()
            with connection:
                while connection.recv(65536):
                    connection.sendall(self._line)


@pytest.mark.parametrize("seq", [b"", b',"seq":7', b',"seq":"1"'])
def test_a_reply_that_is_not_to_this_request_is_none(seq: bytes) -> None:
    wrong = Wrong(b'{"action":4,"code":0,"size":5' + seq + b"}\n")
    with Client("127.0.0.1", wrong.port) as client, pytest.raises(ProtocolViolationError, match="another request"):
        client.monitor("q")


def test_a_refusal_of_what_could_not_be_read_needs_no_number() -> None:
    wrong = Wrong(b'{"action":0,"code":-1,"error":"too_large","reason":"a request may have 5 bytes"}\n')
    with Client("127.0.0.1", wrong.port) as client, pytest.raises(RefusedError, match="too_large"):
        client.monitor("q")


def test_a_number_of_ones_own_comes_back(start_node: StartNode) -> None:
    with start_node().client() as client:
        client.produce("q", 1)
        assert client.request(Action.MONITOR, queue="q", seq="mine")["seq"] == "mine"
        assert "seq" not in client.monitor("q")


class Dark:
    """A port that takes connections and says nothing, as a node does whose machine is gone behind a proxy."""

    def __enter__(self) -> int:
        self._sock = socket.socket()
        self._sock.bind(("127.0.0.1", 0))
        self._sock.listen(0)
        self._fill = [socket.socket() for _ in range(3)]
        for one in self._fill:
            one.setblocking(False)
            one.connect_ex(self._sock.getsockname())
        return int(self._sock.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        for one in (self._sock, *self._fill):
            one.close()


def test_a_node_that_takes_no_connection_costs_a_part_of_the_time_when_there_is_another(start_node: StartNode) -> None:
    node = start_node()
    with Dark() as dark, Client(nodes=[("127.0.0.1", dark), ("127.0.0.1", node.port)], timeout=1.0) as client:
        assert client.produce("q", 1) > 0
        assert client.consume("empty", wait=0.3) is None, "nor does a wait make it longer"


def test_without_patience_for_it_a_client_says_at_once_that_nobody_is_there() -> None:
    nodes = [("127.0.0.1", free_port()), ("127.0.0.1", free_port())]
    begun = time.monotonic()
    with Client(nodes=nodes, retry_connect=False) as client, pytest.raises(ConnectionFailedError, match="refused"):
        client.queues()
    assert time.monotonic() - begun < 5


def test_a_long_wait_is_asked_for_in_slices(monkeypatch: pytest.MonkeyPatch, start_node: StartNode) -> None:
    monkeypatch.setattr("quorate.trying.WAIT_SLICE_S", 0.2)
    node = start_node()
    with node.client(timeout=5.0) as client, node.client() as other:
        assert client.consume("q", wait=0.7) is None
        assert client.status()["requests"] >= 4
        timer = threading.Timer(0.6, lambda: other.produce("q", "late"))
        timer.start()
        message = client.consume("q", wait=20)
        assert message is not None
        assert message.data == "late"
    assert WAIT_SLICE_S < 30


def test_errors_travel_between_processes() -> None:
    for error in (
        RefusedError("no_such_queue", "there is none", {"code": -1}),
        UnknownOutcomeError("who knows", {"code": -1, "error": "unknown_outcome"}),
        UnknownOutcomeError("the connection broke"),
        ConnectionFailedError("nobody is there"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def _refused(port: int) -> None:
    with Client(port=port) as client:
        client.monitor("nosuch")


def test_a_process_pool_gives_the_refusal_itself(start_node: StartNode) -> None:
    node = start_node()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        refused = pool.submit(_refused, node.port).exception(60)
    assert isinstance(refused, RefusedError)
    assert refused.error == "no_such_queue"


def made(**arguments: Any) -> Client:
    return Client(**arguments)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda c: c.produce(b"x", 1), "queue is a bytes"),
        (lambda c: c.consume(b"x"), "queue is a bytes"),
        (lambda c: c.consume(["a", b"x"]), "queue has a bytes"),
        (lambda c: c.produce("q", 1, key=b"k"), "key is a bytes"),
        (lambda c: c.produce("q", 1, delay="1"), "delay is a str"),
        (lambda c: c.produce("q", 1, retry=datetime.timedelta(seconds=5)), "retry is a timedelta"),
        (lambda c: c.produce("q", 1, priority="high"), "priority is a str"),
        (lambda c: c.produce_many("q", "abc"), "a list of messages is wanted"),
        (lambda c: c.produce_many("q", {"a": 1}), "a list of messages is wanted"),
        (lambda c: c.confirm(None), "there is no message to confirm"),
        (lambda c: c.confirm("5"), "a message or its msg_id"),
        (lambda c: c.release(None), "there is no message"),
        (lambda c: c.produce("q", 1, headers={"a": 1}), "is no pair of texts"),
        (lambda c: c.produce("q", 1, headers=["a"]), "headers is a list"),
        (lambda c: c.produce_many("q", [NewMessage(1, headers={"a": 5})]), "is no pair of texts"),  # type: ignore[dict-item]
        (lambda c: made(timeout=None), "timeout is None"),
        (lambda c: made(host=5), "host is a int"),
        (lambda c: Client(nodes="127.0.0.1:1111"), "a list of nodes"),
    ],
)
def test_what_can_not_be_asked_is_a_type_error_before_anything_is_sent(ask: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        ask(Client("127.0.0.1", 1))


@pytest.mark.parametrize("arguments", [{"timeout": 0}, {"timeout": -1}, {"host": "127.0.0.1:23000", "port": 5}])
def test_what_means_nothing_is_a_value_error_when_the_client_is_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"timeout is|host is"):
        Client(**arguments)


def test_any_sequence_of_messages_can_be_produced(start_node: StartNode) -> None:
    with start_node().client() as client:
        assert len(client.produce_many("q", (n for n in range(3)))) == 3


def learned(at: float = 0.0, **reply: Any) -> ShardMap:
    known = ShardMap()
    while not known.counted(at):
        pass
    rows = [{"shard": n, "host": "h", "port": 10 + n} for n in range(2)]
    known.learned({"code": 0, "shards": rows, **reply}, at)
    return known


def test_the_map_is_asked_for_anew_after_a_while() -> None:
    known = learned()
    assert known.address_of(4, {"queue": "q"}) is not None
    assert not any(known.counted(RENEW_S - 1) for _ in range(1000))
    assert [known.counted(RENEW_S + 1) for _ in range(3)] == [True, False, False]
    known.learned({"code": 0, "shards": []}, RENEW_S + 1)
    assert not known.counted(RENEW_S + 2)
    assert known.counted(2 * RENEW_S + 2)


def test_a_map_that_nobody_could_give_or_with_holes_is_asked_for_again_soon() -> None:
    for reply in ({"code": -1, "error": "no_leader"}, {"missing_shards": [2]}):
        known = learned(**reply)
        assert sum(known.counted(1.0) for _ in range(LEARN_AFTER)) == 1


def test_a_closed_client_is_an_error(start_node: StartNode) -> None:
    client = start_node().client()
    client.produce("q", 1)
    other = client.within(1)
    with other:
        other.produce("q", 2)
    client.produce("q", 3)
    client.close()
    for closed in (client, other):
        with pytest.raises(ConnectionFailedError, match="was closed"):
            closed.consume("q")


def test_a_wait_of_a_client_that_was_closed_takes_nothing_more(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on with its next slice, over a connection that it opened for that."""
    monkeypatch.setattr("quorate.trying.WAIT_SLICE_S", 0.3)
    node = start_node()
    raised: list[Exception] = []
    client = node.client()

    def wait() -> None:
        try:
            client.consume("q", wait=30)
        except ConnectionFailedError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.1)
    client.close()
    waiting.join(10)
    assert [str(error) for error in raised] == ["the client was closed"]


def test_a_silent_node_takes_no_more_than_the_time_that_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with Client("127.0.0.1", silent.getsockname()[1], timeout=0.5) as client, pytest.raises(ConnectionFailedError):
            client.monitor("q")
        assert time.monotonic() - begun < 1.2


class Waiter(socketserver.StreamRequestHandler):
    """Says nothing before the head of a request has ended, as servers of HTTP do."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_what_is_no_node_is_said_to_be_none() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Waiter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        with Client("127.0.0.1", port, timeout=0.5) as client, pytest.raises(ProtocolViolationError, match="HTTP"):
            client.monitor("q")

        async def ask() -> None:
            async with AsyncClient("127.0.0.1", port, timeout=5) as client:
                await client.monitor("q")

        with pytest.raises(ProtocolViolationError, match="HTTP"):
            asyncio.run(ask())
        server.shutdown()


def test_a_blank_line_while_a_request_waits_changes_nothing(start_node: StartNode) -> None:
    node = start_node()

    async def wait() -> object:
        async with AsyncClient("127.0.0.1", node.port) as client:
            message = await client.consume("q", wait=30)
            return None if message is None else message.data

    with node.client() as client:
        producing = threading.Timer(2.0, lambda: client.produce("q", "late"))
        producing.start()
        assert asyncio.run(wait()) == "late"
        producing.join()
