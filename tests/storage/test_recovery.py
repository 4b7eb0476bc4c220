"""Recovery and trimming: whatever is on disk describes the same state, in LMDB for real and in memory."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

import lmdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage import entry_codec
from storage.entry import StoredEntry
from storage.errors import DamagedError, UnknownFormatError
from storage.journal_writer import begin_journal
from storage.log_store import LogStore
from storage.message_ids import message_id, newest_record
from storage.real_disk import RealFolder
from storage.records import Bury, Clear, Configure, Confirm, Deliver, Move, Place, Produce, Record, Release, Remove
from storage.recovery import recover
from storage.repair import repair, verify
from storage.state import ShardState
from storage.tables import LOG, LmdbTables
from storage.trimming import trim_now
from tests.examples import examples
from tests.storage.damage import damage_entries
from tests.storage.memory import MemoryFolder, MemoryTables

NOW = 1000.0


class Writer:
    """Makes random but sensible records and keeps the state that they describe."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state = ShardState(stretch_records=self.random.randint(1, 15))
        self.entries: list[StoredEntry] = []

    def grow(self, count: int) -> None:
        """Add `count` entries."""
        for _ in range(count):
            first = self.state.trans_id + 1
            records: list[Record] = []
            for _ in range(self.random.randint(1, 4)):
                record = self._record()
                # as the log will have it: the state changes the message later on
                records.append(entry_codec.decode(entry_codec.encode(1, 1, NOW, [record]), "copy").records[0])
                self.state.apply(self.state.trans_id + 1, record)
            self.entries.append(StoredEntry(first, self.state.trans_id, 1, entry_codec.encode(1, first, NOW, records)))
            self.state.stretches.note(1, self.state.trans_id, records)

    def trim(self, store: LogStore, until: int) -> bool:
        """Drop the log's first stretch, if it ends at or before record `until`, as its owner and LMDB do."""
        stretches = self.state.stretches
        assert stretches.drop_trimmed(store.bounds.trimmed)
        stretch = stretches.first(until)
        if stretch is not None:
            store.trim(trim_now(stretch, self.state))
        return stretch is not None

    def _record(self) -> Record:
        state, random = self.state, self.random
        queue = f"q{random.randint(0, 3)}"
        choice = random.random()
        live = list(state.messages.values())
        if choice < 0.5 or not live:
            trans_id = state.trans_id + 1
            key = random.choice(["k1", "k2", f"k{trans_id}"]) if random.random() < 0.3 else None
            if queue in state.queues and key in state.queues[queue].keys:
                key = None
            return Produce(
                queue, message_id(trans_id, 0), b'"x"', NOW, NOW + random.choice([-1, 5]), NOW + 99, 60.0, 0, key
            )
        message = random.choice(live)
        one = ([message.msg_id], [newest_record(message)])
        if choice < 0.65:
            return Deliver(message.queue, *one, [NOW + random.randint(1, 50)], [message.deliveries + 1])
        if choice < 0.85:
            return Confirm(message.queue, *one)
        if choice < 0.9:
            return Release(message.queue, *one, [NOW])
        if choice < 0.91:
            return Clear(message.queue, *one)
        if choice < 0.93 and message.queue != queue:
            return Bury(message.queue, queue, *one, [NOW], [NOW + 9])
        is_taken = queue in state.queues and message.key in state.queues[queue].keys
        if choice < 0.96 and message.queue != queue and message.place != Place.IN_FLIGHT and not is_taken:
            return Move(message.queue, queue, *one, [NOW], [NOW + 9])
        if choice < 0.98:
            return Configure(queue, random.randint(0, 9), 5.0, 1.0, 2, None, random.random() < 0.5)
        empty = [name for name, held in state.queues.items() if not held.size]
        return Remove(empty[0]) if empty else Confirm(message.queue, *one)


