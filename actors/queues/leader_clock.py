"""The leader's clock: follows the wall clock, never goes back, and never stands still. A machine.

Times in a log never go back. When the wall clock is set back (or a restart, or a new leader, finds its own behind the
log), this clock goes on from where it was at the pace of the monotonic clock until the wall clock has caught up.
"""


class LeaderClock:
    """`last` is the log's last time. All times are seconds: Unix time, but for `monotonic`."""

    def __init__(self, last: float) -> None:
        self._last = last
        self._base = last
        self._base_monotonic: float | None = None

    def now(self, wall: float, monotonic: float) -> float:
        """The time, given what the two clocks say.

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
