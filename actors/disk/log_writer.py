"""LogWriter: makes entries durable, in the shard's journal. Hosts the `JournalWriter`; nobody else writes there.

A write is begun here and finished by the system (`AsyncWrites`), and nobody waits for the disk. Where the system can't,
or is slow to begin one, a `DiskLane` waits for it, or the loop does where that is quicker: `write_place` decides.
Several may be under way at once, and count in order.

With `flush_interval_s` a write is left to the system at once, here on the loop (microseconds, into its cache), and a
lane flushes every so often: that survives the process's death, and a power cut loses what came after the last flush.
"""

import logging
from collections import deque
from typing import Any, Final

import pykka

from actors.disk.write_place import Place, WritePlace
from actors.messages.disk import (
    BytesWritten,
    EntriesWritten,
    ErrandFailed,
    FileFlushed,
    FlushFile,
    JournalSpace,
    Recycle,
    RunErrand,
    SegmentReady,
    WriteBytes,
    WriteEntries,
)
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from storage.disk import AsyncWrites
from storage.entry import StoredEntry
from storage.journal_writer import JournalWriter, Write

log = logging.getLogger("quorate.disk")

RETRY_S: Final = 0.7
"""How often a full disk is asked again for a segment; not in step with LMDB's tries (checkpointing.py)."""


