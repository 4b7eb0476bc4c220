"""The log's writer: what is told when, and what a full disk does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.disk.log_writer import RETRY_S, LogWriter
from actors.disk.write_ways import ASKED_MIN, AVOIDED_S, WriteWays
from actors.messages.disk import (
    BytesWritten,
    ErrandFailed,
    FileFlushed,
    FlushFile,
    RunErrand,
    WriteBytes,
)
from actors.runtime.loop_actor import LoopActor
from storage.entry import StoredEntry
from storage.journal_writer import begin_journal
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.actors.disk.entries import SEGMENT, entry, lane
from tests.storage.memory import MemoryFolder, MemoryWrites


class Host(LoopActor[Any]):
    """Stands for the Replicator: hands on what lanes answer, and notes what it is told."""

    def __init__(self, runtime: CrankedRuntime, writer: LogWriter) -> None:
        super().__init__(runtime)
        self.writer = writer
        self.handlers = dict(writer.handlers)
        self.written: list[int] = []
        self.space: list[tuple[int, str | None]] = []
        writer.begin(self, self.note_written, self.note_space)

    def note_written(self) -> None:
        """How far the journal is durable, each time that it is further."""
        if self.writer.durable > max(self.written, default=0):
            self.written.append(self.writer.durable)

    def note_space(self) -> None:
        """The room that is left, and why there is no more."""
        self.space.append((self.writer.room_bytes, self.writer.shortage))


class Writer:
    """A LogWriter whose lane is a probe."""

    def __init__(
        self,
        flush_interval_s: float | None = None,
        segment_bytes: int = SEGMENT,
        writes: MemoryWrites | None = None,
        writes_max: int = 1,
    ) -> None:
        self.runtime, self.lane = CrankedRuntime(), Probe()
        self.told = 0
        self.folder = MemoryFolder()
        durable = flush_interval_s is None
        journal = begin_journal(self.folder, segment_bytes, writes_are_durable=durable, stored=0, last_trans_id=0)
        self.writer = LogWriter(
            self.runtime, journal, WriteWays(self.runtime, [ref(self.lane)], writes), flush_interval_s, writes_max
        )
        self.host = Host(self.runtime, self.writer)
        self.host.begin()
        self.runtime.crank()

    def write(self, *entries: StoredEntry, others_wait: bool = True) -> None:
        """As the Replicator does: it looks at once how far the log is durable."""
        self.writer.write(list(entries), others_wait=others_wait)
        self.host.note_written()
        self.runtime.crank()

    def tell(self, *messages: Any) -> None:
        """What a lane says."""
        for message in messages:
            self.host.actor_ref.tell(message)
        self.runtime.crank()

    def written(self) -> list[int]:
        """How many entries were said to be durable, each time since the last call."""
        said, self.told = self.host.written[self.told :], len(self.host.written)
        return said

    def space(self) -> list[tuple[int, str | None]]:
        """What was said about the journal's room since the last call."""
        said, self.host.space = self.host.space, []
        return said


def test_entries_are_durable_when_the_lane_says_so_and_gather_meanwhile() -> None:
    writer = Writer()
    writer.write(entry(1))
    [first] = writer.lane.take(WriteBytes)
    writer.write(entry(2))
    writer.write(entry(3))
    assert writer.lane.take(WriteBytes) == [], "one write at a time"
    assert writer.written() == []
    writer.tell(BytesWritten(first.write))
    assert writer.written() == [1]
    [second] = writer.lane.take(WriteBytes)
    writer.tell(BytesWritten(second.write))
    assert writer.written() == [3]


