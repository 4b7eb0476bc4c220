"""LogWriter: makes entries durable, in the shard's journal. Hosts the `JournalWriter`; nobody else writes there.

A write goes to a `DiskLane`, which waits for the disk; two are under way at once, and count in order. Small ones are
waited for here where that is quicker (`write_place`). With
`flush_interval_s` a write is left to the system at once, here on the loop (microseconds, into its cache), and a lane
flushes every so often: that survives the process's death, and a power cut loses what came after the last flush.
"""

from collections import deque
from typing import Any, Final

import pykka

from actors.disk.write_place import WritePlace
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
from storage.entry import StoredEntry
from storage.journal_writer import JournalWriter, Write

RETRY_S: Final = 0.7
"""How often a full disk is asked again for a segment; not in step with LMDB's tries (checkpointing.py)."""


class LogWriter(LoopActor):
    """Owns a journal that has begun, and the lanes to the disk."""

    def __init__(
        self,
        runtime: Runtime,
        journal: JournalWriter,
        lanes: "list[pykka.ActorRef[Any]]",
        flush_interval_s: float | None,
    ) -> None:
        super().__init__(runtime)
        self._journal = journal
        self._lanes = deque(lanes)
        self._lane_count = len(lanes)
        self._flush_interval_s = flush_interval_s
        self._is_flush_due = False
        self._is_flushing = False
        self._is_blocked = False
        self._is_space_short = False
        self._entries: deque[StoredEntry] = deque()
        self._others_wait = True
        self._place = WritePlace()
        self._sent: dict[int, float] = {}
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

    def _write_entries(self, message: WriteEntries) -> None:
        self._entries.extend(message.entries)
        self._others_wait = message.others_wait
        self._write()

    def _bytes_written(self, message: BytesWritten) -> None:
        sent_at = self._sent.pop(message.write.entry_count)
        self._place.took(self.runtime.monotonic() - sent_at, was_here=False)
        self._completed(message.write)
        self._write()

    def _file_flushed(self, message: FileFlushed) -> None:
        self._is_flushing = False
        self._journal.flushed(message.file, message.end)
        self._write()

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
        while self._entries and journal.under_way < self._lane_count:
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
        if is_alone and self._place.is_here(write.records, len(write.data), others_wait=self._others_wait):
            write.file.write_durably_at(write.offset, write.data)
            self._place.took(self.runtime.monotonic() - begun, was_here=True)
            self._completed(write)
        else:
            self._sent[write.entry_count] = begun
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
        if self.actor_ref.is_alive():
            self._send_errand()

    def _flush_later(self) -> None:
        if not self._is_flush_due and self._flush_interval_s is not None:
            self._is_flush_due = True
            self.runtime.call_later(self._flush_interval_s, self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        unflushed = self._journal.written()
        if unflushed is not None and not self._is_flushing and self.actor_ref.is_alive():
            self._is_flushing = True
            self._lanes[0].tell(FlushFile(*unflushed, self.actor_ref))
