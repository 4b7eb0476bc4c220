"""A runtime that a test cranks by hand: time passes, timers ring and actors have their turns when the test says so."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pykka

from actors.runtime.contract import Runtime, Turn


class CrankedTimer:
    """A callback for its time."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Not any more."""
        self.callback = None


class CrankedRuntime(Runtime):
    """Begins at 100 s by the monotonic clock, and 1,800,000,000 s by the other."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 100.0
        self.set_back_s = 0.0
        self.rested = 0
        self.late_after: int | None = None
        self.watched: dict[int, Callable[[], None]] = {}
        self.failures: list[BaseException] = []
        self._turns: deque[Turn] = deque()
        self._timers: list[CrankedTimer] = []
        self._asked_late = 0

    def now(self) -> float:
        """The wall clock."""
        return 1_799_999_900.0 + self.time - self.set_back_s

    def monotonic(self) -> float:
        """The other."""
        return self.time

    def random(self) -> float:
        """No dice."""
        return 0.5

    def process(self) -> tuple[int, int]:
        """Always the same."""
        return 1, 0

    def usage(self) -> tuple[float, float, int]:
        """Always the same."""
        return 0.0, 0.0, 0

    def worked(self) -> float:
        """As the monotonic clock."""
        return self.monotonic()

    def is_late(self) -> bool:
        """Never, or whenever it was asked as often as `late_after` says."""
        if self.late_after is None:
            return False
        self._asked_late += 1
        return self._asked_late % self.late_after == 0

    def rest(self) -> None:
        """Nobody else is there; counted in `rested`."""
        self.rested += 1

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> CrankedTimer:
        """When `crank` gets there."""
        timer = CrankedTimer(self.time + delay_s, callback)
        self._timers.append(timer)
        return timer

    @property
    def waiting_timers(self) -> int:
        """Count those that are to ring."""
        return sum(timer.callback is not None for timer in self._timers)

    def watch(self, descriptor: int, callback: Callable[[], None], expects: Callable[[], bool]) -> None:
        """Noted in `watched`."""
        self.watched[descriptor] = callback

    def wake(self, turn: Turn) -> None:
        """At the next crank."""
        self._turns.append(turn)

    def actor_failed(self, who: object, error: BaseException) -> None:
        """Noted."""
        self.failures.append(error)

    def start_blocking(self, actor_class: type[pykka.ThreadingActor], *arguments: Any) -> pykka.ActorRef[Any]:
        """Not here: blocking actors are tested by their `on_receive`."""
        raise AssertionError("a blocking actor is tested by its on_receive")

    def crank(self, seconds: float = 0.0) -> None:
        """Let all turns be taken, and so much time pass, with every timer at its moment."""
        until = self.time + seconds
        while True:
            while self._turns:
                self._turns.popleft().take_turn()
            assert not self.failures, self.failures
            due = [t for t in self._timers if t.callback is not None and t.at <= until]
            if not due:
                break
            timer = min(due, key=lambda t: t.at)
            self._timers.remove(timer)
            self.time = max(self.time, timer.at)
            assert timer.callback is not None
            timer.callback()
        self.time = until


class Probe:
    """Stands for another actor: notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def tell(self, message: Any) -> None:
        """Noted."""
        self.told.append(message)

    def take(self, *kinds: type) -> list[Any]:
        """The messages of these kinds; all others stay."""
        found = [message for message in self.told if isinstance(message, kinds)]
        self.told = [message for message in self.told if not isinstance(message, kinds)]
        return found


def ref(probe: Probe) -> Any:
    """A probe where an actor's reference is wanted."""
    return probe
