"""Where the next write waits for the disk: with the system, on the loop, or on a lane's thread. A machine.

| place | when | what it costs |
|---|---|---|
| SYSTEM | the system finishes writes that were begun (`AsyncWrites`), and beginning them is quick | some 20 us |
| LOOP | it has none; few records, nobody else is to be served, the disk was quick for a while | the loop waits |
| LANE | otherwise | two thread switches, some 30 us, a third of a quick write |

To begin a write takes little, but it may have to wait for a lock of the file system, or for room in the system's
queues, and the loop with it. One that took very long, several that took long, or one that failed, and lanes have the
writes for `AVOIDED_S`, each time twice as long. Waits and work count: what a busy machine's other processes had of the
time was once counted, too, and then a cluster's leader had lanes write most of the time, for a sixth of its CPU.

If the loop waited for small writes that the system could finish, 4 connections would do 8 % more, 8 as much, 16 10 %
less and 64 5 % less (fsynced, medians of 22 alternating rounds).

One slow write on the loop or on a lane, and lanes have the writes until as many quick ones in a row as are asked for
have been seen there, up to `PARDONED`; after a slow one on the loop twice as many are asked for.
"""

from enum import Enum
from typing import Final

from actors.messages.measures import Histogram

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

BEGUN_S: Final = 0.005
"""To begin a write takes 0.02 ms. Longer than this, and other clients and heartbeats notice each."""

LONG_BEGUN_MAX: Final = 8
"""So many of `BEGUN_WINDOW` may take longer than `QUICK_S` to begin, as they do now and then on a busy machine."""

BEGUN_WINDOW: Final = 256

AVOIDED_S: Final = 1.0
AVOIDED_MAX_S: Final = 64.0


def own_seconds(seconds: float, before: tuple[int, float], after: tuple[int, float]) -> float:
    """Say how much of the `seconds` that a start took counts, by what its thread had used (`AsyncWrites.used`).

    Where it waited for nothing the rest was somebody else's: a lane's thread would not have had the processor, either.
    """
    return seconds if after[0] != before[0] else after[1] - before[1]


class Place(Enum):
    """Who waits for a write."""

    SYSTEM = "the system"
    LOOP = "the loop"
    LANE = "a lane"


class WritePlace:
    """One journal's. Seconds are of the monotonic clock. `has_async`: the system finishes writes that were begun.

    `seconds`: how long all writes took.
    """

    def __init__(self, *, has_async: bool) -> None:
        self.seconds = Histogram()
        self._has_async = has_async
        self._quick = 0
        self._asked = ASKED_MIN
        self._begun = 0
        self._long_begun = 0
        self._avoid_until = 0.0
        self._avoid_s = AVOIDED_S

    def choose(self, now: float, records: int, size: int, *, is_alone: bool, others_wait: bool) -> Place:
        """For a write of so many records and bytes. `is_alone`: none is under way.

        `others_wait`: other nodes are to be served meanwhile.
        """
        if self._has_async:
            return Place.SYSTEM if now >= self._avoid_until else Place.LANE
        is_small = records <= RECORDS_MAX and size <= BYTES_MAX
        may_wait = is_small and is_alone and not others_wait and self._quick >= self._asked
        return Place.LOOP if may_wait else Place.LANE

    def begun(self, now: float, seconds: float) -> None:
        """Note that the system was given a write, and took it or not; that took so long."""
        self._begun += 1
        self._long_begun += seconds > QUICK_S
        if seconds > BEGUN_S or self._long_begun > LONG_BEGUN_MAX:
            self.failed(now)
        elif self._begun % BEGUN_WINDOW == 0:
            self._long_begun = 0
            if self._begun >= PARDONED:
                self._avoid_s = AVOIDED_S

    def failed(self, now: float) -> None:
        """Note that the system gave a write up, or holds up the loop."""
        self._begun = self._long_begun = 0
        self._avoid_until = now + self._avoid_s
        self._avoid_s = min(2 * self._avoid_s, AVOIDED_MAX_S)

    def took(self, place: Place, seconds: float) -> None:
        """Note that a write on the loop or on a lane is done; it took so long."""
        if seconds <= QUICK_S:
            self._quick += 1
            if self._quick >= PARDONED:
                self._asked = ASKED_MIN
            return
        self._quick = 0
        if place is Place.LOOP:
            self._asked *= 2
