"""LoopActor keeps pykka's contract: one suite run against pykka's ThreadingActor and ours; then what only ours does."""

import asyncio
import contextlib
import gc
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pykka
import pytest
import uvloop
from pykka import ActorDeadError, ActorRegistry

from actors.runtime.asyncio_runtime import LOOK_S, AsyncioRuntime
from actors.runtime.blocking import BlockedLoopError, BlockingActor, mark_loop_thread
from actors.runtime.contract import TURN_MESSAGES_MAX, TURN_S, Turn
from actors.runtime.loop_actor import LoopActor


class Loop:
    """An event loop with its runtime, on a thread."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.failed = threading.Event()
        ready = threading.Event()

        def run() -> None:
            self.loop = uvloop.new_event_loop()
            asyncio.set_event_loop(self.loop)
            self.runtime = AsyncioRuntime(self.loop, self._note)
            self.loop.call_soon(ready.set)
            self.loop.run_forever()
            self.loop.close()

        self._thread = threading.Thread(target=run)
        self._thread.start()
        ready.wait(10)

    def _note(self, who: object, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    def call(self, function: Callable[[], Any]) -> Any:
        """Call on the loop's thread."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def close(self) -> None:
        """Stop the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    ActorRegistry.stop_all(timeout=5)
    running.close()


class Behaviour:
    """What the actors of the suite do; mixed into either kind."""

    def set_up(self, log: "list[Any]") -> None:
        self.log = log
        self.attribute = "value"
        self.waited = threading.Event()

    def on_start(self) -> None:
        self.log.append("started")

    def on_stop(self) -> None:
        self.log.append("stopped")

    def on_failure(self, kind: Any, error: Any, traceback: Any) -> None:
        self.log.append(("failed", kind))

    def on_receive(self, message: Any) -> Any:
        if message == "raise":
            raise ValueError("asked to")
        self.log.append(message)
        return ("echo", message)

    def method(self, value: int) -> int:
        return value + 1


class Threaded(Behaviour, pykka.ThreadingActor):
    def __init__(self, log: "list[Any]") -> None:
        super().__init__()
        self.set_up(log)


class Looped(Behaviour, LoopActor[Any]):
    def __init__(self, runtime: AsyncioRuntime, log: "list[Any]") -> None:
        super().__init__(runtime)
        self.set_up(log)


Start = Callable[[], "tuple[pykka.ActorRef[Any], list[Any]]"]


@pytest.fixture(params=["threading", "loop"])
def start(request: pytest.FixtureRequest, loop: Loop) -> Start:
    """Start an actor of the kind under test; returns its ref and its log."""

    def start_one() -> "tuple[pykka.ActorRef[Any], list[Any]]":
        log: list[Any] = []
        if request.param == "threading":
            return Threaded.start(log), log
        return Looped.start(loop.runtime, log), log

    return start_one


def test_ask_gives_what_the_actor_returns(start: Start) -> None:
    ref, _ = start()
    assert ref.ask("hello", timeout=5) == ("echo", "hello")


def test_messages_are_handled_in_the_order_they_were_sent(start: Start) -> None:
    ref, log = start()
    for number in range(1000):
        ref.tell(number)
    ref.ask("end", timeout=5)
    assert log == ["started", *range(1000), "end"]


def test_many_threads_may_send_and_nothing_is_lost(start: Start) -> None:
    ref, log = start()

    def send() -> None:
        for number in range(500):
            ref.tell(number)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ref.ask("end", timeout=5)
    assert len(log) == 2002


def test_an_exception_goes_to_who_asked_and_the_actor_lives_on(start: Start) -> None:
    ref, _ = start()
    with pytest.raises(ValueError, match="asked to"):
        ref.ask("raise", timeout=5)
    assert ref.ask("still there", timeout=5) == ("echo", "still there")


def test_an_exception_that_nobody_asked_for_ends_the_actor(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    ref, log = start()
    with caplog.at_level(logging.CRITICAL):
        ref.tell("raise")
        ref.actor_stopped.wait(5)
        with pytest.raises(ActorDeadError):
            ref.ask("after", timeout=5)
    assert not ref.is_alive()
    assert ref not in ActorRegistry.get_all()
    deadline = threading.Event()
    while ("failed", ValueError) not in log and not deadline.wait(0.01):
        pass
    assert "stopped" not in log


def test_stop_handles_what_was_sent_before_and_refuses_what_comes_after(start: Start) -> None:
    ref, log = start()
    ref.tell("before")
    assert ref.stop(timeout=5)
    assert log == ["started", "before", "stopped"]
    assert not ref.stop(timeout=5)
    with pytest.raises(ActorDeadError):
        ref.tell("after")
    with pytest.raises(ActorDeadError):
        ref.ask("after", timeout=5)


def test_a_proxy_calls_methods_and_reads_and_sets_attributes(start: Start) -> None:
    ref, _ = start()
    proxy = ref.proxy()
    assert proxy.method(1).get(timeout=5) == 2
    assert proxy.attribute.get(timeout=5) == "value"
    proxy.attribute = "other"
    assert proxy.attribute.get(timeout=5) == "other"


def test_a_running_actor_is_in_the_registry_and_a_stopped_one_is_not(start: Start) -> None:
    ref, _ = start()
    assert ActorRegistry.get_by_urn(ref.actor_urn) == ref
    ActorRegistry.stop_all(timeout=5)
    assert ActorRegistry.get_by_urn(ref.actor_urn) is None
    assert not ref.is_alive()


def test_futures_can_be_asked_for_later_and_joined(start: Start) -> None:
    ref, _ = start()
    futures = [ref.ask(n, block=False) for n in range(5)]
    assert pykka.get_all(futures, timeout=5) == [("echo", n) for n in range(5)]


# -- what only the LoopActor does ---------------------------------------------------------------------------------


def test_waiting_for_a_future_on_the_loop_raises_at_once(loop: Loop) -> None:
    log: list[Any] = []
    ref = Looped.start(loop.runtime, log)

    class Blocking(BlockingActor):
        def on_receive(self, message: Any) -> Any:
            return message

    blocking = loop.runtime.start_blocking(Blocking)
    for target in (ref, blocking):
        with pytest.raises(BlockedLoopError):
            loop.call(partial(target.ask, "never"))


def test_a_failing_actor_is_reported_to_the_runtime_once_with_its_exception(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        ref = Looped.start(loop.runtime, [])
        ref.tell("raise")
        assert loop.failed.wait(5)
    assert [str(error) for error in loop.failures] == ["asked to"]
    assert "Unhandled exception in Looped" in caplog.text


def test_a_failing_blocking_actor_is_reported_to_the_runtime(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    class Blocking(BlockingActor):
        def on_receive(self, message: Any) -> Any:
            raise OSError("the disk is gone")

    with caplog.at_level(logging.ERROR):
        loop.runtime.start_blocking(Blocking).tell("x")
        assert loop.failed.wait(5)
    assert isinstance(loop.failures[0], OSError)


def test_an_actor_with_much_to_do_lets_others_and_the_sockets_have_their_turn(loop: Loop) -> None:
    order: list[str] = []

    class Counter(LoopActor[Any]):
        def __init__(self, name: str) -> None:
            super().__init__(loop.runtime)
            self.name = name

        def on_receive(self, message: Any) -> None:
            order.append(self.name)

    busy, other = Counter.start("busy"), Counter.start("other")

    def flood() -> None:
        for _ in range(TURN_MESSAGES_MAX * 3):
            busy.tell("x")
        other.tell("x")

    loop.call(flood)
    busy.ask("end", timeout=5)
    other.ask("end", timeout=5)
    assert order.index("other") <= TURN_MESSAGES_MAX + 1


def test_messages_that_take_long_leave_the_others_their_turn(loop: Loop) -> None:
    order: list[str] = []

    class Slow(LoopActor[Any]):
        def on_receive(self, message: Any) -> None:
            order.append("slow")
            time.sleep(TURN_S * 1.2)

    class Other(LoopActor[Any]):
        def on_receive(self, message: Any) -> None:
            order.append("other")

    slow, other = Slow.start(loop.runtime), Other.start(loop.runtime)

    def flood() -> None:
        for _ in range(6):
            slow.tell("x")
            other.tell("x")

    loop.call(flood)
    slow.ask("end", timeout=5)
    assert order.index("other") == 1


def test_a_paused_actor_handles_nothing_and_then_all_in_order(loop: Loop) -> None:
    seen: list[int] = []

    class Pausing(LoopActor[Any]):
        def on_receive(self, message: Any) -> Any:
            seen.append(message)
            if message == 0:
                self.pause()
                self.runtime.call_later(0.05, self._resume)
            return len(seen)

        def _resume(self) -> None:
            seen.append(-1)
            self.resume()

    actor = Pausing.start(loop.runtime)
    wanted = TURN_MESSAGES_MAX * 3

    def flood() -> None:
        for number in range(wanted):
            actor.tell(number)

    loop.call(flood)
    assert actor.ask(wanted, timeout=5) == wanted + 2
    assert seen == [0, -1, *range(1, wanted + 1)]


def test_endless_messages_do_not_keep_the_loop_from_its_callbacks(loop: Loop) -> None:
    class Endless(LoopActor[Any]):
        def on_receive(self, message: Any) -> None:
            self.actor_ref.tell(message)

    Endless.start(loop.runtime).tell("again")
    assert loop.call(lambda: 42) == 42


def test_the_mark_of_a_loop_thread_is_its_own() -> None:
    mark_loop_thread(False)
    future: pykka.Future[Any] = LoopActor._create_future()
    future.set(1)
    assert future.get(timeout=1) == 1


class _Raises:
    """What a socket's protocol, a timer or a turn may be."""

    def take_turn(self) -> None:
        raise ValueError("in a turn")

    def ring(self) -> None:
        raise ValueError("in a timer")


