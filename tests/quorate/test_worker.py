"""Workers on real nodes: what becomes of messages, and of a worker that is stopped or killed."""

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quorate import Client, RefusedError, Reject, Retry, Worker
from quorate.hands import Backoff
from tests.cluster import wait_for
from tests.conftest import StartNode

QUICK = Backoff(0.05, 0.1)


@contextmanager
def working(worker: Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(40)
        assert not thread.is_alive()


class OddError(Exception):
    """What it says uses an attribute that was never set."""

    def __str__(self) -> str:
        return str(self.detail)  # type: ignore[attr-defined]


def size(client: Client, queue: str = "q") -> int:
    return int(client.monitor(queue)["size"])


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_handled_is_confirmed_and_several_hands_work_at_once(start_node: StartNode, is_async: bool) -> None:
    with start_node().client() as client:
        together = threading.Barrier(4, timeout=20)
        seen: list[int] = []
        at_once = asyncio.Event()
        waiting = [0]

        def handle(message: Any) -> None:
            together.wait()
            seen.append(message.data)

        async def handle_async(message: Any) -> None:
            waiting[0] += 1
            if waiting[0] == 4:
                at_once.set()
            await asyncio.wait_for(at_once.wait(), 20)
            seen.append(message.data)

        client.produce_many("a", [1, 2])
        client.produce_many("b", [3, 4])
        worker = Worker(client, ["a", "b"], handle_async if is_async else handle, concurrency=4)
        with working(worker):
            wait_for(lambda: size(client, "a") + size(client, "b") == 0)
        assert sorted(seen) == [1, 2, 3, 4]
        assert worker.counts == {"done": 4, "failed": 0, "rejected": 0, "lost": 0}


def test_queues_get_dead_letter_queues_at_the_start(start_node: StartNode, caplog: pytest.LogCaptureFixture) -> None:
    node = start_node()
    with node.client() as client, caplog.at_level(logging.INFO):
        client.configure("has", dead_letter="own")
        with working(Worker(client, ["has", "new"], lambda message: None, concurrency=3)):
            wait_for(lambda: client.queues("new") == ["new"])
        assert client.settings("has").dead_letter == "own"
        assert client.settings("new").dead_letter == "{new}.dead"
        assert f"works on has, new with 3 hands, node 127.0.0.1:{node.port}" in caplog.text


def test_without_dead_letters_what_is_rejected_is_dropped(
    start_node: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Any) -> None:
        raise Reject("nobody wants it")

    with start_node().client() as client:
        client.configure("has", dead_letter="own")
        client.produce("has", 1)
        client.produce("poor", 2)
        with working(Worker(client, ["has", "poor"], handle, dead_letters=False)):
            wait_for(lambda: size(client, "has") + size(client, "poor") == 0)
        assert [one.data for one in client.peek("own", 9)] == [1]
        assert client.queues() == ["has", "own", "poor"]
        assert "of poor is dropped: nobody wants it" in caplog.text


def test_what_fails_comes_again_and_what_is_rejected_is_buried_with_its_reason(
    start_node: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    with start_node().client() as client:
        tries: dict[str, int] = {}

        def handle(message: Any) -> None:
            tries[message.data] = message.deliveries
            if message.data == "fails" and message.deliveries < 3:
                raise ZeroDivisionError
            if message.data == "later" and message.deliveries < 2:
                raise Retry(0.1)
            if message.data == "no":
                raise Reject("no such user")

        client.configure("q", dead_letter="dead")
        client.produce_many("q", ["fails", "later", "no", "fine"])
        client.produce("poor", "no")
        with caplog.at_level(logging.ERROR), working(Worker(client, ["q", "poor"], handle, backoff=QUICK)):
            wait_for(lambda: size(client) + size(client, "poor") == 0)
        assert tries == {"fails": 3, "later": 2, "no": 1, "fine": 1}
        [dead] = client.peek("dead")
        assert (dead.data, (dead.dead or {})["reason"], (dead.dead or {})["queue"]) == ("no", "no such user", "q")
        [dead] = client.peek("{poor}.dead")
        assert (dead.dead or {})["reason"] == "no such user", "it had no dead letter queue, and nothing is lost"
        assert "ZeroDivisionError" in caplog.text


def test_a_task_of_three_leases_runs_once_though_its_expiry_passes(start_node: StartNode) -> None:
    with start_node().client() as client:
        begun: list[float] = []

        def handle(message: Any) -> None:
            begun.append(time.monotonic())
            time.sleep(3.2)

        client.produce("q", 1, retry=1, ttl=2)
        worker = Worker(client, "q", handle)
        with working(worker):
            wait_for(lambda: size(client) == 0)
        assert len(begun) == 1
        assert worker.counts["done"] == 1
        assert worker.counts["lost"] == 0


def test_one_that_can_not_confirm_any_more_says_so(start_node: StartNode, caplog: pytest.LogCaptureFixture) -> None:
    with start_node().client() as client:
        done = threading.Event()

        def handle(message: Any) -> None:
            client.release(message.msg_id)  # by its number: as if its lease were over
            again = client.consume("q")
            assert again is not None
            done.set()

        client.produce("q", 1)
        worker = Worker(client, "q", handle, concurrency=1)  # it has no hand free for what is released
        with caplog.at_level(logging.WARNING), working(worker):
            assert done.wait(20)
            wait_for(lambda: worker.counts["lost"] == 1)
        assert "not this worker's any more" in caplog.text
        assert client.monitor("q")["in_flight"] == 1


def test_one_that_is_stopped_lets_handlers_end_and_gives_back_the_rest(start_node: StartNode) -> None:
    with start_node().client() as client:
        begun = threading.Semaphore(0)
        release = threading.Event()
        ended: list[str] = []

        def handle(message: Any) -> None:
            begun.release()
            if message.data == "long":
                release.wait(30)
            else:
                time.sleep(0.3)
            ended.append(message.data)

        client.produce_many("q", ["short", "long"])
        worker = Worker(client, "q", handle, concurrency=2, grace=1.0)
        with working(worker):
            assert begun.acquire(timeout=20)
            assert begun.acquire(timeout=20)
            worker.stop()
        assert ended == ["short"]
        again = client.consume("q")
        assert again is not None
        assert (again.data, again.deliveries) == ("long", 2)
        release.set()


SCRIPT = """
import sys, time
from quorate import Client, Worker
def handle(message):
    print("begun", message.data, flush=True)
    time.sleep(float(sys.argv[2]))
    print("done", message.data, flush=True)
Worker(Client("127.0.0.1", int(sys.argv[1])), "q", handle, grace=20).run()
print("ended", flush=True)
"""


def test_a_signal_ends_it_in_order_and_a_second_one_at_once(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        for handler_s, signals, says in (("1.0", 1, ["done 1", "ended"]), ("60", 2, ["ended"])):
            client.produce("q", 1)
            process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(node.port), handler_s], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "begun 1\n"
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            out, _ = process.communicate(timeout=20)
            assert out.split("\n")[:-1] == says
            assert process.returncode == 0
        again = client.consume("q")
        assert again is not None, "what was not done was given back"
        assert again.deliveries == 2


def test_a_killed_workers_message_is_begun_again_one_lease_later(start_node: StartNode) -> None:
    node = start_node()
    with node.client() as client:
        client.produce("q", 1, retry=2)
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(node.port), "60"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun 1\n"
        time.sleep(1.5)  # it was extended by then
        process.kill()
        process.wait()
        process.stdout.close()
        killed = time.monotonic()
        begun: list[float] = []
        with working(Worker(client, "q", lambda message: begun.append(time.monotonic()))):
            wait_for(lambda: begun)
        assert begun[0] - killed < 2 + 1


def test_a_worker_goes_on_when_its_node_comes_back(start_node: StartNode) -> None:
    node = start_node()
    with Client("127.0.0.1", node.port, timeout=0.5) as client:
        seen: list[int] = []
        with working(Worker(client, "q", lambda message: seen.append(message.data))):
            client.produce("q", 1)
            wait_for(lambda: seen == [1])
            node.kill()
            time.sleep(1)
            node.start()
            wait_for(lambda: _produced(client, 2))
            wait_for(lambda: 2 in seen)


def _produced(client: Client, data: int) -> bool:
    return client.produce("q", data, key="k") > 0


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.5, 1001])
def test_what_means_nothing_is_refused(concurrency: Any) -> None:
    with pytest.raises(ValueError, match="concurrency"):
        Worker(Client(), "q", print, concurrency=concurrency)
    with pytest.raises(ValueError, match="queues is empty"):
        Worker(Client(), [], print)


