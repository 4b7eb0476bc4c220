"""The log on this node: what is in it, on its disk, committed, and applied by the owner. A machine.

It knows no role: a leader appends to it, a follower takes what it is sent, and both hold the same one. Rules here:

- what is committed is never dropped (Leader Completeness needs it: Ongaro's dissertation, 3.6.3);
- a record counts as durable when the disk has it, and not when it was cut off meanwhile and another took its number;
- the owner's state never holds what the log does not say.
"""

import math
from collections import deque

from actors.cluster.decisions import Decisions, WriteEntries
from actors.cluster.membership import Membership
from actors.messages.checkpoints import LoadState
from actors.messages.log import Apply, LogCut, Promoted, StateDropped, StateLoaded
from storage import entry_codec
from storage.entry import StoredEntry
from storage.log_tail import LogTail
from storage.records import Members


class WritesUnderWay:
    """Entries that are on their way to the disk: how many there were by each, and which record it ends with.

    `room_bytes`: what the journal still takes.
    """

    def __init__(self) -> None:
        self.room_bytes: float = math.inf
        self._count = 0
        self._ends: deque[tuple[int, int]] = deque()
        self._oldest: tuple[int, float] = (0, 0.0)

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, entries: list[StoredEntry]) -> None:
        """Note that these are written next."""
        for entry in entries:
            self._count += 1
            self._ends.append((self._count, entry.last_trans_id))

    def done(self, count: int, durable: int) -> int:
        """Note that the first `count` since the start are on the disk; up to which record that is, `durable` before
        them."""
        while self._ends and self._ends[0][0] <= count:
            durable = self._ends.popleft()[1]
        return durable

    def cut(self, after: int) -> None:
        """No record behind `after` counts, though it may be written."""
        self._ends = deque((count, min(last, after)) for count, last in self._ends)

    def reset(self, trans_id: int) -> None:
        """Forget what is being written: the log is another one, which ends at `trans_id`, and it is nothing of that."""
        self._ends = deque((count, trans_id) for count, _ in self._ends)

    def silent_s(self, now: float) -> float:
        """For how long the disk has been seen with the same oldest write under way (s); asked now and then."""
        if not self._ends:
            return 0.0
        oldest = self._ends[0][0]
        if oldest != self._oldest[0]:
            self._oldest = (oldest, now)
        return now - self._oldest[1]


