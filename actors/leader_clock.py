"""The leader's clock: follows the wall clock, never goes back, and never stands still. A machine.

Times in a log never go back. When the wall clock is set back (or a restart finds it behind the log), this clock goes
on from where it was at the pace of the monotonic clock until the wall clock has caught up.
"""


class LeaderClock:
    """`last` is the log's last time. All times are seconds: Unix time, but for `monotonic`."""

    def __init__(self, last: float) -> None:
        self._last = last
        self._monotonic: float | None = None

    def now(self, wall: float, monotonic: float) -> float:
        """The time, given what the two clocks say."""
        passed = 0.0 if self._monotonic is None else monotonic - self._monotonic
        self._monotonic = monotonic
        self._last = max(wall, self._last + passed)
        return self._last