def described(state: ShardState) -> tuple[object, object]:
    """What a state says, with places as a restart sees them."""
    messages = {}
    for m in state.messages.values():
        messages[m.msg_id] = (
            m.queue,
            m.data,
            m.due_at,
            m.deliveries,
            m.place == Place.IN_FLIGHT,
            m.key,
            m.key is None or state.queues[m.queue].keys.get(m.key) == m.msg_id,
            newest_record(m),
        )
    return messages, {name: (q.settings(), q.size, q.max_id) for name, q in state.queues.items()}


def settle(state: ShardState) -> ShardState:
    """Place what the records left unplaced."""
    for message in state.messages.values():
        if message.place == Place.UNPLACED:
            state.queues[message.queue].place(message, NOW)
    state.check()
    return state


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32), st.lists(st.integers(1, 12), min_size=1, max_size=9))
@example(12, [3, 9, 9, 6, 12])  # a queue that was removed and made again kept the greatest id of its messages before
def test_log_and_backlog_describe_the_state_wherever_the_log_was_trimmed(seed: int, steps: list[int]) -> None:
    """Also where a node goes on from what it recovered, whose stretches begin where its log does."""
    tables, folder = MemoryTables(), MemoryFolder()
    writer = Writer(seed)
    store = LogStore(tables, 0)
    for step in steps:
        before = len(writer.entries)
        writer.grow(step)
        store.store(writer.entries[before:])
        until = writer.random.randint(0, writer.state.trans_id)
        while writer.trim(store, until) and writer.random.random() < 0.7:
            pass
        recovered = ShardState(stretch_records=writer.random.randint(1, 15))
        recover(tables, folder, LogStore(tables, 0), recovered, lambda: NOW)
        recovered.check()
        assert described(recovered) == described(settle(writer.state))
        assert recovered.trans_id == writer.state.trans_id
        trimmed_to = store.bounds.trimmed
        with tables.read() as transaction:
            stored = [int.from_bytes(key, "big") for key, _ in transaction.range(store.backlog)]
        assert all(msg_id <= message_id(trimmed_to, 0) for msg_id in stored), "no row of what the log itself produces"
        if writer.random.random() < 0.5:
            writer.state = recovered


def test_all_of_the_log_can_go_but_what_is_not_a_whole_stretch() -> None:
    writer, store = Writer(3), LogStore(MemoryTables(), 0)
    writer.grow(300)
    store.store(writer.entries)
    while writer.trim(store, writer.state.trans_id):
        pass
    assert 0 <= writer.state.trans_id - store.bounds.trimmed < writer.state.stretches.records_max
    ends = {0, *(entry.last_trans_id for entry in writer.entries)}
    assert store.bounds.trimmed in ends, "entries go whole"


@pytest.fixture(params=[False, True], ids=["rows of one", "rows of several"])
def shard(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[LmdbTables, RealFolder, Writer]]:
    """A shard in real LMDB with 40 entries, the first of them trimmed."""
    tables = LmdbTables(tmp_path)
    folder = RealFolder(tmp_path / "journal")
    writer = Writer(5)
    writer.grow(40)
    store = LogStore(tables, 0)
    for at in range(0, 40, 8):
        for entries in (
            [writer.entries[at : at + 8]] if request.param else [[one] for one in writer.entries[at : at + 8]]
        ):
            store.store(entries)
    assert writer.trim(store, 20)
    with tables.read() as transaction:
        assert (transaction.count(LOG) <= 5) == request.param
    yield tables, folder, writer
    tables.close()