class ReplicatedLog:
    """One shard's log on one node, as recovery left it.

    `committed` is what this node knows to be so, `durable` what its disk has, `applied` what its owner has been told;
    LMDB begins behind `trimmed`. `disk_full` says why nothing can be stored. `lacks_blocks`: messages of topics are
    on their way here.
    `stored_said` counts what was answered to leaders: each such answer may extend a lease.
    `abstains`: it was lost, and counts for nothing before it has all again that the leader's has.
    `contradiction`: why this log and the leader's can't be one: something is committed here that the leader has not.
    """

    def __init__(self, tail: LogTail, membership: Membership, committed: int, trimmed: int = 0) -> None:
        self.node_id = membership.own.node_id
        self.tail = tail
        self.membership = membership
        self.committed = committed
        self.durable = tail.end.trans_id
        self.applied = committed
        self.trimmed = trimmed
        self.is_installing = False
        self.stored_said = 0
        self._is_dropping = False
        self._loads = 0
        self.disk_full: str | None = None
        self.lacks_blocks = False
        self.contradiction: str | None = None
        self.abstains = False
        self.writing = WritesUnderWay()

    def append(self, entries: list[StoredEntry], *, others_wait: bool) -> Decisions:
        """Entries that follow what is here: in the log from now on, durable when `written` says so.

        `others_wait`: there is something else to be done with them, too, before they are on the disk.
        """
        for entry in entries:
            self.tail.append(entry)
            if entry.first_trans_id == entry.last_trans_id:  # a change of the members is an entry of its own
                self.membership.appended(entry)
        return [self._write(entries, others_wait=others_wait)]

    def _write(self, entries: list[StoredEntry], *, others_wait: bool) -> WriteEntries:
        self.writing.begin(entries)
        return WriteEntries(entries, others_wait)

    def written(self, entry_count: int, room_bytes: float) -> None:
        """Note that the first so many entries since the start are on this node's disk."""
        self.writing.room_bytes = room_bytes
        self.durable = self.writing.done(entry_count, self.durable)

    def cut(self, vote_id: int, after: int) -> Decisions:
        """Drop the entries behind record `after`, which are not committed; what is being written does not count."""
        # Leader completeness: no leader's log contradicts what is committed, so that nothing can ask for this (3.6.3).
        assert after >= self.committed, f"committed records behind {after} (up to {self.committed}) would be dropped"
        self.tail.cut(after)
        # What is being written behind `after` will be on the disk under numbers that others get: it must not count.
        self.durable = min(self.durable, after)
        self.writing.cut(after)
        self.membership.cut(after)
        decisions: Decisions = [self._write([entry_codec.cut(vote_id, after)], others_wait=True)]
        if self.applied > after and not self.is_reloading:  # or a fresh state is on its way, of what is committed
            self.applied = after
            decisions.append(LogCut(after))
        return decisions

    def settle(self, committed: int) -> None:
        """Commit the records up to there."""
        # The commit point only grows, and never past the log (state machine safety, 3.6.3).
        assert self.committed <= committed <= self.tail.end.trans_id, (self.committed, committed, self.tail.end)
        self.committed = committed
        self.membership.committed(committed)

    # -- the owner's state -------------------------------------------------------------------------------------

    def reload(self) -> Decisions:
        """Ask for a fresh state, since the owner's is not what the log says."""
        if self.is_reloading:
            return []
        self._is_dropping = True
        return [StateDropped()]

    def state_gone(self) -> Decisions:
        """Note that the owner has let go of the old one."""
        if not self._is_dropping:
            return []
        self._is_dropping = False
        self._loads += 1
        return [LoadState()]

    @property
    def is_reloading(self) -> bool:
        """Whether a fresh state is to come and is not there."""
        return self._is_dropping or self._loads > 0

    def state_loaded(self, message: StateLoaded) -> Decisions:
        """Give the owner a fresh state of what LMDB has; the rest of what is committed follows it."""
        self._loads -= 1
        if self.is_reloading:
            return []  # another is to come
        self.applied = message.state.trans_id
        return [message]

    def apply_committed(self) -> Decisions:
        """Let a follower's owner apply what is committed and was not applied yet."""
        if self.is_reloading or self.applied >= self.committed:
            return []
        entries = self.tail.behind(self.applied, up_to=self.committed)
        if not entries:
            return []
        self.applied = entries[-1].last_trans_id
        return [Apply(entries)]

    def promote(self, vote_id: int) -> Decisions:
        """Let the owner lead, with all that the log holds."""
        if self.is_reloading:
            return []  # when the fresh state has come
        entries = self.tail.behind(self.applied)
        self.applied = self.tail.end.trans_id
        return [Promoted(vote_id, entries)]

    # -- LMDB --------------------------------------------------------------------------------------------------

    def unstored(self) -> list[StoredEntry]:
        """Give what is committed and not in LMDB yet."""
        return self.tail.behind(self.tail.checkpointed, up_to=self.committed)

    def checkpointed(self, trans_id: int, trimmed: int) -> bool:
        """LMDB has the records behind `trimmed` up to `trans_id`; False if a snapshot has taken their place since."""
        if trans_id < self.tail.checkpointed or trimmed < self.trimmed:
            return False
        self.trimmed = trimmed
        self.tail.forget(trans_id)
        self.tail.forget_history(trimmed)
        return True

    def is_behind(self, trimmed: int) -> bool:
        """Whether a log that begins behind record `trimmed` would be news here."""
        return self.tail.end.trans_id < trimmed and not self.is_installing

    def installed(self, trimmed: int, vote_id: int, members: Members | None) -> Decisions:
        """Go on behind record `trimmed`: a snapshot has taken the place of all that LMDB held."""
        self.is_installing = False
        self.tail.reset(trimmed, vote_id)
        self.committed = self.durable = self.trimmed = trimmed
        self.writing.reset(trimmed)
        self.membership.replaced(members)
        self._is_dropping = True  # whatever state was asked for before is none of this log
        return [StateDropped()]
