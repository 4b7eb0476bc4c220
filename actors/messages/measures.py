"""What a worker measures of itself: plain numbers in fixed buckets, which cost a request some tens of nanoseconds."""

from typing import Any, Final

from quorate.node_replies import RECORD_BOUNDS, SECOND_BOUNDS

_BOUNDS: Final[tuple[float, ...]] = SECOND_BOUNDS


def bucket_of(seconds: float) -> int:
    """Which of the buckets of seconds it falls into."""
    return _bucket(_BOUNDS, seconds)


def _bucket(bounds: tuple[float, ...], value: float) -> int:
    """Find the first whose bound it does not pass. Most are in the first few: a search would cost more."""
    at = 0
    for bound in bounds:
        if value <= bound:
            return at
        at += 1
    return at


class Histogram:
    """How many values did not pass each of `bounds`, and more than the last; `total`: their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECOND_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        """One more."""
        self.add(_bucket(self.bounds, value), value)

    def add(self, bucket: int, value: float) -> None:
        """One more, by whom it is known already which bucket it falls into."""
        self.counts[bucket] += 1
        self.total += value

    @property
    def told(self) -> dict[str, Any]:
        """As a reply has it."""
        return {"counts": list(self.counts), "sum": round(self.total, 6)}


def of_records() -> Histogram:
    """For counts of records."""
    return Histogram(RECORD_BOUNDS)


class ActionCounts:
    """Of one action: how often it was `done`, what it was refused for, and how long it took when it did not wait.

    `may_wait`: a request for it may have a `wait`.
    """

    __slots__ = ("done", "may_wait", "refused", "seconds")

    def __init__(self, *, may_wait: bool = False) -> None:
        self.may_wait = may_wait
        self.done = 0
        self.refused: dict[str, int] = {}
        self.seconds = Histogram()

    def refuse(self, error: str) -> None:
        """Count a refusal with this word."""
        self.refused[error] = self.refused.get(error, 0) + 1

    @property
    def results(self) -> dict[str, int]:
        """How often each came out."""
        return {**({"ok": self.done} if self.done else {}), **self.refused}
