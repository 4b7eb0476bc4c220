"""Topics: whatever is committed, stored, trimmed, lost and read again, every message is there, once, at its place."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import producers
from storage.block_rows import Wanted, read_stored
from storage.blocks import Block, BlockView, Kept, cut, frame
from storage.entry import StoredEntry
from storage.entry_codec import decode
from storage.entry_making import make_entries
from storage.errors import DamagedError
from storage.log_store import LogStore
from storage.partition import Partition
from storage.records import Append, Encoding, OfTopic, Topic
from storage.recovery import load_state
from storage.repair import repair, verify
from storage.state import ShardState
from storage.tables import BLOCKS
from storage.trimming import trim_now
from tests.examples import examples
from tests.storage.memory import MemoryFolder, MemoryTables
from tests.storage.topic_records import random_record, topic_facts

STRETCH_RECORDS = 9


class Node:
    """One node's state and LMDB; `said`: each message that is committed, by topic number and partition."""

    def __init__(self, random: Random, size: int) -> None:
        self.random = random
        self.size = size
        self.tables = MemoryTables()
        self.store = LogStore(self.tables, 0)
        self.state = ShardState(0, STRETCH_RECORDS)
        self.state.undo.turn(self.state, is_on=True)
        self.now = 100.0
        self.open: list[Any] = []
        self.unstored: list[StoredEntry] = []
        self.committed = 0
        self.blocks: list[Block] = []
        self.said: dict[tuple[int, int], dict[int, tuple[Any, ...]]] = {}

    def act(self) -> None:
        record = random_record(self.random, self.state, self.now, self.size)
        self.now += self.random.random()
        if record is not None:
            self.state.apply_next(record)
            self.open.append(record)
            if self.random.random() < 0.3:
                self.close()

    def close(self) -> None:
        """What is open is an entry."""
        if self.open:
            state = self.state
            state.time = self.now
            first = state.trans_id - len(self.open) + 1
            self.unstored += make_entries(1, first, self.now, self.open, 1 << 20)
            state.stretches.note(1, state.trans_id, self.open)
            state.undo.close(state.trans_id, self.now)
            self.open = []

    def commit(self) -> None:
        ends = [self.committed, *(entry.last_trans_id for entry in self.unstored)]
        self.committed = self.random.choice([end for end in ends if end >= self.committed])
        self.state.undo.forget(self.committed)
        self.state.topics.tails.settle(self.committed)
        self.blocks += self.state.topics.tails.take_to_store()
        self.note_all()

    def note_all(self) -> None:
        for topic in self.state.topics.numbers.values():
            for partition in topic.partitions:
                for kept in partition.in_memory(0):
                    self.note(partition, kept)

    def note(self, partition: Partition, kept: Kept) -> None:
        """A message that is committed is that one for good."""
        its = self.said.setdefault((partition.number, partition.index), {})
        assert its.setdefault(kept.offset, content(kept)) == content(kept)

    def store_some(self) -> None:
        """A checkpoint: committed entries, and the blocks that LMDB's log has all of."""
        entries = [entry for entry in self.unstored if entry.last_trans_id <= self.committed]
        entries = entries[: self.random.randrange(len(entries) + 1)]
        if not entries:
            return
        upto = entries[-1].last_trans_id
        self.store.store(entries, seals=True, blocks=self.rows(upto))
        self.unstored = self.unstored[len(entries) :]

    def rows(self, upto: int) -> list[tuple[bytes, bytes]]:
        fitting = []
        while self.blocks and self.blocks[0].kept[-1].trans_id <= upto:
            block = self.blocks.pop(0)
            fitting.append(block.row())
            self.state.topics.tails.stored(block.key.number, block.key.partition, block.end)
        return fitting

    def trim(self) -> None:
        stretch = self.state.stretches.first(self.store.bounds.checkpointed)
        if stretch is None or self.open or self.state.trans_id > self.store.bounds.checkpointed:
            return
        trim = trim_now(stretch, self.state)
        self.blocks += self.state.topics.tails.take_to_store()
        self.store.trim(trim, self.rows(self.store.bounds.checkpointed))
        assert self.state.stretches.drop_trimmed(trim.until)

    def lose(self) -> None:
        """Another leader's log goes on behind what is committed."""
        steps = self.state.undoing(self.committed)
        assert steps is not None
        for _ in steps:
            pass
        self.unstored = [entry for entry in self.unstored if entry.last_trans_id <= self.committed]
        self.open = []
        self.state.check()

    def read_again(self) -> None:
        """The node begins anew with what LMDB has; what the journal alone has comes behind it."""
        self.lose()
        before = topic_facts(self.state)
        self.blocks.clear()
        self.state = ShardState(0, STRETCH_RECORDS)
        load_state(self.tables, self.store, self.state)
        self.state.undo.turn(self.state, is_on=True)
        for stored in self.unstored:
            entry = decode(stored.data, "test")
            for at, record in enumerate(entry.records):
                self.state.follow(entry.first_trans_id + at, record, entry.time)
            self.state.close_entry(entry)
        self.state.topics.tails.settle(self.committed)
        self.blocks += self.state.topics.tails.take_to_store()
        self.note_all()
        assert topic_facts(self.state) == before
        self.state.check()

    def drop(self) -> None:
        """Blocks whose messages are not kept go, some at a time."""
        for number, kept in self.state.topics.tails.take_gone().items():
            while not self.store.drop_blocks(number, kept, 2):
                pass

    def look(self) -> None:
        """Every committed message that is kept can be read, from memory or from blocks, at its place."""
        for topic in self.state.topics.numbers.values():
            for partition in topic.partitions:
                its = self.said.get((partition.number, partition.index), {})
                found = {kept.offset: content(kept) for kept in read_all(self.tables, partition)}
                assert found == {at: one for at, one in its.items() if partition.first <= at < partition.settled}


