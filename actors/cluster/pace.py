"""How fast a node that is behind may pull: a bucket that fills with time. A machine."""


class Pace:
    """`records_per_s` records (or rows of a snapshot) a second, at most a fifth of a second's worth at once, or one.

    Times are monotonic seconds.
    """

    def __init__(self, records_per_s: int, now: float) -> None:
        self._records_per_s = records_per_s
        self._allowance = float(records_per_s)
        self._at = now

    def allowed(self, now: float) -> float:
        """How many records may be pulled now."""
        passed = max(now - self._at, 0.0)
        self._at = now
        self._allowance = min(self._allowance + passed * self._records_per_s, max(self._records_per_s / 5, 1.0))
        return self._allowance

    def spend(self, records: int) -> None:
        """So many were pulled."""
        self._allowance -= records
