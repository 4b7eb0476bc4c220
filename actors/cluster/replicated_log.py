"""The log on this node: what is in it, on its disk, committed, and applied by the owner. A part of `Replication`.

Rules that hold here: what is committed is never dropped; a record counts as stored when the disk has it, and not when
it was cut off meanwhile and another took its number; the owner's state never holds what the log does not say.

`out` holds what is to be sent, in order: (to whom, message).
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final

from actors.cluster.membership import Membership
from actors.messages.checkpoints import LoadState
from actors.messages.log import Apply, Promoted, StateDropped, StateLoaded
from storage import entry as entry_codec
from storage.entry import StoredEntry
from storage.log_tail import LogTail

OWNER: Final = "owner"
ELECTOR: Final = "elector"
LOG_WRITER: Final = "log_writer"
CHECKPOINTER: Final = "checkpointer"
PEERS: Final = "peers"


class ReplicatedLog(ABC):
    """One shard's log on one node, as recovery left it; `committed` is what its disk knows to be so."""

    def __init__(self, tail: LogTail, membership: Membership, committed: int, vote_id: int) -> None:
        self.node_id = membership.own.node_id
        self.tail = tail
        self.membership = membership
        self.vote_id = vote_id
        self.is_leading = False
        self.committed = committed
        self.stored = tail.end.trans_id
        self.applied = committed
        self.is_reloading = False
        self.is_installing = False
        self.trimmed = 0
        self.room_bytes = math.inf
        self.disk_full: str | None = None
        self.out: list[tuple[str, Any]] = []
        self._agreed = committed
        self._write_count = 0
        self._writing: deque[tuple[int, int]] = deque()

    @abstractmethod
    def _members_changed(self) -> None:
        """The log says other members than before."""

    def _settle(self, committed: int) -> None:
        self.committed = committed
        self.membership.committed(committed)

    def _take(self, entry: StoredEntry) -> None:
        self.tail.append(entry)
        if entry.first_trans_id == entry.last_trans_id and self.membership.appended(entry.first_trans_id, entry.data):
            self._members_changed()

    def _write(self, entries: list[StoredEntry]) -> None:
        for entry in entries:
            self._write_count += 1
            self._writing.append((self._write_count, entry.last_trans_id))
        self.out.append((LOG_WRITER, entries))

    def _cut(self, after: int) -> None:
        """Drop the entries behind record `after`, which are not committed; what is being written does not count."""
        assert after >= self.committed, f"committed records behind {after} (up to {self.committed}) would be dropped"
        self.tail.cut(after)
        self._agreed = min(self._agreed, after)
        self.stored = min(self.stored, after)
        self._writing = deque((count, min(last, after)) for count, last in self._writing)
        self._write([entry_codec.cut(self.vote_id, after)])
        if self.membership.cut(after):
            self._members_changed()
        if self.applied > after and not self.is_reloading:
            self.reload()

    def reload(self) -> None:
        """The owner's state is not what the log says: it gets a fresh one."""
        if not self.is_reloading:
            self.is_reloading = True
            self.out.append((OWNER, StateDropped()))
            self.out.append((CHECKPOINTER, LoadState))

    def state_loaded(self, message: StateLoaded) -> None:
        """A fresh state of what LMDB has; the rest of what is committed follows it."""
        self.is_reloading = False
        self.applied = message.state.trans_id
        self.out.append((OWNER, message))
        self._apply_committed()
        if self.is_leading:
            self._promote()

    def _apply_committed(self) -> None:
        if self.is_reloading or self.is_leading or self.applied >= self.committed:
            return
        entries = self.tail.behind(self.applied, up_to=self.committed)
        if entries:
            self.applied = entries[-1].last_trans_id
            self.out.append((OWNER, Apply(entries)))

    def _note_written(self, entry_count: int, room_bytes: float) -> None:
        self.room_bytes = room_bytes
        while self._writing and self._writing[0][0] <= entry_count:
            self.stored = self._writing.popleft()[1]

    def _promote(self) -> None:
        entries = self.tail.behind(self.applied)
        self.applied = self.tail.end.trans_id
        self.out.append((OWNER, Promoted(self.vote_id, entries)))