def content(kept: Kept) -> tuple[Any, ...]:
    """All that is to be the same wherever it is read."""
    return (
        *(kept.offset, kept.position, kept.msg_id, kept.produced_at, kept.data, kept.encoding, kept.key),
        *(kept.headers, kept.attribute, kept.flag),
    )


def read_all(tables: MemoryTables, partition: Partition) -> list[Kept]:
    found: list[Kept] = []
    offset = partition.first
    while offset < partition.held_from[0]:
        with tables.read_beside() as transaction:
            wanted = Wanted(partition.number, partition.index, offset=offset)
            stored = read_stored(transaction, wanted, 3, 99)
            raw = read_stored(transaction, wanted, 3, 99, is_raw=True)
        assert b"".join(raw.frames) == b"".join(map(frame, stored.kept))
        assert (raw.messages, raw.next) == (stored.messages, stored.next)
        assert list(map(content, raw.kept[:1])) == list(map(content, stored.kept[:1]))
        assert stored.messages == len(stored.kept)
        assert stored.kept, (offset, partition.held_from, stored)
        found += stored.kept
        offset = stored.kept[-1].offset + 1
    return found + [kept for kept in partition.in_memory(offset) if kept.offset >= offset]


@settings(max_examples=examples(150), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.sampled_from([9, 40_000]))
def test_a_message_that_is_committed_is_there_at_its_place(random: Random, rounds: int, size: int) -> None:
    node = Node(random, size)
    for _ in range(rounds):
        for _ in range(random.randrange(9)):
            node.act()
        for chance, step in (
            (0.7, node.close),
            (0.6, node.commit),
            (0.5, node.store_some),
            (0.4, node.trim),
            (0.3, node.drop),
            (0.1, node.lose),
            (0.1, node.read_again),
        ):
            if random.random() < chance:
                step()
        node.state.check()
    node.look()
    node.read_again()
    node.look()


def kept(offset: int, position: int, data: bytes = b"x", **fields: Any) -> Kept:
    values: dict[str, Any] = {"key": None, "headers": None, "attribute": None, "flag": 0, **fields}
    return Kept(offset, position, offset + 1, 1024 * (offset + 1), 100.0 + offset, data, Encoding.PLAIN, **values)


def row_of(count: int, begin: int = 0) -> tuple[bytes, bytes]:
    return Block(7, 1, [kept(at, at * 21) for at in range(begin, begin + count)]).row()


