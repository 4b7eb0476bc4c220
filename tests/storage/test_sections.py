"""What outlives the log beside messages and queues: kept by whatever keeps the rest."""

from typing import Any

import pytest

from storage import sections
from storage.errors import DamagedError
from storage.log_store import LogStore, SnapshotPart
from storage.records import Member, Members, ReaderPosition
from storage.recovery import load_state
from storage.repair import repair
from storage.sections import NO_ROWS, SECTIONS, padded, rows_of
from storage.snapshot_check import check_part
from storage.state import ShardState
from storage.tables import LmdbTables
from storage.tenures import Tenure, Tenures
from storage.trimming import Trim, TrimRows
from tests.storage.memory import MemoryFolder

MEMBERS = Members("", 9, [Member(1, "a", 1, 11, is_voter=True)], [])


def filled() -> ShardState:
    state = ShardState()
    state.facts.members = MEMBERS
    state.facts.readers = {"archive": ReaderPosition(7, 5.0)}
    state.facts.tenures = Tenures([Tenure(1, 0), Tenure(2, 7)])
    return state


def test_every_section_comes_back_as_it_was_and_an_empty_one_has_no_row() -> None:
    state, back = filled(), ShardState()
    for section, row in zip(SECTIONS, rows_of(state), strict=True):
        assert row, f"{section.name} is to be tried here"
        section.into_facts(back.facts, section.decode(row))
    assert (back.facts.members, back.facts.readers, back.facts.tenures.rows) == (
        state.facts.members,
        state.facts.readers,
        state.facts.tenures.rows,
    )
    assert rows_of(ShardState()) == NO_ROWS


def test_a_repair_keeps_all_sections(tmp_path: Any) -> None:
    """It kept the members, and forgot where the log's readers were: they would have begun anew, or lost their place."""
    store = LogStore(LmdbTables(tmp_path), 0)
    store.trim(Trim(5, 1, TrimRows([], [("q", b"garbage")], rows_of(filled()))))
    findings = repair(store.tables, MemoryFolder(), 0)
    assert len(findings.faults) == 1
    state = ShardState()
    load_state(store.tables, LogStore(store.tables, 0), state)
    assert (state.facts.members, state.facts.readers) == (MEMBERS, {"archive": ReaderPosition(7, 5.0)})


def test_a_trim_takes_away_the_rows_of_sections_that_are_empty_now_but_not_the_members(tmp_path: Any) -> None:
    """Found by turning a line: which rows a trim takes away mattered to no test."""
    store = LogStore(LmdbTables(tmp_path), 0)
    store.trim(Trim(5, 1, TrimRows([], [], rows_of(filled()))))
    store.trim(Trim(6, 1, TrimRows([], [], NO_ROWS)))
    state = ShardState()
    load_state(store.tables, LogStore(store.tables, 0), state)
    assert (state.facts.members, state.facts.readers, state.facts.tenures.rows) == (MEMBERS, {}, [])


def test_a_damaged_section_is_named() -> None:
    for place in range(len(SECTIONS)):
        rows = tuple(b"\xc1" if at == place else b"" for at in range(len(SECTIONS)))
        with pytest.raises(DamagedError):
            check_part(SnapshotPart(5, 1, [], b"", True, rows))


def test_a_version_with_fewer_sections_sends_fewer_and_one_with_more_is_not_understood() -> None:
    members = rows_of(filled())[0]
    assert padded((members,)) == (members, *NO_ROWS[1:])
    sections.check(padded((members,)))
    with pytest.raises(ValueError, match="zip"):
        sections.check((*NO_ROWS, b"x"))
