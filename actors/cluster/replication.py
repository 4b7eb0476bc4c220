"""Replication: one log on several nodes. The front door of the machines; the host is the Replicator.

All that other nodes say comes in by `heard`, where vote_ids are compared, once: what is said under an older one counts
for nothing, and a later one goes to the Elector, who may then say whom to follow (Ongaro's dissertation, 3.3). What
passes belongs to the role that this node has: `Leading` or `Following`. A change of role makes a new object, so that
nothing is left over from the one before. What both roles hold, `ReplicatedLog`, is this node's log.

How the roles work together:

- the leader pushes each new entry to the followers whose logs end where the entry begins, at once or a little later
  (`Pushing`);
- any other follower pulls: it says where its log ends, and the leader answers with what follows, or with how far the
  two may agree (then the follower drops what is behind that, and pulls again), or that it needs a snapshot first;
- what is on the disks of a majority, and was made by the leader's own vote_id or stands before such an entry, is
  committed.
"""

from actors.cluster.block_intake import BlockIntake
from actors.cluster.decisions import Decisions
from actors.cluster.following import Following, Pace, ReplicationLimits
from actors.cluster.leading import Leading
from actors.cluster.replicated_log import ReplicatedLog
from actors.cluster.snapshot_intake import SnapshotIntake
from actors.messages.checkpoints import EntriesRead, PartStaged, SnapshotRead
from actors.messages.election import (
    AskVotes,
    CastVote,
    LeaderHeard,
    Standing,
    VoteAsked,
    VoteGiven,
)
from actors.messages.log import Append, Deposed, StateLoaded
from actors.messages.peers import CutPeer, PeerSaid, SendPeers
from net.peers.messages import (
    BlocksPull,
    BlocksRows,
    Diverged,
    Pull,
    Push,
    SnapshotNeeded,
    SnapshotPull,
    SnapshotRows,
    Stored,
    TakeOver,
    Vote,
    VoteRequest,
)
from storage.entry import LogEnd
from storage.log_store import Staged
from storage.sections import decode_members

FROM_A_LEADER = (Push, Diverged, SnapshotNeeded, SnapshotRows)
UNDER_A_VOTE = (Stored, Pull, Diverged, SnapshotNeeded, SnapshotPull, SnapshotRows, TakeOver)
"""What is said between a leader and its followers, beside a push."""

VOTE_JUMP_MAX = 1 << 20
"""More elections than there can be in a day without a moment's rest: a vote that far off is not believed."""

NOTHING_STORED = -1.0
"""The echo of a node that answers a leader of long ago: it echoes nothing."""


