"""Applying: what is committed to a state, in pieces.

An entry may hold the acknowledgements of ten thousand messages, and several may be committed at once. Between pieces
the state is in the middle of an entry: nobody may ask it anything meanwhile.
"""

from collections.abc import Callable, Generator
from typing import Final

from storage import entry_codec
from storage.entry import StoredEntry
from storage.state import ShardState

LOOK_EVERY: Final = 2
"""Behind so many records it is asked whether it is late: one may clear two thousand messages, which takes 5 ms."""


def applying(state: ShardState, entries: list[StoredEntry], is_late: Callable[[], bool]) -> Generator[None, None, None]:
    """Apply the entries, which follow the state; those that it has are passed over. Yields where it is late."""
    for place, stored in enumerate(entries, 1):
        entry = entry_codec.read(stored, "a replicated entry")
        if entry.last_trans_id > state.trans_id:  # else the state has it, from when this node led
            assert entry.first_trans_id == state.trans_id + 1, (entry.first_trans_id, state.trans_id)
            trans_id = entry.first_trans_id
            for record in entry.records:
                state.follow(trans_id, record, entry.time)
                trans_id += 1
                applied = trans_id - entry.first_trans_id
                if not applied % LOOK_EVERY and trans_id <= entry.last_trans_id and is_late():
                    yield
            state.close_entry(entry)
        if place < len(entries) and is_late():
            yield


def apply_now(state: ShardState, entries: list[StoredEntry]) -> None:
    """Apply all of them at once."""
    for _ in applying(state, entries, lambda: False):
        raise AssertionError("it is never late")