def test_every_flipped_bit_of_a_block_is_found() -> None:
    key, value = row_of(3)
    assert BlockView(key, value).end == 3
    for at in range(len(value)):
        for bit in range(8):
            broken = bytearray(value)
            broken[at] ^= 1 << bit
            with pytest.raises(DamagedError):
                BlockView(key, bytes(broken))
    for length in range(len(value)):
        with pytest.raises(DamagedError):
            BlockView(key, value[:length])
    with pytest.raises(DamagedError):
        BlockView(bytes([key[0] ^ 1]) + key[1:], value)


def test_a_message_is_found_by_its_position_and_its_time_wherever_it_is() -> None:
    tables = MemoryTables()
    store = LogStore(tables, 0)
    messages = []
    position = 0
    for at in range(50):
        messages.append(kept(at, position, b"x" * at))
        position = messages[-1].end_position
    store.store_blocks([Block(7, 1, messages[at : at + 4]).row() for at in range(0, 50, 4)])
    store.store_blocks([Block(7, 0, [kept(0, 0)]).row(), Block(7, 2, [kept(0, 0)]).row()])
    with tables.read() as transaction:
        for one in messages:
            for wanted in (
                Wanted(7, 1, offset=one.offset),
                Wanted(7, 1, position=one.position),
                Wanted(7, 1, position=one.end_position - 1),
                Wanted(7, 1, at=one.produced_at),
                Wanted(7, 1, at=one.produced_at - 0.5),
            ):
                assert read_stored(transaction, wanted, 1, 1).kept[0].offset == one.offset, wanted
        for wanted in (Wanted(7, 1, offset=50), Wanted(7, 1, position=position), Wanted(7, 1, at=1000.0)):
            assert not read_stored(transaction, wanted, 1, 1).kept
        for wanted in (Wanted(7, 3, offset=0), Wanted(7, 3, position=0), Wanted(7, 3, at=0.0), Wanted(6, 1, at=0.0)):
            assert not read_stored(transaction, wanted, 1, 1).kept


def test_a_damaged_block_is_a_gap_that_is_named_with_what_follows_it() -> None:
    tables = MemoryTables()
    store = LogStore(tables, 0)
    rows = [row_of(4, begin) for begin in (0, 4, 8)]
    store.store_blocks([rows[0], (rows[1][0], rows[1][1][:-1] + b"\x00"), rows[2]])
    with tables.read() as transaction:
        assert len(read_stored(transaction, Wanted(7, 1, offset=0), 99, 9999).kept) == 4
        stored = read_stored(transaction, Wanted(7, 1, offset=5), 99, 9999)
    assert (stored.kept, stored.next) == ([], 8)
    assert "offset 4" in (stored.damaged or "")


def test_what_is_removed_leaves_no_block_and_others_stay() -> None:
    tables = MemoryTables()
    store = LogStore(tables, 0)
    store.store_blocks([Block(number, 0, [kept(at, 0)]).row() for number in (1, 2, 3) for at in range(5)])
    assert not store.drop_blocks(2, None, 3)
    assert store.drop_blocks(2, None, 3)
    assert store.topics_with_blocks() == [1, 3]
    assert store.drop_blocks(3, {0: 3}, 99)
    with tables.read() as transaction:
        assert [one.offset for one in read_stored(transaction, Wanted(3, 0, offset=3), 9, 999).kept] == [3, 4]
    assert len(tables.tables[BLOCKS]) == 7


def test_messages_are_cut_into_blocks_that_are_no_larger_than_one_may_be() -> None:
    messages = [kept(at, 0, b"x" * size) for at, size in enumerate([10, 30_000, 3_000, 100_000, 5])]
    blocks = cut(1, 0, messages)
    assert [one.offset for block in blocks for one in block.kept] == [0, 1, 2, 3, 4]
    assert [len(block.kept) for block in blocks] == [2, 1, 1, 1]


def appended(state: ShardState, serial: int, at: float, producer: str = "p", partition: int = 0) -> None:
    topic = state.topics.by_name["t"]
    offset = topic.partitions[partition].next
    record = Append("t", 1, partition, offset, b"", 0, at, producer=producer, serial=serial)
    state.apply_next(record)


