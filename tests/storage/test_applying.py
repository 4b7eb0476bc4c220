"""What is committed is applied in pieces, and comes to the same."""

from typing import Any

import pytest

from storage.applying import LOOK_EVERY, apply_now, applying
from storage.entry import StoredEntry
from storage.entry_making import make_entries
from storage.records import Confirm, Produce
from storage.state import ShardState

PRODUCED = 20


def entries() -> list[StoredEntry]:
    records: list[Any] = [
        Produce("q", number * 512, b"x", 1.0, 1.0, 1e9, 60.0, 0, None) for number in range(1, PRODUCED + 1)
    ]
    first = make_entries(1, 1, 1.0, records, 1 << 20)
    second = make_entries(1, PRODUCED + 1, 2.0, [Confirm("q", [512, 1024], [0, 0])], 1 << 20)
    return [*first, *second]


def whole() -> ShardState:
    state = ShardState()
    apply_now(state, entries())
    return state


def shown(state: ShardState) -> Any:
    return (sorted(state.messages), state.trans_id, state.time, len(state.queues["q"].ready))


def test_all_at_once() -> None:
    state = ShardState()
    apply_now(state, entries())
    assert shown(state) == shown(whole())


def test_some_in_each_piece() -> None:
    state = ShardState()
    seen = [state.trans_id for _ in applying(state, entries(), lambda: True)]
    assert seen == [*range(LOOK_EVERY, PRODUCED, LOOK_EVERY), PRODUCED]
    assert shown(state) == shown(whole())


def test_what_the_state_has_is_passed_over() -> None:
    state = whole()
    assert len([*applying(state, entries(), lambda: True)]) == 1, "it is asked between two entries"
    assert shown(state) == shown(whole())


def test_a_gap_is_a_fault_of_ours() -> None:
    with pytest.raises(AssertionError):
        apply_now(ShardState(), entries()[1:])
