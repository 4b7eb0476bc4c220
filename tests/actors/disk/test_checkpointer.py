"""What the Checkpointer stores, trims and reads, and what it says of it."""

from typing import Any

import pytest

from actors.disk.checkpointer import Checkpointer, RetentionLimits
from actors.messages.blocks import DropBlocks, StoreBlocks
from actors.messages.checkpoints import (
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    DescribeHead,
    EntriesRead,
    HeadDescribed,
    LoadState,
    ReadEntries,
    ReadersMoved,
    ReadSnapshot,
    SnapshotRead,
)
from actors.messages.lifecycle import Attach
from actors.messages.log import StateLoaded
from storage.blocks import Block, Kept
from storage.errors import DiskFullError
from storage.log_store import LogStore
from storage.records import ReaderPosition
from storage.state import ShardState
from storage.trimming import Trim, TrimRows
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.actors.disk.entries import entry
from tests.storage.memory import MemoryTables


class Store:
    """A Checkpointer over tables in memory."""

    def __init__(self, log_records_max: int = 10) -> None:
        self.runtime, self.replicator, self.owner = CrankedRuntime(), Probe(), Probe()
        self.is_full = False
        self.store = LogStore(MemoryTables(self._before_commit), 0)
        self.actor = Checkpointer(self.runtime, self.store, RetentionLimits(log_records_max), ShardState, 1000)
        self.actor.on_receive(Attach(ref(self.replicator), ref(self.owner)))
        self.actor.on_receive(ReadersMoved({}))

    def _before_commit(self) -> None:
        if self.is_full:
            raise DiskFullError("no space")

    def checkpoint(self, *numbers: int) -> list[Any]:
        self.actor.on_receive(Checkpoint([entry(number) for number in numbers]))
        return self.replicator.take(Checkpointed, CheckpointFailed)


def test_entries_are_stored_once_and_it_is_said_up_to_where() -> None:
    store = Store()
    assert store.checkpoint(1, 2) == [Checkpointed(2, 0)]
    assert store.checkpoint(2, 3) == [Checkpointed(3, 0)], "the second has one that it had already"
    store.actor.on_receive(ReadEntries(2, 1, 100, 1 << 20))
    [read] = store.replicator.take(EntriesRead)
    assert (read.node_id, read.after, read.entries) == (2, 1, [entry(2).data, entry(3).data])


def test_without_space_nothing_is_stored_and_it_is_said() -> None:
    store = Store()
    store.is_full = True
    assert store.checkpoint(1) == [CheckpointFailed("no space")]
    store.is_full = False
    assert store.checkpoint(1) == [Checkpointed(1, 0)]


def test_the_head_is_trimmed_when_what_stood_in_it_was_described_and_that_is_stored() -> None:
    store = Store(log_records_max=10)
    store.checkpoint(*range(1, 21))
    [asked] = store.owner.take(DescribeHead)
    assert asked == DescribeHead(0, 10)
    store.actor.on_receive(HeadDescribed(asked, Trim(10, 1, TrimRows([], [])), as_of=25))
    assert store.replicator.take(Checkpointed) == [], "the description rests on records that are not stored yet"
    assert store.checkpoint(*range(21, 26))[-1] == Checkpointed(25, 10)


def test_a_head_that_is_no_whole_stretch_stays_and_is_asked_for_again() -> None:
    store = Store(log_records_max=10)
    store.checkpoint(*range(1, 21))
    [asked] = store.owner.take(DescribeHead)
    store.actor.on_receive(HeadDescribed(asked, None, as_of=20))
    assert store.owner.take(DescribeHead) == []
    assert store.checkpoint(21) == [Checkpointed(21, 0)]
    assert store.owner.take(DescribeHead) == [DescribeHead(0, 11)]


def test_a_reader_that_wants_the_head_after_all_keeps_it() -> None:
    store = Store(log_records_max=10)
    store.checkpoint(*range(1, 21))
    [asked] = store.owner.take(DescribeHead)
    store.actor.on_receive(ReadersMoved({"archive": ReaderPosition(5, 1.0)}))
    store.actor.on_receive(HeadDescribed(asked, Trim(10, 1, TrimRows([], [])), as_of=20))
    assert store.checkpoint(21) == [Checkpointed(21, 0)]
    assert store.owner.take(DescribeHead) == [DescribeHead(0, 5)]


def test_what_was_said_of_a_state_that_is_gone_trims_nothing() -> None:
    """The fresh one has other stretches, and does not know what the old one said."""
    store = Store(log_records_max=10)
    store.checkpoint(*range(1, 21))
    [asked] = store.owner.take(DescribeHead)
    described = HeadDescribed(asked, Trim(10, 1, TrimRows([], [])), as_of=25)
    store.actor.on_receive(described)
    store.actor.on_receive(LoadState())
    assert store.checkpoint(*range(21, 26)) == [Checkpointed(25, 0)]
    store.actor.on_receive(described)
    assert store.checkpoint(26) == [Checkpointed(26, 0)]
    assert store.owner.take(DescribeHead) == [DescribeHead(0, 15)]


def test_nothing_is_trimmed_while_a_snapshot_is_read() -> None:
    store = Store(log_records_max=10)
    store.actor.on_receive(ReadSnapshot(2, b""))
    assert len(store.replicator.take(SnapshotRead)) == 1
    store.checkpoint(*range(1, 21))
    assert store.owner.take(DescribeHead) == []
    store.runtime.time += 31.0
    store.checkpoint(21)
    assert len(store.owner.take(DescribeHead)) == 1


def test_a_fresh_state_is_what_lmdb_has() -> None:
    store = Store()
    store.checkpoint(1, 2)
    store.actor.on_receive(LoadState())
    [loaded] = store.replicator.take(StateLoaded)
    assert (loaded.state.trans_id, len(loaded.state.queues)) == (2, 1)


def test_a_message_that_it_does_not_know_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Store().actor.on_receive(object())


def test_blocks_of_a_topic_that_is_gone_are_not_stored_any_more() -> None:
    store = Store()
    store.checkpoint(1, 2)
    block = Block(1, 0, [Kept(0, 0, 3, 1, 1.0, b"a", 0, None, None, None, 0)])
    store.actor.on_receive(StoreBlocks([block]))
    store.actor.on_receive(DropBlocks({1: None}))
    store.checkpoint(3)
    assert store.store.topics_with_blocks() == []
