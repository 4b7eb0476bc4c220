"""LogWriter: makes entries durable, in the shard's journal. A part of the Replicator, which hosts it.

It has the `JournalWriter`; nobody else writes there. A lane's answers go to the Replicator, whose table of messages
has `handlers`; what else is finished is told by a call, `heed`.

Several writes may be under way at once, on the `WriteWays` that there are, and count in order.

With `flush_interval_s` a write is left to the system at once, here on the loop (microseconds, into its cache), and a
lane flushes every so often: that survives the process's death, and a power cut loses what came after the last flush.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from actors.disk.write_ways import WriteWays
from actors.messages.disk import BytesWritten, ErrandFailed, FileFlushed, FlushFile, RunErrand, SegmentReady
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from storage.entry import StoredEntry
from storage.journal_writer import JournalWriter, Write

log = logging.getLogger("quorate.disk")

RETRY_S: Final = 0.7
"""How often a full disk is asked again for a segment; not in step with LMDB's tries (checkpointing.py)."""


class LogWriter:
    """Owns a journal that has begun, and the `ways` to the disk.

    At most `writes_max` writes are under way. `durable`: so many entries since the start are on the disk.
    """

    def __init__(
        self,
        runtime: Runtime,
        journal: JournalWriter,
        ways: WriteWays,
        flush_interval_s: float | None,
        writes_max: int = 1,
    ) -> None:
        self.runtime = runtime
        self.ways = ways
        self.durable = 0
        self.shortage: str | None = None
        self._journal = journal
        self._writes_max = writes_max
        self._flush_interval_s = flush_interval_s
        self._is_flush_due = False
        self._is_flushing = False
        self._is_blocked = False
        self._entries: deque[StoredEntry] = deque()
        self._others_wait = True
        self._host: LoopActor[Any]
        self._heed: Callable[[], None]
        self._heed_space: Callable[[], None]
        self.handlers: dict[type, Callable[[Any], None]] = {
            BytesWritten: self._bytes_written,
            FileFlushed: self._file_flushed,
            SegmentReady: self._segment_ready,
            ErrandFailed: self._errand_failed,
        }

    @property
    def room_bytes(self) -> int:
        """What the journal takes without asking for space, as long as nothing waits for that: 0 then."""
        return 0 if self.shortage is not None and self._entries else self._journal.room_bytes

    def begin(self, host: LoopActor[Any], heed: Callable[[], None], heed_space: Callable[[], None]) -> None:
        """From now on; the system says when it has finished something.

        `heed` is called when `durable` may have grown outside of `write`, and `heed_space` when `shortage` is told.
        """
        self._host = host
        self._heed = heed
        self._heed_space = heed_space
        if self._flush_interval_s is None:
            by = "the system writes by itself" if self.ways.has_async else "a thread and the loop wait"
            log.info("the journal: %s", by)
        self.ways.begin(host, self._some_finished)

    def write(self, entries: list[StoredEntry], *, others_wait: bool) -> None:
        """Make these entries (and cuts) durable, in order. Where that takes no time, `durable` has grown afterwards.

        `others_wait`: they are also on their way to other nodes, so the loop has something to do meanwhile.
        """
        self._entries.extend(entries)
        self._others_wait = others_wait
        self._write()

    def _bytes_written(self, message: BytesWritten) -> None:
        self._completed(self.ways.by_lane(message))
        self._write()
        self._heed()

    def _file_flushed(self, message: FileFlushed) -> None:
        self._is_flushing = False
        self._journal.flushed(message.file, message.end)
        self._write()
        if self._journal.written() is not None:
            self._flush_later()  # what was written meanwhile: another write, which would see to it, may never come
        self._heed()

    def recycle(self, trans_id: int) -> None:
        """LMDB has all records up to `trans_id`: the journal need not keep them."""
        self._journal.recycle(trans_id)
        self._send_errand()

    def _segment_ready(self, message: SegmentReady) -> None:
        self._journal.errand_done(message.segment)
        if self.shortage is not None:
            self.shortage = None
            self._heed_space()
        self._write()
        self._heed()

    def _write(self) -> None:
        journal = self._journal
        while self._entries and journal.under_way < self._writes_max:
            write = journal.place(self._entries)
            if write is None:
                self._wait_for_segment()
                return
            if self._flush_interval_s is None:
                if self.ways.write(write, is_alone=journal.under_way == 1, others_wait=self._others_wait):
                    self._completed(write)
            else:
                write.begun_at = self.runtime.monotonic()
                write.file.write_at(write.offset, write.data)
                self._completed(write)
                self._flush_later()
        if journal.is_short:
            self._send_errand()

    def _some_finished(self) -> None:
        written = self.ways.by_system()
        if self._host.has_ended:
            return
        for write in written:
            self._completed(write)
        self._write()
        self._heed()

    def _completed(self, write: Write) -> None:
        self.ways.place.seconds.note(self.runtime.monotonic() - write.begun_at)
        durable = self._journal.completed(write)
        if durable is not None:
            self.durable = durable

    def _wait_for_segment(self) -> None:
        """Take the next segment when it is ready, since this one is full, and all of it is on disk."""
        self._send_errand()
        if self._flush_interval_s is not None:
            self._flush()

    def _send_errand(self) -> None:
        if self._is_blocked and not self._journal.has_reusable:
            return
        errand = self._journal.errand()
        if errand is not None:
            self.ways.next_lane().tell(RunErrand(errand, self._host.actor_ref))

    def _errand_failed(self, message: ErrandFailed) -> None:
        self._journal.errand_failed()
        self.shortage = message.reason
        self._heed_space()
        if not self._is_blocked:
            self._is_blocked = True  # each try writes until the disk is full: not more often than this
            self.runtime.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._is_blocked = False
        if not self._host.has_ended:
            self._send_errand()

    def _flush_later(self) -> None:
        if not self._is_flush_due and self._flush_interval_s is not None:
            self._is_flush_due = True
            self.runtime.call_later(self._flush_interval_s, self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        unflushed = self._journal.written()
        if unflushed is not None and not self._is_flushing and not self._host.has_ended:
            self._is_flushing = True
            self.ways.first_lane.tell(FlushFile(*unflushed, self._host.actor_ref))
