"""Following: takes what the leader pushes, pulls what this node lacks, drops what the leader's log contradicts.

A role, which begins with a leader of a vote_id (or with none that is known) and ends with it: nothing that was learned
from one leader is left over for the next. Every message that comes here has passed the front door, `Replication`, so
it is the leader's, and of this vote_id.

Raft's rules for a follower (Ongaro's dissertation, 3.5 and figure 3.1), and where they are kept:

- entries are taken only behind a record that both logs have from the same vote_id (`_accept`: log matching);
- an entry that contradicts one here takes its place, with all behind it, but never a committed one (`_accept`);
- the commit point never passes what is known to agree with this leader's log (`_advance`: its `min`);
- stored is said only of what this node's disk has, and what is known to agree (`_say_stored`).

A leader's log that lacks a record which is committed here is another history, as after a restored backup: only the
operator can tell which is the right one (`_contradicted`).
"""

import math
from dataclasses import dataclass, field
from typing import Final

from actors.cluster.decisions import Decisions
from actors.cluster.progress import WINDOW_BYTES
from actors.cluster.pushing import Lateness
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.election import LeaderHeard
from actors.messages.peers import CutPeer, SendPeers
from net.peers.messages import Diverged, Pull, Push, Stored
from storage import entry_codec
from storage.entry import LogEnd, StoredEntry
from storage.errors import DamagedError, StorageError
from storage.records import LEVEL
from storage.sections import level_fault

PULL_RECORDS_MAX: Final = 20_000
PULL_RETRY_S: Final = 0.5
TAIL_BYTES_MAX: Final = 32 << 20
"""A follower pulls no entries while so much of its log waits for the disk or for its commit."""

PULL_BYTES: Final = 1 << 20
PUSH_BYTES: Final = 8 << 20
"""One push holds so much, or one entry: far below what a frame between nodes may have."""


class ContradictionError(DamagedError):
    """The leader's log and this node's have another record at a place that is committed here."""


@dataclass(frozen=True)
class ReplicationLimits:
    """`timeout_s`: the least election time-out; `records_per_s`: what pulls may take.

    `pull_bytes`, `window_bytes`, `push_bytes`: a pull's answer, what may be on its way to a follower, and one push;
    each may be passed by one entry. `tail_bytes_max`: see `TAIL_BYTES_MAX`. `lateness`: of pushes to those who are not
    needed for a commit.
    """

    timeout_s: float = 0.4
    records_per_s: int = 100_000
    pull_bytes: int = PULL_BYTES
    window_bytes: int = WINDOW_BYTES
    push_bytes: int = PUSH_BYTES
    tail_bytes_max: int = TAIL_BYTES_MAX
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def heartbeat_s(self) -> float:
        """How often a leader says that it leads."""
        return self.timeout_s / 8

    @property
    def heard_s(self) -> float:
        """A node that was not heard for so long can't take a leader's place: eight heartbeats, a second at least."""
        return max(1.0, self.timeout_s)

    @property
    def hand_over_s(self) -> float:
        """A successor that does not lead after so long is given up: some elections."""
        return max(2.0, 3 * self.timeout_s)


READ_RECORDS_MAX: Final = 10_000
"""What is not applied yet is kept as it was read, up to so many records, in entries of at most `READ_BYTES_MAX`."""

READ_BYTES_MAX: Final = 64 << 10


class Pace:
    """`records_per_s` records (or rows of a snapshot) a second, at most a fifth of a second's worth at once, or one.

    Times are monotonic seconds.
    """

    def __init__(self, records_per_s: int, now: float) -> None:
        self._records_per_s = records_per_s
        self._allowance = float(records_per_s)
        self._at = now

    def allowed(self, now: float) -> float:
        """How many records may be pulled now."""
        passed = max(now - self._at, 0.0)
        self._at = now
        self._allowance = min(self._allowance + passed * self._records_per_s, max(self._records_per_s / 5, 1.0))
        return self._allowance

    def spend(self, records: int) -> None:
        """So many were pulled."""
        self._allowance -= records


