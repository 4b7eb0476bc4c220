"""The log's end in memory: the entries that LMDB does not have, and which vote_id made which record.

A log is a row of stretches, each made by the leader of one vote_id, so that a short list says for every record that
is kept which vote_id made it, on disk or not. Two logs that have the same vote_id at a record agree up to there
(Raft's log matching, on entries).
"""

from bisect import bisect_right
from collections import deque
from typing import Final

from msgspec.structs import astuple

from storage.entry import LogEnd, StoredEntry

_fields_of: Final = astuple
assert StoredEntry.__struct_fields__ == ("first_trans_id", "last_trans_id", "vote_id", "data", "is_members", "read")
_LogEnd: Final = LogEnd


def _last_of(entry: StoredEntry) -> int:
    return entry.last_trans_id


class LogTail:
    """`history`: (first record, vote_id) of each stretch, in order, the first of them covering `trimmed`.

    LMDB holds the records up to `checkpointed`, which is all of `history` that is not in `entries`.
    """

    def __init__(self, history: list[tuple[int, int]], checkpointed: int, entries: list[StoredEntry]) -> None:
        self._history = history or [(0, 0)]
        while len(self._history) > 1 and self._history[-1][0] > checkpointed:
            self._history.pop()  # said again by the entries themselves
        self._entries: deque[StoredEntry] = deque()
        self.checkpointed = checkpointed
        self.bytes = 0
        self.end = LogEnd(self._history[-1][1], checkpointed)
        for entry in entries:
            self.append(entry)

    def append(self, entry: StoredEntry) -> None:
        """Add the next entry."""
        first, last, vote_id, data, _, _ = _fields_of(entry)
        end_vote_id, end = self.end.vote_id, self.end.trans_id
        assert first == end + 1, (entry.place, self.end)
        assert vote_id >= end_vote_id, (entry.place, self.end)
        if vote_id != end_vote_id:
            self._history.append((first, vote_id))
        self._entries.append(entry)
        self.bytes += len(data)
        self.end = _LogEnd(vote_id, last)

    def cut(self, after: int) -> None:
        """Drop the entries behind record `after`, where one of them ends; LMDB has none of them."""
        assert after >= self.checkpointed
        while self._entries and self._entries[-1].last_trans_id > after:
            self.bytes -= len(self._entries.pop().data)
        assert not self._entries or self._entries[-1].last_trans_id == after
        assert self._entries or self.checkpointed == after
        while self._history[-1][0] > after:
            self._history.pop()
        self.end = LogEnd(self._history[-1][1], after)

    def forget(self, checkpointed: int) -> None:
        """LMDB has the records up to `checkpointed`."""
        while self._entries and self._entries[0].last_trans_id <= checkpointed:
            self.bytes -= len(self._entries.popleft().data)
        self.checkpointed = max(self.checkpointed, checkpointed)

    def forget_history(self, trimmed: int) -> None:
        """Nobody will ask about records before `trimmed`."""
        while len(self._history) > 1 and self._history[1][0] <= trimmed:
            del self._history[0]

    def reset(self, trans_id: int, vote_id: int) -> None:
        """Empty the log behind record `trans_id`, which `vote_id` made: a snapshot was taken over."""
        self._history = [(trans_id, vote_id)]
        self._entries.clear()
        self.bytes = 0
        self.checkpointed = trans_id
        self.end = LogEnd(vote_id, trans_id)

    def vote_id_at(self, trans_id: int) -> int | None:
        """Which vote_id made that record; None if it is not known (any more, or yet)."""
        if trans_id > self.end.trans_id:
            return None
        at = bisect_right(self._history, (trans_id, 1 << 62)) - 1
        return self._history[at][1] if at >= 0 else None

    def end_of(self, vote_id: int) -> int:
        """Find the last record that `vote_id`, or one before it, made."""
        for index in range(len(self._history) - 1, -1, -1):
            if self._history[index][1] <= vote_id:
                later = self._history[index + 1 :]
                return later[0][0] - 1 if later else self.end.trans_id
        return 0

    def boundary(self, at_most: int) -> int:
        """Find the end of the last entry in memory that ends at or before `at_most`; `checkpointed` if there is
        none."""
        for entry in reversed(self._entries):
            if entry.last_trans_id <= at_most:
                return entry.last_trans_id
        return self.checkpointed

    def behind(self, after: int, up_to: int | None = None, bytes_max: int | None = None) -> list[StoredEntry]:
        """Give the entries in memory behind record `after`, up to record `up_to` or until `bytes_max` is passed."""
        if after >= self.end.trans_id:
            return []
        found: list[StoredEntry] = []
        size = 0
        entries = self._entries
        for index in range(bisect_right(entries, after, key=_last_of), len(entries)):
            entry = entries[index]  # near either end that takes no time, and what is asked for is
            if (up_to is not None and entry.last_trans_id > up_to) or (bytes_max is not None and size >= bytes_max):
                break
            found.append(entry)
            size += len(entry.data)
        return found
