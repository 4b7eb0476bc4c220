"""Snapshots in LMDB: gathered beside what is there, and in its place only when they are complete."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.entry import StoredEntry
from storage.entry_codec import encode
from storage.log_store import LogStore, SnapshotPart
from storage.message_ids import message_id
from storage.queue_state import QueueState
from storage.records import Member, Members, Produce, ReaderPosition, Remove
from storage.recovery import load_state
from storage.sections import padded
from storage.state import ShardState
from storage.tables import LmdbTables
from storage.trimming import Trim, TrimRows, encode_row, queue_row

MEMBERS = Members("", 7, [Member(1, "a", 1, 11, is_voter=True)], [])

READERS = {"archive": ReaderPosition(7, 5.0)}


def message(number: int) -> Produce:
    return Produce(f"q{number % 3}", message_id(number, 0), b'"x"', 1.0, 1.0, 99.0, 5.0, 0, None)


def source(path: Path, count: int) -> LogStore:
    """A store whose log was trimmed at `count`: so many messages are in its backlog."""
    store = LogStore(LmdbTables(path), 0)
    rows = TrimRows(
        [(message_id(n, 0), encode_row(message(n))) for n in range(1, count + 1)],
        [(f"q{n}", queue_row(QueueState(f"q{n}"))) for n in range(3)],
        padded((encode_row(MEMBERS), encode_row(READERS))),
    )
    store.trim(Trim(count, 4, rows))
    return store


def parts(store: LogStore, bytes_max: int) -> Iterator[SnapshotPart]:
    cursor = b""
    while True:
        part = store.read_part(cursor, bytes_max)
        yield part
        if part.is_last:
            return
        cursor = part.cursor


def state_of(store: LogStore) -> ShardState:
    state = ShardState()
    load_state(store.tables, store, state)
    state.check()
    return state


def old_data(path: Path) -> LogStore:
    store = LogStore(LmdbTables(path), 0)
    store.store([StoredEntry(1, 1, 1, encode(1, 1, 1.0, [message(1)]))])
    return store


@pytest.mark.parametrize("bytes_max", [1, 200, 1 << 20])
def test_a_snapshot_comes_whole_in_parts_of_any_size(tmp_path: Path, bytes_max: int) -> None:
    store, target = source(tmp_path / "a", 50), old_data(tmp_path / "b")
    for index, part in enumerate(parts(store, bytes_max)):
        assert list(state_of(target).messages) == [message_id(1, 0)], "what was there counts until all has come"
        target.stage(part, 2, is_first=index == 0)
    target.install(part)
    assert target.bounds == (50, 50)
    loaded = state_of(target)
    assert sorted(loaded.messages) == [message_id(n, 0) for n in range(1, 51)]
    assert sorted(loaded.queues) == ["q0", "q1", "q2"]
    assert loaded.facts.members == MEMBERS
    assert loaded.facts.readers == READERS
    target.store([StoredEntry(51, 51, 5, encode(5, 51, 3.0, [Remove("nothing")]))])
    again = LogStore(target.tables, 0)
    assert again.bounds == (50, 51)
    assert again.staged is None


def test_a_snapshot_that_broke_off_is_gone_on_with_and_another_begins_anew(tmp_path: Path) -> None:
    store, target = source(tmp_path / "a", 50), old_data(tmp_path / "b")
    first, second, *_ = parts(store, 200)
    target.stage(first, 2, is_first=True)
    target.stage(second, 2, is_first=False)
    staged = LogStore(target.tables, 0).staged
    assert staged == (50, 2, second.cursor)
    other = next(iter(parts(source(tmp_path / "c", 3), 1 << 20)))
    target.stage(other, 3, is_first=True)
    target.install(other)
    assert sorted(state_of(target).messages) == [message_id(n, 0) for n in (1, 2, 3)], "nothing of the first one"


def test_the_next_snapshot_uses_the_other_side_again(tmp_path: Path) -> None:
    target = old_data(tmp_path / "b")
    for count in (3, 5, 7):
        for part in parts(source(tmp_path / str(count), count), 1 << 20):
            target.stage(part, 2, is_first=True)
        target.install(part)
        assert len(state_of(target).messages) == count