class Following:
    """Of `leader`, in `vote_id`; None: nobody is known to lead. Times are monotonic seconds."""

    def __init__(
        self, log: ReplicatedLog, limits: ReplicationLimits, pace: Pace, vote_id: int, leader: int | None
    ) -> None:
        self.log = log
        self.vote_id = vote_id
        self.leader = leader
        self.next_pull_at = math.inf
        self._limits = limits
        self._pace = pace
        self._agreed = log.committed
        self._leader_committed = log.committed
        self._echo = -1.0
        self._told_elector_at = -math.inf
        self._said_stored_at = -math.inf
        self._pull_sent_at: float | None = None
        self._asked_long_at = -math.inf
        self._whole_at: int | None = None

    # -- from the leader ---------------------------------------------------------------------------------------

    def push(self, now: float, node_id: int, push: Push) -> Decisions:
        """Take the leader's entries, or a heartbeat, or what was pulled."""
        decisions = self.alive(now, node_id)
        if self.log.is_installing:
            return decisions + self._say_stored(now)  # a snapshot takes the log's place just now
        if push.is_pulled:
            self._pull_sent_at = None
        try:
            fits = self._accept(push, decisions)
        except ContradictionError as contradiction:
            return self._contradicted(contradiction)
        except StorageError as error:
            return [*decisions, CutPeer(node_id, str(error))]
        self._echo = max(self._echo, push.sent_at)
        if fits:
            self._leader_committed = max(self._leader_committed, push.committed)
            decisions += self._advance()
            if not push.is_pulled and (fault := self._level_fault(push.committed)):
                return [*decisions, CutPeer(node_id, fault)]
            if self.log.abstains and push.is_pulled and push.is_end and self._whole_at is None:
                self._whole_at = self._agreed
            self._see_whether_whole()
        if not push.entries or not self.log.writing:
            decisions += self._say_stored(now)
        if not fits or (push.is_pulled and not push.is_end):
            decisions += self.pull(now)
        return decisions

    def alive(self, now: float, node_id: int) -> Decisions:
        """Tell that the leader lives: often enough for the Elector's patience, not each time."""
        if now - self._told_elector_at < self._limits.heartbeat_s / 4:
            return []
        self._told_elector_at = now
        return [LeaderHeard(self.vote_id, node_id)]

    def receiving(self, now: float, node_id: int) -> Decisions:
        """Wait for a leader that is in the middle of something long: it leads still, and hears that this node does
        follow."""
        decisions = self.alive(now, node_id)
        is_due = now - self._said_stored_at >= self._limits.heartbeat_s / 2
        return decisions + self._say_stored(now) if is_due else decisions

    def _accept(self, push: Push, decisions: Decisions) -> bool:
        """Take what is new of a push; False if it does not follow what is here. Raises `StorageError`."""
        log, tail = self.log, self.log.tail
        # Entries are taken only behind a record that both logs have from the same vote_id: then all before it is the
        # same, too (log matching, 3.5). What is committed here is so in any leader's log (3.6.3).
        if push.after > tail.end.trans_id:
            return False
        if push.after > log.committed and tail.vote_id_at(push.after) != push.after_vote_id:
            return False
        if push.entries and tail.bytes > 2 * self._limits.tail_bytes_max:
            return False  # LMDB is behind: the leader may push on when this node has pulled
        after, made_by = push.after, push.after_vote_id
        new: list[StoredEntry] = []
        for data in push.entries:
            entry = entry_codec.received_entry(data, f"an entry behind {after}")
            if entry.first_trans_id != after + 1 or not made_by <= entry.vote_id <= push.vote_id:
                raise DamagedError(f"an entry behind {after}", f"it holds {entry.place}, said under {push.vote_id}")
            after, made_by = entry.last_trans_id, entry.vote_id
            if len(data) > READ_BYTES_MAX or after - log.applied > READ_RECORDS_MAX:
                entry.read = None  # it is read again when it is applied, which may not be soon
            known = tail.vote_id_at(after)
            # An entry that contradicts one here takes its place, with all behind it (3.5); one that is here already, or
            # stands before what is committed, changes nothing: pushes may come twice, and late.
            if new or (after > log.committed and known != entry.vote_id):
                new.append(entry)
            elif known is not None and known != entry.vote_id:
                what = f"the leader's is of vote {entry.vote_id}, and this node's, which is committed, of vote {known}"
                raise ContradictionError(f"record {after}", what)
        if new:
            before = new[0].first_trans_id - 1
            if new[0].vote_id < (tail.vote_id_at(before) or 0):
                raise DamagedError(f"an entry behind {before}", f"it is of vote {new[0].vote_id}, after a later one's")
            if before < tail.end.trans_id:
                # What is committed is never cut off (3.6.3): a push that asks for it is none of Raft's.
                if before < log.committed or tail.boundary(before) != before:
                    raise DamagedError(f"an entry behind {before}", "no entry here ends where it begins")
                decisions += self._cut(before)
            decisions += log.append(new, others_wait=False)
            if push.is_pulled:
                self._pace.spend(new[-1].last_trans_id - new[0].first_trans_id + 1)
        self._agreed = max(self._agreed, after)
        return True

    def _contradicted(self, what: object) -> Decisions:
        """Nothing more is taken from this leader, and nothing said to it."""
        self.log.contradiction = str(what)
        return []

    def _cut(self, after: int) -> Decisions:
        self._agreed = min(self._agreed, after)
        return self.log.cut(self.vote_id, after)

    def _advance(self) -> Decisions:
        # Not past what is known to agree with this leader's log: behind that may stand entries of a lost lead (3.5,
        # figure 3.1). Nor past this disk, since what was applied must be here after a crash.
        committed = min(min(self._leader_committed, self._agreed), self.log.durable)
        if committed > self.log.committed:
            committed = self.log.tail.boundary(committed)  # entries are committed whole
        if committed > self.log.committed:
            self.log.settle(committed)
        return self.log.apply_committed()

    def _say_stored(self, now: float) -> Decisions:
        assert self.leader is not None
        self._said_stored_at = now
        # The leader counts on this for its commit, so it is what the disk has (3.8), and what agrees with that log
        # (3.5).
        trans_id = min(self.log.durable, self._agreed)
        self.log.stored_said += 1
        is_full, promise_s = self.log.disk_full is not None, self._limits.timeout_s
        said = Stored(self.vote_id, trans_id, self._echo, is_full, promise_s, self.log.lacks_blocks)
        return [SendPeers((self.leader,), said)]

    def written(self, now: float) -> Decisions:
        """Note that this node's disk has more of the log."""
        if self.leader is None:
            return []
        self._see_whether_whole()
        return self._advance() + self._say_stored(now)

    def _level_fault(self, committed: int) -> str | None:
        """Why nothing is taken from this leader: its cluster is of an older version, which is certain once all is here
        that it has committed."""
        membership = self.log.membership
        if self.log.committed < committed or not membership.is_settled:
            return None
        return level_fault(membership.level, LEVEL)

    def _see_whether_whole(self) -> None:
        """Count a log that was lost as whole when this disk has what the leader's held at some moment since.

        Whatever this node had said that it stores is in there: the leader, or one before it, counted on it, or counts
        on it yet (3.6.3 of the dissertation, with this node in no majority that elects meanwhile).
        """
        if self._whole_at is not None and self.log.durable >= self._whole_at:
            self.log.abstains = False

    def state_loaded(self) -> Decisions:
        """Go on with the fresh state that the owner has."""
        return self.log.apply_committed()

    # -- pulling -----------------------------------------------------------------------------------------------

    def pull(self, now: float) -> Decisions:
        """Ask the leader for what follows this log, unless it was asked already or the rate does not allow it yet.

        With a long tail for no entries, but whether the two logs agree: the tail may be of a lost lead, and never go by
        itself, since nobody commits it. Only the leader's answer takes it away, so it is asked for in any case.
        """
        if self.leader is None or self.log.is_installing:
            return []
        if self._pull_sent_at is not None and now - self._pull_sent_at < PULL_RETRY_S:
            return []
        allowed = self._pace.allowed(now)
        if allowed < 1:
            self.next_pull_at = now + 0.02
            return []
        is_long = self.log.tail.bytes > self._limits.tail_bytes_max
        if is_long and now < self._asked_long_at + PULL_RETRY_S:
            self.next_pull_at = now + 0.02
            return []
        self._asked_long_at = now if is_long else -math.inf
        self.next_pull_at = now + PULL_RETRY_S if is_long else math.inf
        if self.log.abstains:
            self.next_pull_at = min(self.next_pull_at, now + PULL_RETRY_S)  # until it is known where the leader's ends
        self._pull_sent_at = now
        end = self.log.tail.end
        pull = Pull(self.vote_id, end.trans_id, end.vote_id, 0 if is_long else min(int(allowed), PULL_RECORDS_MAX))
        return [SendPeers((self.leader,), pull)]

    def diverged(self, now: float, message: Diverged) -> Decisions:
        """Drop the log behind some record, where the leader's is another one, and pull again."""
        tail = self.log.tail
        if tail.end != LogEnd(message.after_vote_id, message.after):
            return []  # an answer come late: the log is another one since
        # A leader has all that is committed (3.6.3): one that lacks some is of another history.
        if message.up_to < self.log.committed:
            what = f"the leader of vote {self.vote_id} has none of the records from {message.up_to + 1} on"
            return self._contradicted(f"{what}, and this node's are committed up to {self.log.committed}")
        up_to = max(tail.boundary(message.up_to), self.log.committed, self._agreed)
        if up_to >= tail.end.trans_id:
            return []
        decisions = self._cut(up_to)
        self._pull_sent_at = None
        return decisions + self.pull(now)

    def installed(self, now: float) -> Decisions:
        """Go on behind a snapshot that has taken the log's place."""
        self._agreed = self._leader_committed = self.log.committed
        self._pull_sent_at = None
        return self.pull(now)

    def tick(self, now: float) -> Decisions:
        """Time has passed."""
        return self.pull(now) if now >= self.next_pull_at else []
