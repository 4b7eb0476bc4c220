"""Workers of a topic against real nodes: in order within a key, what fails aside, and nothing lost."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from quorate import Client, RefusedError, Reject, Retry, TopicMessage, TopicWorker
from quorate.hands import Backoff
from quorate.topic_worker import queues_beside
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.node import Node

QUICK = Backoff(0.02, 0.1)


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


class Running:
    """A worker in a thread."""

    def __init__(self, node: Node, handler: Callable[[TopicMessage], Any], **options: Any) -> None:
        self.client = node.client()
        self.worker = TopicWorker(self.client, "t", "g", handler, **{"backoff": QUICK, "session": 6, **options})
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self.worker.stop()
        self.thread.join(40)
        assert not self.thread.is_alive()
        self.client.close()


def position(client: Client) -> dict[int, int]:
    return {row.partition: row.position or 0 for row in client.group("t", "g").partitions or ()}


def test_keys_go_in_order_beside_each_other_and_the_group_goes_on(node: Node) -> None:
    seen: dict[str, list[Any]] = {}
    busy: set[str] = set()
    most = 0
    lock = threading.Lock()

    def handle(message: TopicMessage) -> None:
        nonlocal most
        key = str(message.key)
        with lock:
            assert key not in busy, "one of a key at a time"
            busy.add(key)
            most = max(most, len(busy))
            seen.setdefault(key, []).append(message.data)
        time.sleep(0.002)
        with lock:
            busy.discard(key)

    with node.client() as client:
        client.create_topic("t", partitions=2)
        for number in range(200):
            client.append("t", number, key=f"k{number % 7}")
        running = Running(node, handle)
        wait_for(lambda: sum(map(len, seen.values())) == 200)
        running.stop()
        assert running.error is None
        assert most > 2
        for key, numbers in seen.items():
            assert numbers == [number for number in range(200) if f"k{number % 7}" == key]
        assert position(client) == {row.partition: row.next for row in client.topic("t").partitions}
        assert running.worker.counts == {"done": 200, "failed": 0, "dead": 0}
        client.append("t", "more", key="k0")
        again = Running(node, handle)
        wait_for(lambda: seen["k0"][-1] == "more")
        again.stop()
        assert sum(map(len, seen.values())) == 201, "nothing is handled twice"


def test_what_fails_is_tried_again_and_then_dead_and_holds_up_nobody(node: Node) -> None:
    tried: dict[Any, list[TopicMessage]] = {}

    def handle(message: TopicMessage) -> None:
        tried.setdefault(message.data, []).append(message)
        if message.data == b"bad" or (message.data == "twice" and len(tried["twice"]) < 3):
            raise ValueError("it is bad")
        if message.data == "nobody's":
            raise Reject("nobody wants it")
        if message.data == "later" and len(tried["later"]) < 2:
            raise Retry(0.3)

    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.append("t", b"bad", key="k", headers={"h": "1"}, attribute="red")
        for data in ("twice", "nobody's", "later", "good"):
            client.append("t", data, key="k")
        running = Running(node, handle, tries=3)
        wait_for(lambda: len(tried.get("twice", ())) == 3 and client.monitor("g.dead.{t}")["size"] == 2)
        wait_for(lambda: running.worker.counts["done"] == 3)
        running.stop()
        assert position(client) == {0: 5}
        assert client.monitor("g.retry.{t}")["size"] == 0
        assert {data: len(messages) for data, messages in tried.items()} == {
            b"bad": 3,
            "twice": 3,
            "nobody's": 1,
            "later": 2,
            "good": 1,
        }
        assert len({repr(message) for message in tried[b"bad"]}) == 1, "it is the same message each time"
        dead = {message.data: message for message in client.browse("g.dead.{t}", "ready")}
        assert set(dead) == {b"bad", "nobody's"}
        assert dead[b"bad"].headers == {
            "h": "1",
            "quorate-tries": "3",
            "quorate-reason": "ValueError: it is bad",
            "quorate-partition": "0",
            "quorate-offset": "0",
            "quorate-msg_id": str(tried[b"bad"][0].msg_id),
            "quorate-produced_at": str(tried[b"bad"][0].produced_at),
            "quorate-position": "0",
            "quorate-key": "k",
            "quorate-attribute": "red",
        }
        assert dead["nobody's"].headers["quorate-reason"] == "nobody wants it"
        assert running.worker.counts == {"done": 3, "failed": 5, "dead": 2}


def test_in_strict_order_the_first_failure_stops_the_worker_before_it(node: Node) -> None:
    handled: list[Any] = []
    is_bad = True

    def handle(message: TopicMessage) -> None:
        if message.data == 3 and is_bad:
            raise ValueError("three")
        handled.append(message.data)

    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.append_many("t", list(range(6)), partition=0)
        running = Running(node, handle, stop=True, concurrency=1)
        running.thread.join(30)
        running.stop()
        assert isinstance(running.error, ValueError)
        assert handled == [0, 1, 2]
        assert position(client) == {0: 3}
        is_bad = False
        again = Running(node, handle, stop=True, concurrency=1)
        wait_for(lambda: handled == [0, 1, 2, 3, 4, 5])
        again.stop()
        assert "g.retry.{t}" not in client.queues()


def test_an_async_handler_and_a_worker_that_is_stopped_while_it_works(node: Node) -> None:
    begun: list[Any] = []
    ended: list[Any] = []

    async def handle(message: TopicMessage) -> None:
        begun.append(message.data)
        await asyncio.sleep(0.3)
        ended.append(message.data)

    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.append_many("t", list(range(50)), partition=0)
        running = Running(node, handle, concurrency=3)
        wait_for(lambda: len(begun) == 3)
        running.stop()
        assert sorted(ended) == [0, 1, 2]
        assert position(client) == {0: 3}


def test_all_async_handlers_run_on_one_loop_also_what_is_tried_again(node: Node) -> None:
    """They share what belongs to a loop, as an `AsyncClient` does."""
    loops: list[asyncio.AbstractEventLoop] = []
    tried: set[Any] = set()

    async def handle(message: TopicMessage) -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        if message.data not in tried:
            tried.add(message.data)
            raise ValueError(message.data)

    with node.client() as client:
        client.create_topic("t", partitions=2)
        client.append_many("t", list(range(6)))
        running = Running(node, handle, concurrency=3)
        wait_for(lambda: running.worker.counts["done"] == 6)
        running.stop()
    assert len({id(loop) for loop in loops}) == 1
    assert loops[0].is_closed()


def test_an_async_handler_that_does_not_end_is_cancelled_and_its_message_is_not_done(node: Node) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def handle(message: TopicMessage) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with node.client() as client:
        client.create_topic("t", partitions=1)
        client.append("t", 1)
        running = Running(node, handle, stop=True, grace=0.2)
        assert begun.wait(20)
        before = time.monotonic()
        running.stop()
        assert time.monotonic() - before < 10
        assert ended.wait(5)
        assert running.error is None
        assert running.worker.counts == {"done": 0, "failed": 0, "dead": 0}
        assert position(client) in ({}, {0: 0})


SCRIPT = """
import sys, time
from quorate import Client, TopicWorker
def handle(message):
    print("begun", message.data, flush=True)
    time.sleep(float(sys.argv[2]))
    print("done", message.data, flush=True)