def test_whatever_a_handler_says_its_hand_goes_on(start_node: StartNode) -> None:
    """Delays that are none, reasons that are no text, tasks that end the process: the next message is handled."""
    with start_node().client() as client:
        client.configure("q", dead_letter="dead")
        seen: list[int] = []

        def handle(message: Any) -> None:
            seen.append(message.data)
            if message.data == 1:
                raise Retry("5")  # type: ignore[arg-type]  # what is tried
            if message.data == 2:
                raise Reject("caf\udce9")
            if message.data == 3:
                raise SystemExit

        client.produce_many("q", [1, 2, 3, 4])
        with working(Worker(client, "q", handle, concurrency=1)):
            wait_for(lambda: {1, 2, 3, 4} <= set(seen))


def test_a_plain_function_around_an_async_one_is_run(start_node: StartNode) -> None:
    with start_node().client() as client:
        done: list[int] = []

        async def handle(message: Any) -> None:
            await asyncio.sleep(0.01)
            done.append(message.data)

        client.produce_many("q", [1, 2, 3])
        with working(Worker(client, "q", lambda message: handle(message))):
            wait_for(lambda: len(done) == 3 and size(client) == 0)


def test_what_an_async_handler_has_begun_does_not_end_the_worker(start_node: StartNode) -> None:
    with start_node().client() as client:
        done: list[int] = []

        async def leave() -> None:
            raise SystemExit

        async def handle(message: Any) -> None:
            if message.data == 1:
                task = asyncio.create_task(leave())
                await asyncio.sleep(0.05)
                task.cancel()
            done.append(message.data)

        client.produce_many("q", [1, 2, 3])
        with working(Worker(client, "q", handle, concurrency=1)):
            wait_for(lambda: {2, 3} <= set(done))


