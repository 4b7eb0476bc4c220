"""One timer for all that becomes due in a shard: set to the next event, and set anew when one comes before it."""

from collections.abc import Callable
from typing import Final

from actors.runtime.contract import Runtime, Timer
from storage.queue_state import NEVER

TIMER_MAX_S: Final = 1.0
"""A timer is checked this often, so that a jump of the wall clock makes nothing late by more."""


class Alarm:
    """Calls `ring` at `at` (Unix seconds, `NEVER`: it is not set), or up to `TIMER_MAX_S` from when it was set."""

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
        """It is not set any more."""
        self._timer = None
        self.at = NEVER