def test_small_writes_are_waited_for_on_the_loop_once_the_disk_was_quick_for_a_while() -> None:
    writer = Writer(segment_bytes=1 << 20)
    for number in range(1, ASKED_MIN + 1):
        writer.write(entry(number), others_wait=False)
        [write] = writer.lane.take(WriteBytes)
        writer.tell(BytesWritten(write.write))
    writer.written()
    writer.write(entry(ASKED_MIN + 1), others_wait=False)
    assert writer.lane.take(WriteBytes) == []
    assert writer.written() == [ASKED_MIN + 1]
    writer.write(entry(ASKED_MIN + 2), others_wait=True)
    [write] = writer.lane.take(WriteBytes)
    writer.write(entry(ASKED_MIN + 3), others_wait=False)
    assert writer.written() == [], "while a lane writes, the loop does not"
    writer.tell(BytesWritten(write.write))
    assert writer.written() == [ASKED_MIN + 3], "the lane has the one, and then the loop had the other"
    writer.write(entry(ASKED_MIN + 4), others_wait=True)
    [write] = writer.lane.take(WriteBytes)
    writer.runtime.time += 1  # it is slow
    writer.tell(BytesWritten(write.write))
    writer.write(entry(ASKED_MIN + 5), others_wait=False)
    assert len(writer.lane.take(WriteBytes)) == 1


class Begun:
    """A LogWriter whose writes the system finishes when the test says so, two at once."""

    def __init__(self, on_start: Callable[[int], bool] = lambda token: True) -> None:
        self.writes = MemoryWrites(on_start)
        self.writer = Writer(writes=self.writes, writes_max=2)

    def finish(self, token: int, *, is_durable: bool = True) -> None:
        self.writes.finish(token, is_durable=is_durable)
        self.writer.runtime.watched[self.writes.descriptor]()
        self.writer.runtime.crank()


def test_writes_that_the_system_finishes_count_in_order() -> None:
    begun = Begun()
    for number in (1, 2, 3):
        begun.writer.write(entry(number))
    assert list(begun.writes.under_way) == [1, 2], "no more than two at once"
    begun.finish(2)
    assert begun.writer.written() == []
    begun.finish(1)
    assert begun.writer.written() == [2]
    begun.finish(3)
    assert begun.writer.written() == [3]
    assert begun.writer.lane.take(WriteBytes) == []


def test_several_that_are_finished_at_once_are_told_once() -> None:
    begun = Begun()
    begun.writer.write(entry(1))
    begun.writer.write(entry(2))
    begun.writes.finish(1)
    begun.finish(2)
    assert begun.writer.written() == [2]


def test_a_write_that_the_system_gave_up_is_written_again_by_a_lane() -> None:
    begun = Begun()
    begun.writer.write(entry(1))
    begun.finish(1, is_durable=False)
    assert begun.writer.written() == []
    [again] = begun.writer.lane.take(WriteBytes)
    lane(begun.writer.folder).on_receive(again)
    begun.writer.runtime.crank()
    assert begun.writer.written() == [1]


def test_a_write_that_the_system_does_not_take_goes_to_a_lane() -> None:
    begun = Begun(lambda token: token != 1)
    begun.writer.write(entry(1))
    [write] = begun.writer.lane.take(WriteBytes)
    begun.writer.write(entry(2))
    begun.finish(2)
    assert begun.writer.written() == [], "the first is on its way"
    begun.writer.tell(BytesWritten(write.write))
    assert begun.writer.written() == [2]


def test_where_the_thread_was_kept_from_the_processor_the_system_has_the_next_write() -> None:
    def slow(token: int) -> bool:
        begun.writer.runtime.time += 0.02
        return True

    begun = Begun(slow)
    for count in range(1, 11):
        begun.writer.write(entry(count))
        begun.finish(count)
    assert begun.writer.written() == list(range(1, 11))
    assert begun.writer.lane.take(WriteBytes) == []


@pytest.mark.parametrize("works", [True, False])
def test_where_it_takes_long_to_begin_a_write_lanes_have_the_next(works: bool) -> None:
    def slow(token: int) -> bool:
        begun.writer.runtime.time += 0.03
        begun.writes.waited += not works
        begun.writes.worked_s += 0.03 * works
        return True

    begun = Begun(slow)
    for count in (1, 2):  # what the first did in that time has not been measured
        begun.writer.write(entry(count))
        begun.finish(count)
    begun.writer.write(entry(3))
    [write] = begun.writer.lane.take(WriteBytes)
    begun.writer.tell(BytesWritten(write.write))
    assert begun.writer.written() == [1, 2, 3]
    begun.writer.runtime.crank(AVOIDED_S + 0.1)
    begun.writer.write(entry(4))
    assert list(begun.writes.under_way) == [4]


