"""When LMDB is brought up to date, and what a full disk means; the table of states, cell by cell."""

from actors.cluster.checkpointing import INTERVAL_S, RETRY_S, Checkpointing, Phase
from storage.entry import StoredEntry

ENTRIES = [StoredEntry(1, 1, 1, b"")]


def rested() -> Checkpointing:
    """One that has stored what the journal had left over."""
    machine = Checkpointing()
    assert machine.phase is Phase.STORING
    machine.stored()
    return machine


def test_a_timer_is_set_once_until_it_has_rung() -> None:
    machine = rested()
    assert machine.grown() == INTERVAL_S
    assert machine.grown() is None
    assert machine.due(ENTRIES, may_store=True) == ENTRIES
    assert machine.grown() is None, "one store at a time"
    assert machine.due(ENTRIES, may_store=True) == []
    machine.stored()
    assert machine.grown() == INTERVAL_S


def test_nothing_is_stored_while_the_tables_are_replaced() -> None:
    machine = rested()
    machine.grown()
    assert machine.due(ENTRIES, may_store=False) == []
    assert machine.phase is Phase.RESTING
    assert machine.grown() == INTERVAL_S, "and it is tried again"


def test_a_store_without_space_is_tried_again_and_said_until_it_succeeds() -> None:
    machine = rested()
    machine.grown()
    machine.due(ENTRIES, may_store=True)
    assert machine.failed("no space") == RETRY_S
    assert machine.disk_full == "no space"
    assert machine.due(ENTRIES, may_store=True) == ENTRIES
    machine.stored()
    assert machine.disk_full is None


def test_a_journal_without_space_is_full_until_it_has_some_whatever_lmdb_does() -> None:
    machine = rested()
    machine.journal_space("no segment")
    machine.stored()
    assert machine.disk_full == "no segment"
    machine.journal_space(None)
    assert machine.disk_full is None


def test_a_node_stops_when_lmdb_has_all_or_can_take_nothing() -> None:
    machine = rested()
    assert machine.is_done(has_unstored=False, is_reloading=False)
    assert not machine.is_done(has_unstored=True, is_reloading=False)
    machine.grown()
    machine.due(ENTRIES, may_store=True)
    assert not machine.is_done(has_unstored=False, is_reloading=False), "a store is under way"
    machine.failed("no space")
    assert machine.is_done(has_unstored=True, is_reloading=False), "the journal keeps it"