def test_a_message_whose_block_raises_in_a_worker_rests_or_is_buried_as_the_worker_says(start_node: StartNode) -> None:
    with start_node().client() as client:
        client.configure("q", dead_letter="dead")
        tries: list[int] = []

        def handle(message: Any) -> None:
            with message:
                tries.append(message.data)
                raise Reject("no use") if message.data == 1 else ValueError

        client.produce_many("q", [1, 2])
        worker = Worker(client, "q", handle, backoff=Backoff(30, 30))
        with working(worker):
            wait_for(lambda: worker.counts["failed"] == 1 and worker.counts["rejected"] == 1)
            time.sleep(0.3)
        assert sorted(tries) == [1, 2], "it rests"
        assert client.monitor("q")["delayed"] == 1
        assert (client.peek("dead")[0].dead or {})["reason"] == "no use"
        assert worker.counts["lost"] == 0


def test_a_worker_that_waits_ends_at_once_and_says_what_can_not_get_better(start_node: StartNode) -> None:
    with start_node().client() as client:
        worker = Worker(client, "q", print)
        thread = threading.Thread(target=worker.run)
        thread.start()
        time.sleep(0.3)
        begun = time.monotonic()
        worker.stop()
        thread.join(10)
        assert time.monotonic() < begun + 3
        with pytest.raises(RuntimeError, match="was stopped"):
            worker.run()
        with pytest.raises(RefusedError, match="field_error"):
            Worker(client, "x" * 300, print).run()


