"""A shard's time: the clock that its records go by, and the timer for what becomes due."""

from collections.abc import Callable
from typing import Final

from actors.runtime.contract import Runtime, Timer
from storage.queue_state import NEVER

TIMER_MAX_S: Final = 1.0
"""A timer is checked this often, so that a jump of the wall clock makes nothing late by more."""


class Alarm:
    """One timer for all: set to the next event, and set anew when one comes before it.

    It calls `ring` at `at` (Unix seconds, `NEVER`: it is not set), or up to `TIMER_MAX_S` from when it was set.
    """

    def __init__(self, runtime: Runtime, ring: Callable[[], None]) -> None:
        self.at = NEVER
        self._runtime = runtime
        self._ring = ring
        self._timer: Timer | None = None

    def set(self, at: float, now: float) -> None:
        """Ring at `at`, and not at what it was set to before; it is `now`."""
        if self._timer is not None:
            self._timer.cancel()
        self.at = at
        self._timer = self._runtime.call_later(min(max(at - now, 0.0), TIMER_MAX_S), self._ring)

    def rang(self) -> None:
        """Forget it: it is not set any more."""
        self._timer = None
        self.at = NEVER


class LeaderClock:
    """The leader's: it follows the wall clock, never goes back, and never stands still. A machine.

    Times in a log never go back. When the wall clock is set back (or a restart, or a new leader, finds its own behind
    the log), this clock goes on from where it was at the pace of the monotonic clock until the wall clock has caught
    up. `last` is the log's last time. All times are seconds: Unix time, but for `monotonic`.
    """

    def __init__(self, last: float) -> None:
        self._last = last
        self._base = last
        self._base_monotonic: float | None = None

    def now(self, wall: float, monotonic: float) -> float:
        """Tell the time, given what the two clocks say.

        Reckoned from the last moment at which the wall clock was ahead: to add up many short times would run fast, by
        what each of the sums is rounded.
        """
        if self._base_monotonic is None:
            self._base_monotonic = monotonic
        reckoned = self._base + (monotonic - self._base_monotonic)
        if wall >= reckoned:
            self._base, self._base_monotonic = wall, monotonic
            reckoned = wall
        self._last = max(self._last, reckoned)
        return self._last