def fill(writer: Writer) -> int:
    """Write until the writer asks for a segment that it does not need yet; how many entries that took."""
    for count in range(1, 100):
        writer.write(entry(count, 400))
        for write in writer.lane.take(WriteBytes):
            writer.tell(BytesWritten(write.write))
        if writer.lane.take(RunErrand):
            return count
    raise AssertionError("it never asked")


def test_a_full_disk_is_told_while_there_is_room_for_what_is_under_way_and_asked_again() -> None:
    writer = Writer()
    count = fill(writer)
    writer.tell(ErrandFailed("no space"))
    [(room_bytes, shortage)] = writer.space()
    assert shortage == "no space"
    assert room_bytes > SEGMENT // 4
    writer.write(entry(count + 1, 400))
    assert len(writer.lane.take(WriteBytes)) == 1, "there is room for it"
    assert writer.lane.take(RunErrand) == [], "each try fills the disk: not at once"
    writer.runtime.crank(RETRY_S)
    assert len(writer.lane.take(RunErrand)) == 1


def test_entries_that_wait_for_a_segment_are_written_when_the_disk_has_space_again() -> None:
    writer = Writer()
    count = fill(writer)
    many = [entry(count + n, 2000) for n in range(1, 9)]
    writer.write(*many)
    writer.tell(ErrandFailed("no space"))
    for write in writer.lane.take(WriteBytes):
        writer.tell(BytesWritten(write.write))
    assert writer.space() == [(0, "no space")]
    writer.runtime.crank(RETRY_S)
    [errand] = writer.lane.take(RunErrand)
    lane(writer.folder).on_receive(errand)
    writer.runtime.crank()
    assert [shortage for _, shortage in writer.space()] == [None]
    assert len(writer.lane.take(WriteBytes)) == 1


def test_a_segment_that_lmdb_frees_is_taken_at_once_on_a_full_disk() -> None:
    writer = Writer()
    count = fill(writer)
    writer.tell(ErrandFailed("no space"))
    writer.writer.recycle(count)
    assert [one.errand.reuse is not None for one in writer.lane.take(RunErrand)] == [True]


def test_with_an_interval_a_write_counts_at_once_and_is_flushed_later() -> None:
    writer = Writer(flush_interval_s=0.1)
    writer.write(entry(1))
    assert writer.written() == [1]
    assert writer.lane.take(FlushFile) == []
    writer.runtime.crank(0.1)
    [flush] = writer.lane.take(FlushFile)
    writer.tell(FileFlushed(flush.file, flush.end))
    writer.runtime.crank(1.0)
    assert writer.lane.take(FlushFile) == [], "nothing has come since"


def test_what_lmdb_has_makes_room(tmp_path: Path) -> None:
    writer = Writer()
    segments = len(writer.folder.files)
    last = 0
    for last in range(1, 20):
        writer.write(entry(last, 2000))
        for errand in writer.lane.take(RunErrand):
            lane(writer.folder).on_receive(errand)
        for write in writer.lane.take(WriteBytes):
            writer.tell(BytesWritten(write.write))
        writer.writer.recycle(last)
    assert len(writer.folder.files) <= segments + 2


def test_what_is_written_while_a_flush_is_under_way_is_flushed_though_nothing_follows() -> None:
    writer = Writer(flush_interval_s=0.1)
    writer.write(entry(1))
    writer.runtime.crank(0.11)
    [flush] = writer.lane.take(FlushFile)
    writer.write(entry(2))
    writer.runtime.crank(0.3)
    assert writer.lane.take(FlushFile) == [], "one at a time"
    writer.tell(FileFlushed(flush.file, flush.end))
    writer.runtime.crank(0.11)
    assert [one.end > flush.end for one in writer.lane.take(FlushFile)] == [True]