@pytest.mark.parametrize(
    "error",
    [ValueError("caf\udce9"), OddError(), SyntaxError("x", ("f", 1, 2, 5))],  # type: ignore[arg-type]  # logging raises
    ids=["half a pair", "no text", "no traceback"],
)
@pytest.mark.parametrize("is_rejected", [False, True])
def test_a_handler_may_fail_with_any_exception(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch, error: Exception, is_rejected: bool
) -> None:
    monkeypatch.setattr(logging.getLogger("quorate.worker"), "disabled", True)  # pytest can't report such a text
    with start_node().client() as client:
        client.configure("q", dead_letter="q.dead")

        def handle(message: Any) -> None:
            raise Reject(error) if is_rejected or message.deliveries > 1 else error

        client.produce("q", 1, retry=60)
        worker = Worker(client, "q", handle, backoff=QUICK)
        with working(worker):
            wait_for(lambda: worker.counts["rejected"] == 1)
        assert worker.counts == {"done": 0, "failed": int(not is_rejected), "rejected": 1, "lost": 0}
        assert size(client, "q.dead") == 1


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_caught", [False, True])
def test_a_message_that_could_not_be_buried_rests(start_node: StartNode, is_caught: bool, is_async: bool) -> None:
    """Its queue has no dead letters: it ran at each lease, and was counted as done."""
    with start_node().client() as client:
        runs = []

        def handle(message: Any) -> None:
            runs.append(message.msg_id)
            try:
                message.bury("bad")
            except RefusedError:
                if not is_caught:
                    raise

        async def handle_async(message: Any) -> None:
            handle(message)

        client.produce("q", 1, retry=1)
        handler = handle_async if is_async else handle
        worker = Worker(client, "q", handler, backoff=Backoff(30, 30), dead_letters=False)
        with working(worker):
            wait_for(lambda: worker.counts["failed"] == 1)
            wait_for(lambda: client.monitor("q")["delayed"] == 1)
            time.sleep(1.5)
        assert len(runs) == 1
        assert worker.counts["done"] == 0


def test_what_the_node_does_not_bury_rests(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a reason that may pass."""
    with start_node().client() as client:

        def full(*what: Any, **more: Any) -> int:
            raise RefusedError("disk_full", "no place", {})

        def handle(message: Any) -> None:
            raise Reject("bad")

        client.produce("q", 1, retry=1)
        monkeypatch.setattr(client, "bury", full)
        monkeypatch.setattr(client, "produce", full)
        with working(Worker(client, "q", handle)):
            wait_for(lambda: client.monitor("q")["delayed"] == 1)


def test_a_message_that_ends_its_workers_is_dead_in_the_end(start_node: StartNode) -> None:
    """Three deliveries lapse; one that was given back as often is worked on."""
    with start_node().client() as client:
        client.produce("q", "kills", retry=0.3)
        client.produce("q", "given back", retry=60)
        for _ in range(3):
            for message in client.consume_many("q", 2, wait=5):
                if message.data == "given back":
                    message.release()
            wait_for(lambda: client.monitor("q")["ready"] == 2)
        seen: list[Any] = []
        worker = Worker(client, "q", lambda message: seen.append(message.data), max_lapses=3)
        with working(worker):
            wait_for(lambda: worker.counts["rejected"] == 1 and worker.counts["done"] == 1)
        assert seen == ["given back"]
        [dead] = client.peek("{q}.dead")
        assert "lapsed" in (dead.dead or {})["reason"]


def test_what_ended_while_no_node_answered_is_buried_when_one_does(start_node: StartNode) -> None:
    """It was tried once, and the handler ran again."""
    node = start_node()
    with node.client(timeout=0.5) as client:
        client.configure("q", dead_letter="q.dead")
        runs = []

        def handle(message: Any) -> None:
            runs.append(message.msg_id)
            node.stop()
            threading.Timer(2.0, node.start).start()
            raise Reject("bad")

        client.produce("q", 1, retry=30)
        worker = Worker(client, "q", handle, backoff=QUICK)
        with working(worker):
            wait_for(lambda: worker.counts["rejected"] == 1)
        assert len(runs) == 1
        with node.client() as other:
            assert size(other, "q.dead") == 1


def test_a_worker_that_rejects_what_lapsed_stops_soon_while_no_node_answers(start_node: StartNode) -> None:
    """It rejected them one after the other before it looked whether it was to stop: 82 s."""
    node = start_node()
    with node.client(timeout=1.0) as client:
        client.produce_many("q", list(range(8)), retry=0.3)
        for _ in range(2):
            assert len(client.consume_many("q", 8, wait=5)) == 8
            wait_for(lambda: client.monitor("q")["ready"] == 8)
        worker = Worker(client, "q", lambda message: None, max_lapses=2, grace=1)
        taken = threading.Event()
        reject = worker._reject

        def away(message: Any, reason: str) -> int:
            taken.set()
            node.kill()
            return reject(message, reason)

        worker._confirms._reject = away
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert taken.wait(20)
        begun = time.monotonic()
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()
        assert time.monotonic() < begun + 15
