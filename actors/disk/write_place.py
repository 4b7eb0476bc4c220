"""Where the next write waits for the disk: right here on the loop, or on a lane, so that the loop goes on. A machine.

To hand a write to a lane and to hear of it costs two thread switches, some 30 us, as much as a third of a quick write.
Where few records are written, nobody else has to be served meanwhile, and the disk has been quick for a while, the
loop waits for it itself. One slow write, here or on a lane, and the lane has them again; the more often that happens
the longer, up to `PARDONED` quick writes.

| state | write on a lane | write on the loop |
|---|---|---|
| doubtful: fewer quick writes in a row than are asked for | the only place; a quick one counts | |
| trusted | too much to write, or others wait: counts as above | a slow one: doubtful, and twice as many are asked for |
"""

from typing import Final

RECORDS_MAX: Final = 64
"""With more records more clients wait, who could be read from meanwhile: from there on the lane is as quick.

64 connections do 6 to 10 % more so than with a bound of 16, and 256 as many (bench.throughput, alternately, 9 rounds).
"""

BYTES_MAX: Final = 64 << 10
"""A larger write takes long on any disk."""

QUICK_S: Final = 0.001
"""A write that took longer was slow. Through a lane, that is some 0.1 to 0.3 ms on a disk that loses nothing."""

ASKED_MIN: Final = 16
"""Quick writes in a row before the loop waits for the first time."""

PARDONED: Final = 4096
"""After so many quick writes in a row what was slow before is forgotten: a second of load, about."""


class WritePlace:
    """One journal's. Seconds are of the monotonic clock."""

    def __init__(self) -> None:
        self._quick = 0
        self._asked = ASKED_MIN

    def is_here(self, records: int, size: int, *, others_wait: bool) -> bool:
        """Whether a write of so many records and bytes is waited for on the loop."""
        return not others_wait and records <= RECORDS_MAX and size <= BYTES_MAX and self._quick >= self._asked

    def took(self, seconds: float, *, was_here: bool) -> None:
        """A write is done."""
        if seconds <= QUICK_S:
            self._quick += 1
            if self._quick >= PARDONED:
                self._asked = ASKED_MIN
            return
        self._quick = 0
        if was_here:
            self._asked *= 2