@pytest.mark.parametrize("where", ["turn", "timer", "socket", "task"])
def test_whatever_raises_on_the_loop_ends_the_worker(loop: Loop, where: str) -> None:
    """Not only what an actor's message does: the node would listen, and do nothing any more (review 4.1)."""
    raises = _Raises()

    async def task() -> None:
        raise ValueError("in a task")

    def begin() -> None:
        if where == "turn":
            loop.runtime.wake(raises)
        elif where == "timer":
            loop.runtime.call_later(0.0, raises.ring)
        elif where == "socket":
            loop.loop.call_soon(raises.ring)
        else:
            loop.loop.create_task(task())

    logging.disable(logging.CRITICAL)
    try:
        loop.call(begin)
        loop.call(gc.collect)
        assert loop.failed.wait(10)
    finally:
        logging.disable(logging.NOTSET)
    assert isinstance(loop.failures[0], ValueError)


def test_a_broken_connection_ends_nobody(loop: Loop) -> None:
    def breaks() -> None:
        raise ConnectionResetError("of one client")

    logging.disable(logging.CRITICAL)
    try:
        loop.call(lambda: loop.loop.call_soon(breaks))
        loop.call(lambda: None)
    finally:
        logging.disable(logging.NOTSET)
    assert not loop.failed.is_set()


