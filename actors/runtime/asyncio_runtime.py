"""The real runtime: one event loop (uvloop) of a worker process; and Python's garbage collector, in turns of it.

Actors that have messages stand in a line. One callback on the loop serves the line until it is empty or has used
`TURN_S`, and then lets the sockets have their turn before it goes on, so neither starves the other.

`Collector`: the garbage collector in pieces that a turn of the loop has time for. By itself it looks through young
objects when so many more were made than ended since it last did. While a crowd's requests come and those of the crowd
before end, that is not for long: then it looked through 47,000 of them at once, for 16 ms. So it is asked every now
and then how many are young, and looks through them when they are a piece; through those that have stayed, once more,
when they are one. To ask touches all that are young, and took a follower 7 % of its time when it did so every 5 ms;
so it asks when they may have become a piece since, by what the process has worked.

What has stayed twice is old, and not looked through any more: that would take as long as all that is live. The node's
own objects end without it: none of them points to itself in a circle, and nor does anything of a client's connection,
with TLS or without, once it is gone.
"""

import asyncio
import gc
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
from actors.runtime.contract import STILL_S, TURN_S, Runtime, Timer, Turn
from actors.runtime.loop_actor import LoopActor

PIECE: Final = 4_000
"""So many objects are looked through at a time, or fewer, where that took longer than `GOAL_S`: a list of a thousand
takes as long as a thousand objects."""

PIECE_MIN: Final = 250

MIDDLE: Final = 1_000
"""As `PIECE`, to begin with, of those that have stayed: what stays longest are lists, of blocks and of stretches."""

GOAL_S: Final = 0.0005

EVERY_S: Final = 0.005
GROWTH: Final = 1_500
"""So many objects that stay are made at most while the process works for so long: a busy loop's were counted."""


log = logging.getLogger("quorate.runtime")

SWITCH_INTERVAL_S: Final = 0.0001
"""How long a busy thread may keep the interpreter from the others, set for the whole process.

Python's 5 ms would delay each flush by that. And where the loop lets go of the interpreter as often as that by itself
(see `TURN_S`), a waiting thread never asks for it in earnest, and starves.
"""

REST_S: Final = 0.0002
"""How long a thread beside the loop sleeps when it rests: some 5 to 10 times what it computed before."""

PULSE_S: Final = 0.05
"""How often the loop's coming back is noted: often enough that a stop of `STILL_S` is never missed."""

BEAT_S: Final = 0.005
"""How often it is looked at whether the loop comes back in time, where somebody looks."""

LOOK_S: Final = 0.0005
"""Where the loop has had other work for longer, what is watched is looked at before actors have their turn: it would
come to it behind that turn."""

_monotonic: Final = time.monotonic

_time: Final = time.time

_thread_id: Final = threading.get_ident


class Collector:
    """One process's. `begin`: from then on nothing is looked through but by `look`. `clock`: monotonic seconds;
    `worked`: seconds of processor time that the process has had."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._worked = worked
        self._look_at = 0.0
        self._look_at_worked = 0.0
        self._is_middle_full = False
        self._young_max = PIECE
        self._middle_max = MIDDLE

    def begin(self) -> None:
        """Take the collector over."""
        gc.disable()

    def look(self, now: float) -> bool:
        """Look through a piece, if there is one, `now` (monotonic seconds); whether there was. Called whenever the loop
        works."""
        if now < self._look_at:
            return False
        worked = self._worked()
        if worked < self._look_at_worked:  # so much work takes as much time at least
            self._look_at = now + self._look_at_worked - worked
            return False
        if self._is_middle_full:
            self._is_middle_full = False
            self._middle_max = self._look_through(1, self._middle_max)  # and what is young, with them
            self._wait(now, worked, self._young_max)
            return True
        room = self._young_max - len(gc.get_objects(generation=0))
        has_piece = room <= min(GROWTH, self._young_max // 2)
        if has_piece:
            self._young_max = self._look_through(0, self._young_max)
            self._is_middle_full = len(gc.get_objects(generation=1)) >= self._middle_max
            room = 0 if self._is_middle_full else self._young_max
        self._wait(now, worked, room)
        return has_piece

    def _wait(self, now: float, worked: float, room: int) -> None:
        """Look again when the process may have made so many objects."""
        wait_s = EVERY_S * max(room / GROWTH, 1.0)
        self._look_at, self._look_at_worked = now + wait_s, worked + wait_s

    def _look_through(self, generation: int, piece: int) -> int:
        """Look through what is as young as that; how large the next piece may be."""
        begun = self._clock()
        gc.collect(generation)
        took_s = self._clock() - begun
        return max(int(piece * GOAL_S / took_s), PIECE_MIN) if took_s > GOAL_S else min(piece + piece // 4, PIECE)


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
        self._pulsed_at = _monotonic()
        self._still_until = 0.0
        loop.call_later(PULSE_S, self._pulse)
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

    def _pulse(self) -> None:
        """Note that the loop comes back; sockets were read before this timer, and are for a while behind a stop."""
        now = _monotonic()
        if now - self._pulsed_at > STILL_S:
            self._still_until = now + STILL_S
        self._pulsed_at = now
        self._loop.call_later(PULSE_S, self._pulse)

    def stood_still(self) -> bool:
        """By the clock: what was not read for so long since the last pulse, or while a stop's sockets are read."""
        now = _monotonic()
        return now < self._still_until or now - self._pulsed_at > STILL_S

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