def test_a_restart_from_lmdb_gives_the_same_state(shard: tuple[LmdbTables, RealFolder, Writer]) -> None:
    tables, folder, writer = shard
    recovered = ShardState()
    result = recover(tables, folder, LogStore(tables, 0), recovered, lambda: NOW)
    assert result.torn is None
    assert described(recovered) == described(settle(writer.state))


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_clock_that_is_ahead_makes_nothing_due_on_a_node_that_does_not_lead(*, is_alone: bool) -> None:
    """A machine that boots may be a day ahead until it has asked for the time; by then this node may lead."""
    tables = MemoryTables()
    later = Produce("q", message_id(1, 0), b"1", NOW, NOW + 60, NOW + 3600, 60.0, 0, None)
    LogStore(tables, 0).store([StoredEntry(1, 1, 1, entry_codec.encode(1, 1, NOW, [later]))])
    state = ShardState()
    recover(tables, MemoryFolder(), LogStore(tables, 0), state, lambda: NOW + 86400, lambda belonging: is_alone)
    [message] = state.messages.values()
    assert message.place == (Place.READY if is_alone else Place.DELAYED)
    assert state.placed_at == (NOW + 86400 if is_alone else NOW), "who leads goes on from there"


def test_a_damaged_last_entry_is_cut_off_and_told(shard: tuple[LmdbTables, RealFolder, Writer]) -> None:
    tables, folder, writer = shard
    [end] = damage_entries(tables, -1)
    recovered = ShardState()
    result = recover(tables, folder, LogStore(tables, 0), recovered, lambda: NOW)
    assert result.torn is not None
    assert str(end) in result.torn
    assert recovered.trans_id == writer.entries[-2].last_trans_id
    again = ShardState()
    assert recover(tables, folder, LogStore(tables, 0), again, lambda: NOW).torn is None