def test_a_failure_in_one_turn_does_not_keep_the_others_from_theirs(loop: Loop) -> None:
    served = threading.Event()

    class Fine:
        def take_turn(self) -> None:
            served.set()

    turns: list[Turn] = [_Raises(), Fine()]
    logging.disable(logging.CRITICAL)
    try:
        loop.call(lambda: deque(map(loop.runtime.wake, turns), maxlen=0))
        assert served.wait(10)
    finally:
        logging.disable(logging.NOTSET)


class Noted:
    """A turn that is noted."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def take_turn(self) -> None:
        self._seen.append("turn")


@pytest.mark.parametrize(("expects", "order"), [(True, ["watched", "turn"]), (False, ["turn", "watched"])])
def test_what_is_watched_and_expected_is_looked_at_before_the_turn_of_a_loop_that_is_busy(
    expects: bool, order: list[str], loop: Loop
) -> None:
    seen: list[str] = []
    is_over = threading.Event()
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)

    def heed() -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(descriptor)
            seen.append("watched")
            loop.loop.call_later(0.05, is_over.set)

    def be_busy() -> None:
        os.eventfd_write(descriptor, 1)
        time.sleep(4 * LOOK_S)
        loop.runtime.wake(Noted(seen))

    loop.call(lambda: loop.runtime.watch(descriptor, heed, lambda: expects))
    loop.call(lambda: loop.loop.call_later(0.002, be_busy))
    assert is_over.wait(10)
    assert seen == order
    os.close(descriptor)
