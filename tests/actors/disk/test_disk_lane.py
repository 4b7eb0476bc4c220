"""A lane waits for the disk, and says when it is done."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from actors.messages.disk import (
    BytesWritten,
    ErrandFailed,
    FileFlushed,
    FlushFile,
    IdentitySaved,
    RunErrand,
    SaveIdentity,
    SegmentReady,
    WriteBytes,
)
from storage.journal_writer import begin_journal
from storage.vote_file import Identity, open_vote_file
from tests.actors.cranked import Probe, ref
from tests.actors.disk.entries import SEGMENT, entry, lane
from tests.storage.memory import MemoryFolder


def test_a_lane_says_that_it_is_done_when_it_is() -> None:
    folder, asker = MemoryFolder(), Probe()
    actor = lane(folder)
    file = folder.create("f", 4096)

    write: Any = SimpleNamespace(file=file, offset=0, data=b"x" * 512, entry_count=1)
    actor.on_receive(WriteBytes(write, ref(asker)))
    assert len(asker.take(BytesWritten)) == 1
    assert file.read_all()[:512] == b"x" * 512
    actor.on_receive(FlushFile(file, 512, ref(asker)))
    assert asker.take(FileFlushed) == [FileFlushed(file, 512)]
    actor.on_receive(SaveIdentity(Identity(9, 1, 7, 5, 2), ref(asker)))
    assert asker.take(IdentitySaved)[0].identity.voted_for == 2
    assert open_vote_file(folder, Identity(0, 1, 8)).identity.vote_id == 5


def test_a_lane_on_a_full_disk_says_so() -> None:
    folder, asker = MemoryFolder(), Probe()
    actor = lane(folder)
    journal = begin_journal(folder, SEGMENT, writes_are_durable=True, stored=0, last_trans_id=0)
    for number in range(1, 20):  # until the segment and the one that was ready are full
        write = journal.place(deque([entry(number, 2000)]))
        if write is None:
            break
        journal.completed(write)
    errand = journal.errand()
    assert errand is not None
    folder.is_full = True
    actor.on_receive(RunErrand(errand, ref(asker)))
    assert len(asker.take(ErrandFailed)) == 1
    folder.is_full = False
    actor.on_receive(RunErrand(errand, ref(asker)))
    assert [ready.segment.number for ready in asker.take(SegmentReady)] == [errand.number]


def test_a_message_that_no_lane_knows_is_a_bug() -> None:
    with pytest.raises(KeyError):
        lane(MemoryFolder()).on_receive(object())
