"""Who leads: the Elector decides, the Replicator hears and says.

| message | from | to | meaning |
|---|---|---|---|
| AskVotes, CastVote | Elector | Replicator | say this to voters, to a candidate |
| Follow, TakeLead | Elector | Replicator | somebody, nobody, or this node leads |
| VoteAsked, VoteGiven | Replicator | Elector | a candidate asks; a voter has answered |
| LeaderHeard, VoteIdSeen | Replicator | Elector | a node speaks as leader; somebody has been through a later election |
| QuorumHeard | Replicator | Elector | a majority was heard by this leader |
| VotersChanged | Replicator | Elector | these nodes vote |
| ClusterFounded | Replicator | Elector | this node belongs to that cluster |
| CaughtUp | Replicator | Elector | this log, which was lost, has all again that the leader's has |
| TakeOverAsked | Replicator | Elector | the leader wants this node to lead |
| LeavingChanged | Replicator | Elector | this node does not want to lead where another can, or does again |
"""

import msgspec

from net.peers.messages import Vote
from storage.entry import LogEnd


class VoteAsked(msgspec.Struct):
    """A candidate asks for a vote in `vote_id`. `comparison`: of its log with ours, below 0 if it is behind.

    `stored_said`: how often this node had answered a leader when the candidate asked.
    """

    candidate: int
    vote_id: int
    is_pre: bool
    is_forced: bool
    end: LogEnd
    comparison: int
    stored_said: int = 0


class VoteGiven(msgspec.Struct):
    """A voter has answered."""

    voter: int
    vote: Vote


class LeaderHeard(msgspec.Struct):
    """A node speaks as the leader of `vote_id`."""

    vote_id: int
    leader: int


class CaughtUp(msgspec.Struct):
    """This node's log had been lost, and has all again."""


class VoteIdSeen(msgspec.Struct):
    """Somebody has been through a later election."""

    vote_id: int


class QuorumHeard(msgspec.Struct):
    """This leader had heard from a majority at that moment (monotonic seconds)."""

    at: float


class VotersChanged(msgspec.Struct):
    """These nodes vote, by the last members in the log."""

    voters: frozenset[int]


class ClusterFounded(msgspec.Struct):
    """This node belongs to cluster `cluster_id`."""

    cluster_id: int


class TakeOverAsked(msgspec.Struct):
    """The leader of `vote_id` wants this node to lead."""

    vote_id: int


class AskVotes(msgspec.Struct):
    """Ask all voters, saying where the log ends."""

    vote_id: int
    is_pre: bool
    is_forced: bool


class CastVote(msgspec.Struct):
    """Send this vote, if the log is still not ahead of the candidate's, which ends at `end`.

    And if no leader was answered since `stored_said`, None: the vote is not one that takes a leader's lease away.
    """

    candidate: int
    vote: Vote
    end: LogEnd
    stored_said: int | None = None


class Follow(msgspec.Struct):
    """`leader` leads in `vote_id`, None: nobody does that is known."""

    vote_id: int
    leader: int | None


class TakeLead(msgspec.Struct):
    """This node leads in `vote_id`."""

    vote_id: int


class LeavingChanged(msgspec.Struct):
    """This node is to have no clients, and does not lead where another can; or that is over."""

    is_leaving: bool