class Replication:
    """One shard's log on one node, until told otherwise of a node that follows nobody.

    `staged` is a snapshot that an earlier run had begun to take in. Times are seconds of the monotonic clock.
    """

    def __init__(
        self, log: ReplicatedLog, limits: ReplicationLimits, vote_id: int, now: float, staged: Staged | None = None
    ) -> None:
        self.log = log
        self.elections = 0
        self.limits = limits
        self._pace = Pace(limits.records_per_s, now)
        self._intake = SnapshotIntake(log, self._pace, staged)
        self.blocks = BlockIntake(log, limits.pull_bytes)
        self.role: Leading | Following = Following(log, limits, self._pace, vote_id, None)

    @property
    def vote_id(self) -> int:
        """Of the role; what the Elector said last."""
        return self.role.vote_id

    @property
    def leading(self) -> Leading | None:
        """The role, if this node leads."""
        return self.role if isinstance(self.role, Leading) else None

    @property
    def is_leading(self) -> bool:
        """Whether this node leads."""
        return isinstance(self.role, Leading)

    @property
    def leader(self) -> int | None:
        """Who leads, as far as this node knows."""
        return self.role.leader

    # -- from the Elector --------------------------------------------------------------------------------------

    def stand(self, now: float, standing: Standing) -> Decisions:
        """Take the role that the node has now, and say to the others what is to be said.

        Nothing of an older vote_id is accepted from here on, so what is said holds (3.3).
        """
        role, vote_id, leader = self.role, standing.vote_id, standing.leader
        assert vote_id >= role.vote_id
        decisions: Decisions = []
        if (vote_id, leader) != (role.vote_id, role.leader):
            is_own = leader == self.log.node_id
            decisions += self._lead(now, vote_id) if is_own else self._follow(now, vote_id, leader)
        if isinstance(standing.say, AskVotes):
            decisions += self._ask_votes(vote_id, standing.say)
        elif standing.say is not None:
            decisions += self._cast_vote(standing.say)
        return decisions

    def _follow(self, now: float, vote_id: int, leader: int | None) -> Decisions:
        """Another node leads, or none that is known."""
        was_leading = self.is_leading
        self.role = role = Following(self.log, self.limits, self._pace, vote_id, leader)
        decisions: Decisions = []
        if was_leading:
            decisions.append(Deposed(self.log.tail.end.trans_id, self.log.committed, leader))
        return decisions + role.pull(now)

    def _lead(self, now: float, vote_id: int) -> Decisions:
        membership = self.log.membership
        membership.is_founder = membership.current is None
        self.role = role = Leading(self.log, self.limits, vote_id, now)
        return self.log.promote(vote_id) + role.tick(now)

    def _ask_votes(self, vote_id: int, ask: AskVotes) -> Decisions:
        """Ask all voters. A pre-vote is about the election that would follow."""
        if self.log.contradiction is not None:
            return []
        self.elections += not ask.is_pre
        end = self.log.tail.end
        others = tuple(node_id for node_id in self.log.membership.voters if node_id != self.log.node_id)
        request = VoteRequest(vote_id + ask.is_pre, ask.is_pre, ask.is_forced, end.vote_id, end.trans_id)
        return [SendPeers(others, request)] if others else []

    def _cast_vote(self, cast: CastVote) -> Decisions:
        """Send a vote; if what it was decided for is not so any more, the answer is no, and the candidate asks again.

        The log may have grown since the candidate was compared with it (3.6.1). And the leader of before may count on
        what it was answered since (6.4.1).
        """
        vote = cast.vote
        has_answered = cast.stored_said is not None and cast.stored_said != self.log.stored_said
        if vote.is_granted and not vote.is_pre and (self.log.tail.end > cast.end or has_answered):
            vote = Vote(vote.vote_id, False, False)
        return [SendPeers((cast.candidate,), vote)]

    # -- from other nodes: the front door ----------------------------------------------------------------------

    def heard(self, now: float, said: PeerSaid) -> Decisions:
        """Handle what another node says."""
        message, node_id = said.message, said.node_id
        if self.log.contradiction is not None or not self._may_be_heard(said):
            return []
        vote_id = getattr(message, "vote_id", 0)
        if vote_id > self.vote_id + VOTE_JUMP_MAX:
            return [CutPeer(node_id, f"it speaks of vote {vote_id}, and this node knows of none behind {self.vote_id}")]
        if isinstance(message, BlocksPull):
            return self.blocks.pulled_by(node_id, message)
        if isinstance(message, BlocksRows):
            return self.blocks.rows(now, node_id, message)
        if isinstance(message, Push):
            return self._pushed(now, said, message)
        if isinstance(message, VoteRequest):
            return self._vote_asked(said, message)
        if isinstance(message, Vote):
            return [VoteGiven(node_id, message)]
        if not isinstance(message, UNDER_A_VOTE):
            raise TypeError(message)
        # What is said under an earlier vote_id counts for nothing, and a later one ends this role (3.3).
        if message.vote_id != self.vote_id:
            return [LeaderHeard(message.vote_id, None)] if message.vote_id > self.vote_id else []
        role = self.role
        if isinstance(role, Leading):
            if isinstance(message, Stored):
                return role.stored_by(now, node_id, message)
            if isinstance(message, Pull):
                return role.pulled_by(now, node_id, message)
            if isinstance(message, SnapshotPull):
                return role.snapshot_pulled_by(node_id, message)
            return []
        if node_id != role.leader:
            return []
        if isinstance(message, Diverged):
            return role.diverged(now, message)
        if isinstance(message, SnapshotNeeded):
            return self._intake.needed(now, role, message)
        if isinstance(message, SnapshotRows):
            return self._intake.rows(now, role, message)
        return [LeaderHeard(message.vote_id, node_id, hands_over=True)] if isinstance(message, TakeOver) else []

    def _may_be_heard(self, said: PeerSaid) -> bool:
        """Whether what a node says counts: a member's does, from the disk that the members know it by.

        Another may lead nonetheless: this node's log may be behind the record that has made it a member, or say an
        older disk of it (Ongaro's dissertation, 4.1). So it is heard as a leader, by a node that has none; and as a
        candidate, whom its log speaks for. A node that was removed disturbs nobody by that: a pre-vote changes nothing,
        and who has a leader votes for no other (4.2.3).
        """
        membership = self.log.membership
        if membership.current is None or membership.is_from_its_disk(said.node_id, said.disk_id):
            return True
        if isinstance(said.message, VoteRequest) and not said.message.is_forced:
            return True  # a voter's log may be behind the record that has made the candidate a member (4.1)
        role = self.role
        return (
            isinstance(role, Following)
            and role.leader in (None, said.node_id)
            and isinstance(said.message, FROM_A_LEADER)
        )

    def _vote_asked(self, said: PeerSaid, request: VoteRequest) -> Decisions:
        """Ask the Elector about a candidate, and tell it how its log compares with ours."""
        end, own = LogEnd(request.end_vote_id, request.trans_id), self.log.tail.end
        comparison = (end > own) - (end < own)
        said_count = self.log.stored_said
        return [
            VoteAsked(said.node_id, request.vote_id, request.is_pre, request.is_forced, end, comparison, said_count)
        ]

    def _pushed(self, now: float, said: PeerSaid, push: Push) -> Decisions:
        # Its entries may have been cut off since, and its heartbeat extends no lease; it hears that it was replaced
        # (3.3).
        if push.vote_id < self.vote_id:  # a leader that does not know yet that it is none any more
            return [SendPeers((said.node_id,), Stored(self.vote_id, 0, NOTHING_STORED))]
        role = self.role
        if push.vote_id > self.vote_id or (isinstance(role, Following) and role.leader != said.node_id):
            return [LeaderHeard(push.vote_id, said.node_id)]
        # Two leaders of one vote_id would need two majorities of one vote each (3.4): somebody lies, or is broken.
        if isinstance(role, Leading):
            return [CutPeer(said.node_id, f"it says that it leads in vote {push.vote_id}, as this node does")]
        return role.push(now, said.node_id, push)

    def receiving(self, now: float, node_id: int) -> Decisions:
        """Bytes come from a node whose message is not whole yet: it lives. A long message is no silence."""
        if isinstance(self.role, Leading):
            return self.role.receiving(now, node_id)
        if node_id != self.role.leader:
            return []
        self._intake.receiving(now)
        return self.role.receiving(now, node_id)

    def linked(self, now: float, node_id: int) -> None:
        """There is a new link to a node."""
        if isinstance(self.role, Following) and node_id == self.role.leader:
            self._intake.linked(now)

    # -- from this node's own actors ---------------------------------------------------------------------------

    def append(self, now: float, message: Append) -> Decisions:
        """Replicate the owner's next entries; those it made before it heard that it does not lead any more are
        dropped."""
        if isinstance(self.role, Leading) and message.vote_id == self.vote_id:
            return self.role.append(now, message.entries, is_counted=message.is_counted)
        return []

    def written(self, now: float, entry_count: int, room_bytes: float) -> Decisions:
        """Note that the first so many entries are on this node's disk."""
        self.log.written(entry_count, room_bytes)
        return self.role.written(now)

    def state_loaded(self, message: StateLoaded) -> Decisions:
        """Take a fresh state of what LMDB has."""
        decisions = self.log.state_loaded(message)
        if isinstance(self.role, Leading):
            return decisions + self.log.promote(self.vote_id)
        return decisions + self.role.state_loaded()

    def entries_read(self, now: float, message: EntriesRead) -> Decisions:
        """LMDB's entries for a follower."""
        return self.role.entries_read(now, message) if isinstance(self.role, Leading) else []

    def snapshot_read(self, message: SnapshotRead) -> Decisions:
        """LMDB's rows for a follower."""
        return self.role.snapshot_read(message) if isinstance(self.role, Leading) else []

    def part_staged(self, now: float, message: PartStaged) -> Decisions:
        """Note that a part of a snapshot is kept; the last one makes it count."""
        part = message.part
        if not self._intake.staged(now, message):
            if message.refused is not None or not isinstance(self.role, Following):
                return []
            return self._intake.ask(now, self.role)
        members = decode_members(part.sections[0]) if part.sections[0] else None
        decisions = self.log.installed(part.trimmed, part.vote_id, members)
        assert isinstance(self.role, Following), "a leader's log is never behind another's"
        return decisions + self.role.installed(now)

    def tick(self, now: float) -> Decisions:
        """Time has passed."""
        blocks = self.blocks.tick(now)
        if isinstance(self.role, Leading):
            return self.role.tick(now) + blocks
        return self.role.tick(now) + self._intake.tick(now, self.role) + blocks

    @property
    def is_pulling(self) -> bool:
        """Whether the next tick is wanted soon."""
        if self.blocks.next_at != float("inf"):
            return True
        if isinstance(self.role, Leading):
            return False
        return self.role.next_pull_at != float("inf") or self._intake.next_at != float("inf")