TopicWorker(Client("127.0.0.1", int(sys.argv[1])), "t", "g", handle, session=6).run()
print("ended", flush=True)
"""


def test_a_signal_ends_it_in_order_and_a_second_one_at_once(node: Node) -> None:
    with node.client() as client:
        client.create_topic("t", partitions=1)
        for number in (1, 2):
            client.append("t", number, key="one behind the other")
        for number, handler_s, signals, says in ((1, "1.0", 1, ["done 1", "ended"]), (2, "60", 2, ["ended"])):
            process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(node.port), handler_s], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert process.stdout.readline() == f"begun {number}\n"
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                time.sleep(2)  # it reads no more by then, and waits for its hands
            out, _ = process.communicate(timeout=10)
            assert out.split("\n")[:-1] == says
            assert process.returncode == 0
        assert position(client) == {0: 1}, "the second is not done"


def test_two_workers_share_and_one_that_is_killed_leaves_nothing_behind(node: Node) -> None:
    by: dict[int, list[Any]] = {0: [], 1: []}

    def handler(who: int) -> Callable[[TopicMessage], None]:
        def handle(message: TopicMessage) -> None:
            time.sleep(0.005)
            by[who].append(message.data)

        return handle

    with node.client() as client:
        client.create_topic("t", partitions=4)
        first = Running(node, handler(0))
        for number in range(100):
            client.append("t", number, partition=number % 4)
        wait_for(lambda: len(by[0]) > 20)
        second = Running(node, handler(1))
        for number in range(100, 400):
            client.append("t", number, partition=number % 4)
        wait_for(lambda: len(by[1]) > 30)
        first.stop()
        for number in range(400, 500):
            client.append("t", number, partition=number % 4)
        wait_for(lambda: {*by[0], *by[1]} == {*range(500)})
        second.stop()
        assert len(by[0]) + len(by[1]) == 500, "a partition is let go of when all of it that was begun is done"


def test_what_can_not_work_is_said_at_once(node: Node) -> None:
    with node.client() as client:
        with pytest.raises(RefusedError, match="no_such_topic"):
            TopicWorker(client, "none", "g", print).run()
        with pytest.raises(ValueError, match="concurrency"):
            TopicWorker(client, "t", "g", print, concurrency=0)
        with pytest.raises(ValueError, match="tries"):
            TopicWorker(client, "t", "g", print, tries=True)
        with pytest.raises(ValueError, match="longer than 255"):
            TopicWorker(client, "t" * 240, "g" * 30, print)
    assert queues_beside("orders", "g") == ("g.retry.{orders}", "g.dead.{orders}")
    assert queues_beside("{shop}.orders", "g") == ("g.retry.{shop}.orders", "g.dead.{shop}.orders")
