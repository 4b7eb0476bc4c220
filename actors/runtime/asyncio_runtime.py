"""The real runtime: one event loop (uvloop) of a worker process.

Actors that have messages stand in a line. One callback on the loop serves the line until it is empty or has used
`TURN_S`, and then lets the sockets have their turn before it goes on, so neither starves the other.
"""

import asyncio
import logging
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import pykka
from mypy_extensions import mypyc_attr

from actors.runtime.blocking import mark_loop_thread
from actors.runtime.collector import Collector
from actors.runtime.contract import TURN_S, Runtime, Timer, Turn
from actors.runtime.loop_actor import LoopActor

log = logging.getLogger("quorate.runtime")

SWITCH_INTERVAL_S: Final = 0.0001
"""How long a busy thread may keep the interpreter from the others, set for the whole process.

Python's 5 ms would delay each flush by that. And where the loop lets go of the interpreter as often as that by itself
(see `TURN_S`), a waiting thread never asks for it in earnest, and starves.
"""


REST_S: Final = 0.0002
"""How long a thread beside the loop sleeps when it rests: some 5 to 10 times what it computed before."""


BEAT_S: Final = 0.005
"""How often it is looked at whether the loop comes back in time, where somebody looks."""


LOOK_S: Final = 0.0005
"""Where the loop has had other work for longer, what is watched is looked at before actors have their turn: it would
come to it behind that turn."""


_monotonic: Final = time.monotonic
_time: Final = time.time
_thread_id: Final = threading.get_ident


