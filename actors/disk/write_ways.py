"""The ways of a journal's writes to the disk: the system's, a lane's, and the loop's own. A part of the LogWriter.

A write is begun here and finished by the system (`AsyncWrites`), and nobody waits for the disk. Where the system can't,
or is slow to begin one, a `DiskLane` waits for it, or the loop does where that is quicker: `write_place` decides.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from actors.disk.write_place import QUICK_S, Place, WritePlace, own_seconds
from actors.messages.disk import BytesWritten, WriteBytes
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToDiskLane
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from storage.disk import AsyncWrites
from storage.journal_writer import Write

log = logging.getLogger("quorate.disk")


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
        used = writes.used()
        is_begun = writes.start(write.file, write.offset, write.data, write.entry_count)
        after = self._runtime.monotonic()
        seconds = after - now
        if seconds > QUICK_S:
            seconds = own_seconds(seconds, used, writes.used())
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
