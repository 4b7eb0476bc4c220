"""The ways of a journal's writes to the disk, and which of them the next write takes.

A write is begun here and finished by the system (`AsyncWrites`), and nobody waits for the disk. Where the system can't,
or is slow to begin one, a `DiskLane` waits for it, or the loop does where that is quicker: `WritePlace` decides.

`WritePlace` chooses, a machine:

| place | when | what it costs |
|---|---|---|
| SYSTEM | the system finishes writes that were begun (`AsyncWrites`), and beginning them is quick | some 20 us |
| LOOP | it has none; few records, nobody else is to be served, the disk was quick for a while | the loop waits |
| LANE | otherwise | two thread switches, some 30 us, a third of a quick write |

To begin a write takes little, but it may have to wait for a lock of the file system, or for room in the system's
queues, and the loop with it. One that took very long, a quarter of the time waited for, or one that failed, and lanes
have the writes for `AVOIDED_S`, each time twice as long. Waits and work count: what a busy machine's other processes
had of the time was once counted, too, and then a cluster's leader had lanes write most of the time, for a sixth of its
CPU. To tell them apart costs two system calls, so it is done only while starts were slow lately: the first slow one in
a while does not count.

If the loop waited for small writes that the system could finish, 4 connections would do 8 % more, 8 as much, 16 10 %
less and 64 5 % less (fsynced, medians of 22 alternating rounds).

One slow write on the loop or on a lane, and lanes have the writes until as many quick ones in a row as are asked for
have been seen there, up to `PARDONED`; after a slow one on the loop twice as many are asked for.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from actors.messages.disk import BytesWritten, WriteBytes
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToDiskLane
from actors.messages.measures import Histogram
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from storage.disk import AsyncWrites
from storage.journal_writer import Write

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

BEGUN_S: Final = 0.02
"""To begin a write takes 0.02 ms. Longer than this, and other clients and heartbeats notice each."""

WAITED_S: Final = 0.0002
"""To begin one took longer: the loop has waited."""

WAITED_SHARE: Final = 0.25
"""Of `WINDOW_S` the loop may wait so much, as it does while a busy disk's file system takes one write after the other.

A lane's two thread switches are work, and a wait is none.
"""

WINDOW_S: Final = 1.0
"""A window without a fault halves what a fault before has cost."""

AVOIDED_S: Final = 0.25
AVOIDED_MAX_S: Final = 64.0

log = logging.getLogger("quorate.disk")


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
        self._waited_s = 0.0
        self._window_at = -math.inf
        self._avoid_until = 0.0
        self._avoid_s = AVOIDED_S
        self._measured_until = -math.inf

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
        if now - self._window_at >= WINDOW_S:
            self._window_at, self._waited_s = now, 0.0
            self._avoid_s = max(self._avoid_s / 2, AVOIDED_S)
        if seconds > WAITED_S:
            self._waited_s += seconds
        if seconds > BEGUN_S or self._waited_s > WAITED_SHARE * WINDOW_S:
            self.failed(now)

    def is_measured(self, now: float) -> bool:
        """Whether the next start's own work is to be measured, a system call each: one was slow within `WINDOW_S`."""
        return now < self._measured_until

    def was_slow(self, now: float) -> None:
        """Note that a start took longer than `WAITED_S`. The first in a while was not measured and does not count."""
        self._measured_until = now + WINDOW_S

    def failed(self, now: float) -> None:
        """Note that the system gave a write up, or holds up the loop."""
        self._avoid_until = self._window_at = now + self._avoid_s
        self._waited_s = 0.0
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


class WriteWays:
    """Of one journal: `lanes`, and `writes` where the system has them. `place` also knows how long writes took."""

    def __init__(self, runtime: Runtime, lanes: Sequence[Mailbox[ToDiskLane]], writes: AsyncWrites | None) -> None:
        self.place = WritePlace(has_async=writes is not None)
        self._runtime = runtime
        self._lanes = deque(lanes)
        self._writes = writes
        self._sent: dict[int, float] = {}
        self._begun: dict[int, Write] = {}
        self._host: LoopActor[Any]

    @property
    def has_async(self) -> bool:
        """Whether the system finishes writes by itself."""
        return self._writes is not None

    def begin(self, host: LoopActor[Any], heed: Callable[[], None]) -> None:
        """From now on: a lane answers to `host`, and `heed` is called when the system has finished something."""
        self._host = host
        if self._writes is not None:
            self._runtime.watch(self._writes.descriptor, heed, lambda: bool(self._begun))

    def next_lane(self) -> Mailbox[ToDiskLane]:
        """By turns."""
        self._lanes.rotate(1)
        return self._lanes[0]

    @property
    def first_lane(self) -> Mailbox[ToDiskLane]:
        """Always the same, as long as none has its turn."""
        return self._lanes[0]

    def write(self, write: Write, *, is_alone: bool, others_wait: bool) -> bool:
        """Bring it to the disk; whether it is there already. `is_alone`: no other is under way.

        `others_wait`: it is also on its way to other nodes, so the loop has something to do meanwhile.
        """
        write.begun_at = begun = self._runtime.monotonic()
        place = self.place.choose(begun, write.records, len(write.data), is_alone=is_alone, others_wait=others_wait)
        if place is Place.LOOP:
            write.file.write_durably_at(write.offset, write.data)
            self.place.took(place, self._runtime.monotonic() - begun)
            return True
        if place is Place.LANE or not self._begin(write, begun):
            self._to_lane(write, begun)
        return False

    def _begin(self, write: Write, now: float) -> bool:
        """Whether the system has it now."""
        writes = self._writes
        if writes is None:
            return False
        used = writes.used() if self.place.is_measured(now) else None
        is_begun = writes.start(write.file, write.offset, write.data, write.entry_count)
        after = self._runtime.monotonic()
        seconds = after - now
        if seconds > WAITED_S:
            self.place.was_slow(after)
            seconds = 0.0 if used is None else own_seconds(seconds, used, writes.used())
        self.place.begun(after, seconds)
        if is_begun:
            self._begun[write.entry_count] = write
        return is_begun

    def _to_lane(self, write: Write, now: float) -> None:
        self._sent[write.entry_count] = now
        self.next_lane().tell(WriteBytes(write, self._host.actor_ref))

    def by_lane(self, message: BytesWritten) -> Write:
        """Note that a lane has written one."""
        write = message.write
        self.place.took(Place.LANE, self._runtime.monotonic() - self._sent.pop(write.entry_count))
        return write

    def by_system(self) -> list[Write]:
        """Those that the system has written since; what it gave up is written again."""
        written: list[Write] = []
        finished = [] if self._writes is None else self._writes.finished()
        if self._host.has_ended:
            return written
        for entry_count, is_durable in finished:
            write = self._begun.pop(entry_count)
            if is_durable:
                written.append(write)
                continue
            log.warning("the system gave up a write of %d bytes: a thread writes it again", len(write.data))
            now = self._runtime.monotonic()
            self.place.failed(now)
            self._to_lane(write, now)  # which says what is wrong if that fails, too
        return written
