"""Applying: what is committed to a state, in pieces. A machine.

An entry may hold the acknowledgements of ten thousand messages, and several may be committed at once. Between pieces
the state is in the middle of an entry: nobody may ask it anything meanwhile.
"""

from collections.abc import Callable
from typing import Final

from storage import entry_codec
from storage.entry import Entry, StoredEntry
from storage.state import ShardState

LOOK_EVERY: Final = 2
"""Behind so many records it is asked whether it is late: one may clear two thousand messages, which takes 5 ms."""


class Applying:
    """Of one state, which the `entries` follow; those that it has are passed over."""

    def __init__(self, state: ShardState, entries: list[StoredEntry]) -> None:
        self._state = state
        self._entries = entries
        self._next = 0
        self._entry: Entry | None = None
        self._applied = 0

    def go_on(self, is_late: Callable[[], bool]) -> bool:
        """Apply some records, a few at least, until it is late. Whether all are."""
        while True:
            entry = self._entry
            if entry is None:
                if self._next == len(self._entries):
                    return True
                entry = self._begin()
            if entry is not None:
                if not self._apply(entry, is_late):
                    return False
                self._entry = None
            if self._next < len(self._entries) and is_late():
                return False

    def _begin(self) -> Entry | None:
        """Decode the next entry; None if the state has it, from when this node led."""
        entry = entry_codec.read(self._entries[self._next], "a replicated entry")
        self._next += 1
        if entry.last_trans_id <= self._state.trans_id:
            return None
        assert entry.first_trans_id == self._state.trans_id + 1, (entry.first_trans_id, self._state.trans_id)
        self._entry, self._applied = entry, 0
        return entry

    def _apply(self, entry: Entry, is_late: Callable[[], bool]) -> bool:
        """Apply records of an entry until it is late; whether all of them are."""
        state, records, time = self._state, entry.records, entry.time
        count = len(records)
        applied = self._applied
        while applied < count:
            state.follow(entry.first_trans_id + applied, records[applied], time)
            applied += 1
            if not applied % LOOK_EVERY and applied < count and is_late():
                self._applied = applied
                return False
        state.close_entry(entry)
        return True