@mypyc_attr(allow_interpreted_subclasses=True)
class AsyncioRuntime(Runtime):
    """Runs actors on `loop`. Made on the loop's thread.

    `on_failure` is called once, with who raised and what, when anything on the loop did. A turn or a timer that takes
    more than `watchdog_s` is logged with whose it was, and so is that the loop did not come back for so long, whoever
    had it: sockets have turns of their own. 0: nobody looks. `collector` is asked whenever the loop works; None: Python
    calls its own.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[object, BaseException], None],
        watchdog_s: float = 0.0,
        collector: Collector | None = None,
    ) -> None:
        super().__init__()
        self.monotonic_clock = _monotonic
        self._watchdog_s = watchdog_s
        self._loop = loop
        self._on_failure = on_failure
        self._has_failed = False
        self._thread_id = threading.get_ident()
        self._line: deque[Turn] = deque()
        self._watched: list[tuple[Callable[[], None], Callable[[], bool]]] = []
        self._served_at = 0.0
        self._is_serving = False
        self._late_at = 0.0
        self._collector = collector
        if watchdog_s:
            loop.call_later(BEAT_S, self._beat, _monotonic() + BEAT_S)
        loop.set_exception_handler(self._loop_failed)
        mark_loop_thread(True)
        sys.setswitchinterval(SWITCH_INTERVAL_S)

    def now(self) -> float:
        """Read the wall clock (Unix seconds)."""
        return _time()

    def monotonic(self) -> float:
        """Read the monotonic clock (seconds)."""
        return _monotonic()

    def random(self) -> float:
        """From Python's generator, seeded by the system."""
        return random.random()

    def process(self) -> tuple[int, int]:
        """From the system."""
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                return os.getpid(), int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return os.getpid(), 0

    def usage(self) -> tuple[float, float, int]:
        """From the system."""
        used = os.times()
        try:
            return used.user, used.system, len(os.listdir("/proc/self/fd"))
        except OSError:
            return used.user, used.system, 0

    def worked(self) -> float:
        """Read the thread's clock, on the loop's thread."""
        return time.thread_time()

    def is_late(self) -> bool:
        """By the clock: who was kept from the processor is late as well."""
        return _monotonic() > self._late_at

    def rest(self) -> None:
        """Sleep for `REST_S`."""
        time.sleep(REST_S)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Run a timer of the loop. What it raises ends the worker, as what a turn raises does."""
        return self._loop.call_later(delay_s, self._ring, callback)

    def watch(self, descriptor: int, callback: Callable[[], None], expects: Callable[[], bool]) -> None:
        """By the loop's poll, and where that is late, before a turn."""
        self._watched.append((callback, expects))
        self._loop.add_reader(descriptor, self._ring, callback)

    def _ring(self, callback: Callable[[], None]) -> None:
        begun = self._begin()
        try:
            callback()
        except Exception as error:
            log.exception("a callback failed")
            self.actor_failed(getattr(callback, "__qualname__", callback), error)
        if self._watchdog_s:
            self._look(begun, callback)

    def _begin(self) -> float:
        """Begin to work, behind what the collector takes; the time from which it is reckoned who is late."""
        now = _monotonic()
        if self._collector is not None and self._collector.look(now):
            now = _monotonic()
        self._late_at = now + TURN_S
        return now

    def _look(self, begun: float, who: object) -> None:
        """Log a turn that took long: everything else on the loop has waited meanwhile, heartbeats too."""
        took_s = _monotonic() - begun
        if took_s > self._watchdog_s:
            name = getattr(who, "__qualname__", None) or type(who).__name__
            log.warning("a turn of %s took %.1f ms", name, took_s * 1000)

    def _beat(self, expected_at: float) -> None:
        """Log that the loop comes back late: some turn of it was long, of actors, timers or sockets."""
        now = _monotonic()
        if now - expected_at > self._watchdog_s:
            log.warning("the loop was %.1f ms late", (now - expected_at) * 1000)
        self._loop.call_later(BEAT_S, self._beat, now + BEAT_S)

    def wake(self, turn: Turn) -> None:
        """Put `turn` at the end of the line."""
        if _thread_id() == self._thread_id:
            self._line.append(turn)
            if not self._is_serving:
                self._is_serving = True
                self._loop.call_soon(self._serve)
        else:
            try:
                self._loop.call_soon_threadsafe(self.wake, turn)
            except RuntimeError:
                log.debug("the loop is closed; a message to %s has no reader", turn)

    def _serve(self) -> None:
        line = self._line
        begun = self._begin()
        if begun - self._served_at > LOOK_S:
            for callback, expects in self._watched:
                if expects():
                    self._ring(callback)
        until = begun + TURN_S
        while line:
            self._take(line.popleft())
            if line and _monotonic() > until:
                self._loop.call_soon(self._serve)
                break
        else:
            self._is_serving = False
        self._served_at = _monotonic()

    def _take(self, turn: Turn) -> None:
        """One turn. What it raises ends the worker."""
        begun = _monotonic() if self._watchdog_s else 0.0
        try:
            if isinstance(turn, LoopActor):
                turn.take_turn()  # as below, but compiled code knows where this one is, and needs not look for it
            else:
                turn.take_turn()
        except Exception as error:
            log.exception("a turn failed")
            self.actor_failed(turn, error)
        if begun:
            self._look(begun, turn)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something raised in a callback that is not ours to call: a socket's, or a task.

        The system's own errors (a connection that broke, descriptors that ran out) end that socket, no more.
        """
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            log.warning("%s: %r", context.get("message"), error)
            return
        log.error("%s", context.get("message"), exc_info=error)
        self.actor_failed(context.get("protocol") or context.get("task") or "a callback of the loop", error)

    def actor_failed(self, who: object, error: BaseException) -> None:
        """Report the first failure; the worker ends on it."""
        if not self._has_failed:
            self._has_failed = True
            if threading.get_ident() == self._thread_id:
                self._on_failure(who, error)
            else:
                self._loop.call_soon_threadsafe(self._on_failure, who, error)

    def start_blocking(self, actor_class: type[pykka.ThreadingActor], *arguments: Any) -> pykka.ActorRef[Any]:
        """On a thread of its own."""
        return actor_class.start(self, *arguments)