def test_a_producer_is_forgotten_after_a_week_and_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    state = ShardState()
    state.apply_next(Topic("t", 1, 2, 0.0, 0))
    for number in range(5):
        appended(state, 1, 100.0 + number, f"p{number}")
    assert [name for _, name in state.topics.producers.known] == ["p2", "p3", "p4"]
    assert len(state.topics.producers.take_forgotten()) == 2
    appended(state, 2, 104.0 + 8 * 86_400, "p4")
    assert [name for _, name in state.topics.producers.known] == ["p4"]


def test_the_last_numbers_of_a_producer_are_known_with_what_they_got() -> None:
    state = ShardState()
    state.apply_next(Topic("t", 1, 2, 0.0, 0))
    for serial in range(1, 31):
        appended(state, serial, 100.0)
        appended(state, serial, 100.0, partition=1)
        appended(state, serial, 100.0, partition=1)
    seen = state.topics.producers.known[(1, "p")]
    assert [serial for serial, _ in seen.serials] == [*range(15, 31)]
    assert producers.runs_of(seen, 30) == ((0, 29, 1), (1, 58, 2))


def test_a_shard_with_a_damaged_last_block_is_mended_and_goes_on() -> None:
    tables, folder = MemoryTables(), MemoryFolder()
    node = Node(Random(1), 9)
    node.tables, node.store = tables, LogStore(tables, 0)
    state = node.state
    records: list[OfTopic] = [Topic("t", 1, 1, 0.0, 0)]
    records += [Append("t", 1, 0, at, b"x" * 20_000, 1, 100.0) for at in range(8)]
    for record in records:
        state.apply_next(record)
        node.open.append(record)
    node.close()
    node.committed = state.trans_id
    node.commit()
    node.store.store(node.unstored, seals=True, blocks=node.rows(state.trans_id))
    findings = verify(tables, folder, 0)
    assert (findings.blocks, findings.faults) == (len(tables.tables[BLOCKS]), [])
    last, value = tables.tables[BLOCKS].peekitem(-1)
    tables.tables[BLOCKS][last] = value[:-1]
    with pytest.raises(DamagedError):
        load_state(tables, LogStore(tables, 0), ShardState())
    assert "offset" in verify(tables, folder, 0).faults[0]
    repair(tables, folder, 0)
    mended = ShardState()
    load_state(tables, LogStore(tables, 0), mended)
    assert mended.topics.by_name["t"].partitions[0].next == 8
    assert not verify(tables, folder, 0).faults


def test_an_undone_append_changes_nothing_about_who_is_forgotten_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nodes would know different producers, and one would append again what another knows."""
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 2)
    states = [ShardState(), ShardState()]
    for state in states:
        state.undo.turn(state, is_on=True)
        state.apply_next(Topic("t", 1, 2, 0.0, 0))
        appended(state, 1, 100.0, "p")
        appended(state, 1, 101.0, "q")
        state.undo.close(state.trans_id, 101.0)
        state.undo.forget(state.trans_id)
    appended(states[0], 2, 102.0, "p")
    steps = states[0].undoing(states[1].trans_id)
    assert steps is not None
    assert not [*steps]
    for state in states:
        appended(state, 1, 103.0, "r")
        assert {name for _, name in state.topics.producers.known} == {"q", "r"}


def test_what_all_producers_numbers_got_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "RUNS_OF_SHARD_MAX", 20)
    state = ShardState()
    state.apply_next(Topic("t", 1, 2, 0.0, 0))
    for number in range(30):
        for serial in (1, 2):
            appended(state, serial, 100.0 + number, f"p{number}")
            appended(state, serial, 100.0 + number, f"p{number}", partition=1)
        known = state.topics.producers
        assert known.runs == sum(len(runs) for seen in known.known.values() for _, runs in seen.serials) <= 20
    assert [name for _, name in state.topics.producers.known] == [f"p{number}" for number in range(25, 30)]


def test_a_damaged_last_block_stays_until_another_is_behind_it() -> None:
    store = LogStore(MemoryTables(), 0)
    row = Block(1, 0, [kept(0, 0)]).row()
    store.store_blocks([(row[0], row[1][:-1])])
    assert store.drop_blocks(1, {0: 1}, 500)
    assert store.topics_with_blocks() == [1]
    store.store_blocks([Block(1, 0, [kept(1, 21)]).row()])
    assert store.drop_blocks(1, {0: 2}, 500)
    assert store.topics_with_blocks() == []