class LogWriter(LoopActor):
    """Owns a journal that has begun, and the ways to the disk: `lanes`, and `async_writes` where the system has them.

    At most `writes_max` writes are under way.
    """

    def __init__(
        self,
        runtime: Runtime,
        journal: JournalWriter,
        lanes: "list[pykka.ActorRef[Any]]",
        flush_interval_s: float | None,
        async_writes: AsyncWrites | None = None,
        writes_max: int = 1,
    ) -> None:
        super().__init__(runtime)
        self._journal = journal
        self._lanes = deque(lanes)
        self._async_writes = async_writes
        self._writes_max = writes_max
        self._flush_interval_s = flush_interval_s
        self._is_flush_due = False
        self._is_flushing = False
        self._is_blocked = False
        self._is_space_short = False
        self._entries: deque[StoredEntry] = deque()
        self._others_wait = True
        self._place = WritePlace(has_async=async_writes is not None)
        self._sent: dict[int, float] = {}
        self._begun: dict[int, Write] = {}
        self._replicator: pykka.ActorRef[Any]
        self.handlers = {
            WriteEntries: self._write_entries,
            BytesWritten: self._bytes_written,
            FileFlushed: self._file_flushed,
            Recycle: self._recycle,
            SegmentReady: self._segment_ready,
            ErrandFailed: self._errand_failed,
        }

    def attach(self, replicator: "pykka.ActorRef[Any]") -> None:
        """Whom it tells; called by the assembly before any message."""
        self._replicator = replicator

    def on_start(self) -> None:
        """The system says when it has finished something."""
        if self._flush_interval_s is None:
            by = "a thread and the loop wait" if self._async_writes is None else "the system writes by itself"
            log.info("the journal: %s", by)
        if self._async_writes is not None:
            self.runtime.watch(self._async_writes.descriptor, self._some_finished)

    def _write_entries(self, message: WriteEntries) -> None:
        self._entries.extend(message.entries)
        self._others_wait = message.others_wait
        self._write()

    def _bytes_written(self, message: BytesWritten) -> None:
        write = message.write
        self._place.took(Place.LANE, self.runtime.monotonic() - self._sent.pop(write.entry_count))
        self._completed(write)
        self._write()

    def _file_flushed(self, message: FileFlushed) -> None:
        self._is_flushing = False
        self._journal.flushed(message.file, message.end)
        self._write()
        if self._journal.written() is not None:
            self._flush_later()  # what was written meanwhile: another write, which would see to it, may never come

    def _recycle(self, message: Recycle) -> None:
        self._journal.recycle(message.trans_id)
        self._send_errand()

    def _segment_ready(self, message: SegmentReady) -> None:
        self._journal.errand_done(message.segment)
        if self._is_space_short:
            self._is_space_short = False
            self._replicator.tell(JournalSpace(self._journal.room_bytes, None))
        self._write()

    def _write(self) -> None:
        journal = self._journal
        while self._entries and journal.under_way < self._writes_max:
            write = journal.place(self._entries)
            if write is None:
                self._wait_for_segment()
                return
            if self._flush_interval_s is None:
                self._write_durably(write)
            else:
                write.file.write_at(write.offset, write.data)
                self._completed(write)
                self._flush_later()
        if journal.is_short:
            self._send_errand()

    def _write_durably(self, write: Write) -> None:
        begun = self.runtime.monotonic()
        is_alone = self._journal.under_way == 1
        size = len(write.data)
        place = self._place.choose(begun, write.records, size, is_alone=is_alone, others_wait=self._others_wait)
        if place is Place.LOOP:
            write.file.write_durably_at(write.offset, write.data)
            self._place.took(place, self.runtime.monotonic() - begun)
            self._completed(write)
        elif place is Place.LANE or not self._begin(write, begun):
            self._to_lane(write, begun)

    def _begin(self, write: Write, now: float) -> bool:
        """Whether the system has it now."""
        writes = self._async_writes
        is_begun = writes is not None and writes.start(write.file, write.offset, write.data, write.entry_count)
        after = self.runtime.monotonic()
        self._place.begun(after, after - now)
        if is_begun:
            self._begun[write.entry_count] = write
        return is_begun

    def _some_finished(self) -> None:
        finished = [] if self._async_writes is None else self._async_writes.finished()
        if self.has_ended:
            return
        for entry_count, is_durable in finished:
            write = self._begun.pop(entry_count)
            if is_durable:
                self._completed(write)
                continue
            log.warning("the system gave up a write of %d bytes: a thread writes it again", len(write.data))
            now = self.runtime.monotonic()
            self._place.failed(now)
            self._to_lane(write, now)  # which says what is wrong if that fails, too
        self._write()

    def _to_lane(self, write: Write, now: float) -> None:
        self._sent[write.entry_count] = now
        self._next_lane().tell(WriteBytes(write, self.actor_ref))

    def _completed(self, write: Write) -> None:
        durable = self._journal.completed(write)
        if durable is not None:
            self._replicator.tell(EntriesWritten(durable, self._journal.room_bytes))

    def _next_lane(self) -> "pykka.ActorRef[Any]":
        self._lanes.rotate(1)
        return self._lanes[0]

    def _wait_for_segment(self) -> None:
        """The segment is full: the next one is taken when it is ready, and all of this one on disk."""
        self._send_errand()
        if self._flush_interval_s is not None:
            self._flush()

    def _send_errand(self) -> None:
        if self._is_blocked and not self._journal.has_reusable:
            return
        errand = self._journal.errand()
        if errand is not None:
            self._next_lane().tell(RunErrand(errand, self.actor_ref))

    def _errand_failed(self, message: ErrandFailed) -> None:
        self._journal.errand_failed()
        self._is_space_short = True
        self._replicator.tell(JournalSpace(0 if self._entries else self._journal.room_bytes, message.reason))
        if not self._is_blocked:
            self._is_blocked = True  # each try writes until the disk is full: not more often than this
            self.runtime.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._is_blocked = False
        if not self.has_ended:
            self._send_errand()

    def _flush_later(self) -> None:
        if not self._is_flush_due and self._flush_interval_s is not None:
            self._is_flush_due = True
            self.runtime.call_later(self._flush_interval_s, self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        unflushed = self._journal.written()
        if unflushed is not None and not self._is_flushing and not self.has_ended:
            self._is_flushing = True
            self._lanes[0].tell(FlushFile(*unflushed, self.actor_ref))
