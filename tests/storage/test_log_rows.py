"""Rows of the log: what is stored together is read as if each entry had a row of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.entry import StoredEntry
from storage.errors import DamagedError
from storage.log_rows import ROW_BYTES, SEVERAL, entries_in, key_behind, last_in, number_key, rows_of
from storage.log_store import LogStore
from storage.tables import META
from storage.trimming import Trim, TrimRows
from tests.storage.memory import MemoryTables

SIZES = st.lists(st.sampled_from([1, 2, 90, 400, ROW_BYTES - 1, ROW_BYTES, 3 * ROW_BYTES]), min_size=1, max_size=30)


def entries_of(sizes: list[int], first: int = 1) -> list[StoredEntry]:
    """Entries of three records each."""
    return [StoredEntry(first + 3 * n, first + 3 * n + 2, 1, bytes([n % 251]) * size) for n, size in enumerate(sizes)]


@given(SIZES, st.integers(0, 100))
def test_what_is_put_together_comes_apart_as_it_was(sizes: list[int], after: int) -> None:
    entries = entries_of(sizes)
    rows = rows_of(entries)
    assert rows == sorted(rows)
    found = [one for row in rows for one in entries_in(*row, after)]
    assert found == [(entry.last_trans_id, entry.data) for entry in entries if entry.last_trans_id > after]
    assert all(len(value) <= ROW_BYTES + 1000 for key, value in rows if len(key) > 8), "an entry may be longer"
    assert last_in(rows[-1][0]) == entries[-1].last_trans_id


@given(st.lists(st.tuples(SIZES, st.integers(0, 40)), min_size=1, max_size=6))
def test_a_log_of_rows_of_several_is_read_trimmed_and_cut_as_one_of_rows_of_one(
    steps: list[tuple[list[int], int]],
) -> None:
    plain, mixed = LogStore(MemoryTables(), 0), LogStore(MemoryTables(), 0)
    for sizes, trimmed in steps:
        entries = entries_of(sizes, plain.bounds.checkpointed + 1)
        for entry in entries:
            plain.store([entry])
        mixed.store(entries)
        until = min(plain.bounds.trimmed + 3 * trimmed, plain.bounds.checkpointed)
        for store in (plain, mixed):
            store.trim(Trim(until, 1, TrimRows([], [])))
            if store.bounds.trimmed < store.bounds.checkpointed and trimmed % 2:
                store.cut(store.bounds.checkpointed)
        assert plain.bounds == mixed.bounds
        reopened = LogStore(mixed.tables, 0)
        assert reopened.bounds == plain.bounds
        for after in (plain.bounds.trimmed, plain.bounds.trimmed + 4, plain.bounds.checkpointed):
            for count, size in ((1, 1 << 30), (7, 1 << 30), (1000, 500), (1000, 1 << 30)):
                assert reopened.read(after, count, size) == plain.read(after, count, size)
                assert reopened.read_raw(after, count, size) == plain.read_raw(after, count, size)


def test_a_row_of_one_is_what_versions_before_wrote() -> None:
    entry = StoredEntry(1, 3, 1, b"entry")
    assert rows_of([entry]) == [(number_key(3), b"entry")]


@pytest.mark.parametrize("at", [0, 2, 5, 7])
def test_a_damaged_table_is_not_believed(at: int) -> None:
    [(key, value)] = rows_of(entries_of([90, 90]))
    assert key == number_key(6) + SEVERAL
    broken = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    assert entries_in(key, broken, 0) == entries_in(key, value, 0), "the other one is"
    both = broken[: -1 - at] + bytes([broken[-1 - at] ^ 1]) + broken[len(broken) - at :]
    assert len(both) == len(value)
    with pytest.raises(DamagedError, match="log row 6"):
        entries_in(key, both, 0)


@given(st.data())
def test_whatever_bytes_a_row_holds_it_is_read_or_said_to_be_damaged(data: st.DataObject) -> None:
    [(key, value)] = rows_of(entries_of([9, 90, 1]))
    begin = data.draw(st.integers(0, len(value)))
    other = value[:begin] + data.draw(st.binary(max_size=60)) + value[data.draw(st.integers(begin, len(value))) :]
    for read_key in (key, number_key(7) + SEVERAL):
        try:
            found = entries_in(read_key, other, 0)
        except DamagedError:
            continue
        assert [end for end, _ in found] == [3, 6, 9]
        assert read_key == key


def test_a_row_whose_key_is_damaged_is_not_believed() -> None:
    [(_, value)] = rows_of(entries_of([90, 90]))
    with pytest.raises(DamagedError, match="log row 7"):
        entries_in(number_key(7) + SEVERAL, value, 0)


def test_a_log_says_from_its_first_row_of_several_on_that_it_has_such() -> None:
    """So a version before says so too, and takes none of it for damage."""
    store = LogStore(MemoryTables(), 0)

    def written() -> bytes | None:
        with store.tables.read() as transaction:
            return transaction.get(META, b"format")

    assert written() == number_key(1)
    store.store(entries_of([90]))
    assert written() == number_key(2)
    store.store(entries_of([90, 90], 4))
    assert written() == number_key(2)
    assert LogStore(store.tables, 0).bounds.checkpointed == 9


def test_rows_that_end_with_a_record_are_before_the_key_behind_it() -> None:
    assert number_key(6) < number_key(6) + SEVERAL < key_behind(6) < number_key(7)