def test_a_damaged_entry_in_the_middle_stops_the_start_and_repair_mends_it(
    shard: tuple[LmdbTables, RealFolder, Writer],
) -> None:
    tables, folder, writer = shard
    [end] = damage_entries(tables, 5)
    with pytest.raises(DamagedError, match=f"log entry {end}: the checksum"):
        recover(tables, folder, LogStore(tables, 0), ShardState(), lambda: NOW)
    findings = verify(tables, folder, 0)
    assert any(str(end) in fault for fault in findings.faults)
    [lost] = findings.lost
    assert lost[1] == end
    repair(tables, folder, 0)
    mended = ShardState()
    recover(tables, folder, LogStore(tables, 0), mended, lambda: NOW)
    mended.check()
    assert mended.trans_id == writer.state.trans_id
    assert not verify(tables, folder, 0).faults
    in_lost = range(lost[0], lost[1] + 1)
    expected = {m for m in writer.state.messages if m // 1024 not in in_lost}
    assert expected <= set(mended.messages)


@pytest.mark.parametrize(("row", "is_key"), [(1, False), (-1, False), (1, True), (-1, True)])
def test_a_row_of_several_that_cant_be_read_stops_the_start_and_repair_keeps_the_others(
    tmp_path: Path, row: int, *, is_key: bool
) -> None:
    """A review's: where it was the last it was cut off, with all that it held, as if it had been torn."""
    tables, folder, writer = LmdbTables(tmp_path), RealFolder(tmp_path / "journal"), Writer(5)
    writer.grow(40)
    for at in range(0, 40, 8):
        LogStore(tables, 0).store(writer.entries[at : at + 8])
    with tables.write() as transaction:
        key, value = list(transaction.range(LOG))[row]
        broken = bytes([value[0] ^ 1]) + value[1:-1] + bytes([value[-1] ^ 1])
        if is_key:
            transaction.delete(LOG, [key])
            transaction.put(LOG, [(key[:6] + bytes([key[6] ^ (64 if row < 0 else 0), key[7] ^ 1]) + key[8:], value)])
        else:
            transaction.put(LOG, [(key, broken)])
    with pytest.raises(DamagedError, match="log row"):
        recover(tables, folder, LogStore(tables, 0), ShardState(), lambda: NOW)
    assert verify(tables, folder, 0).faults
    repair(tables, folder, 0)
    mended = ShardState()
    recover(tables, folder, LogStore(tables, 0), mended, lambda: NOW)
    mended.check()
    first = 8 if row > 0 else 32
    lost = range(writer.entries[first].first_trans_id, writer.entries[first + 7].last_trans_id + 1)
    assert {m for m in writer.state.messages if m // 1024 not in lost} <= set(mended.messages)
    assert writer.state.trans_id <= mended.trans_id + (len(lost) if row < 0 else 0)
    tables.close()


def test_a_last_row_that_cant_be_read_is_mended_from_the_journal(tmp_path: Path) -> None:
    tables, folder, writer = LmdbTables(tmp_path), MemoryFolder(), Writer(5)
    writer.grow(24)
    for at in range(0, 24, 8):
        LogStore(tables, 0).store(writer.entries[at : at + 8])
    journal = begin_journal(folder, 1 << 20, writes_are_durable=True, stored=0, last_trans_id=0)
    left = deque(writer.entries[16:])
    while left and (write := journal.place(left)) is not None:
        write.file.write_durably_at(write.offset, write.data)
        folder.settle()
        journal.completed(write)
    assert not left
    with tables.write() as transaction:
        key, value = list(transaction.range(LOG))[-1]
        transaction.put(LOG, [(key, bytes([value[0] ^ 1]) + value[1:-1] + bytes([value[-1] ^ 1]))])
    findings = verify(tables, folder, 0)
    assert [fault for fault in findings.faults if "the journal has all of it" in fault] == findings.faults != []
    assert findings.lost == []
    repair(tables, folder, 0)
    mended = ShardState()
    recover(tables, folder, LogStore(tables, 0), mended, lambda: NOW)
    assert described(mended) == described(settle(writer.state))
    tables.close()


def test_verify_finds_nothing_wrong_with_a_sound_log(shard: tuple[LmdbTables, RealFolder, Writer]) -> None:
    tables, folder, writer = shard
    findings = verify(tables, folder, 0)
    assert not findings.faults
    assert not findings.torn
    assert findings.last_trans_id == writer.state.trans_id
    assert findings.live_messages == len(writer.state.messages)


def test_a_gap_between_entries_is_damage(shard: tuple[LmdbTables, RealFolder, Writer]) -> None:
    tables, folder, _ = shard
    with tables.write() as transaction:
        transaction.delete(LOG, [list(transaction.range(LOG))[1][0]])
    with pytest.raises(DamagedError, match="but those before it end at"):
        recover(tables, folder, LogStore(tables, 0), ShardState(), lambda: NOW)
    assert verify(tables, folder, 0).faults


def test_another_shards_folder_is_refused(shard: tuple[LmdbTables, RealFolder, Writer]) -> None:
    with pytest.raises(UnknownFormatError, match="of shard 0, not of shard 1"):
        LogStore(shard[0], 1)


def test_the_map_grows_without_a_restart(tmp_path: Path) -> None:
    tables = LmdbTables(tmp_path, map_bytes=1 << 20)
    before = tables.map_bytes
    store = LogStore(tables, 0)
    for n in range(1, 200):
        store.store([StoredEntry(n, n, 1, b"x" * 50_000)])
    assert tables.map_bytes > before
    with tables.read() as transaction:
        assert transaction.count(LOG) == 199
    tables.close()


def test_one_commit_larger_than_the_whole_map_goes_through(tmp_path: Path) -> None:
    tables = LmdbTables(tmp_path, map_bytes=1 << 20)
    store = LogStore(tables, 0)
    rows = [StoredEntry(n, n, 1, b"x" * 50_000) for n in range(1, 100)]
    store.store(rows)
    assert store.bounds.checkpointed == 99
    tables.close()


def test_a_reader_in_another_environment_sees_what_is_stored(tmp_path: Path) -> None:
    tables = LmdbTables(tmp_path)
    LogStore(tables, 0).store([StoredEntry(1, 1, 1, b"x")])
    tables.close()
    with lmdb.open(str(tmp_path), readonly=True, max_dbs=8, lock=True) as environment:
        database = environment.open_db(b"log", create=False)
        with environment.begin(db=database) as transaction:
            assert transaction.get((1).to_bytes(8, "big")) == b"x"
