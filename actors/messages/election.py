"""Who leads: the contract between the Elector, which decides it, and the Replicator, which hears the others and speaks.

| message | from | to | meaning |
|---|---|---|---|
| Standing | Elector | Replicator | the vote_id, who leads in it, and what is to be said to other nodes now |
| ElectionFacts | Replicator | Elector | all that the log says and elections depend on |
| LeaderHeard | Replicator | Elector | a node speaks as leader; or somebody has been through a later election |
| VoteAsked, VoteGiven | Replicator | Elector | a candidate asks; a voter has answered |
| QuorumHeard | Replicator | Elector | a majority was heard by this leader |

Each holds what the other is only told. The Elector holds the vote_id and the vote given in it: nothing else changes
them, and the Replicator's role is the one that `Standing` said last. The Replicator holds the log, and what the log
says of this node: `ElectionFacts` are told whole, whenever one of them changes.

What this node says binds it, so it is on disk before it is said, and for each there is one place where that is seen to:
a vote_id and a vote wait for the Elector's `Save` (the host tells nothing that stands behind one that is not saved), an
acknowledgement of entries is said of what is durable in the Replicator's log. The two meet once: a vote takes away the
lease that an acknowledgement gave (Ongaro's dissertation, 6.4.1), and counts on a log that goes on growing (3.6.1). So
`CastVote` names the moment that it was decided for, and the Replicator, which says both, looks whether it still is.
"""

from dataclasses import dataclass

import msgspec

from net.peers.messages import Vote
from storage.entry import LogEnd


@dataclass(frozen=True, slots=True)
class AskVotes:
    """Ask all voters, saying where the log ends: for this vote_id, or, before it is begun, for the one that follows."""

    is_pre: bool
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class CastVote:
    """Send this vote, if the log is still not ahead of the candidate's, which ends at `end`.

    And if no leader was answered since `stored_said`, None: the vote is not one that takes a leader's lease away.
    """

    candidate: int
    vote: Vote
    end: LogEnd
    stored_said: int | None = None


class Standing(msgspec.Struct):
    """`leader` leads in `vote_id`: this node, another, or None that is known. `say` that to the others, if anything.

    Whoever is told takes nothing of an older vote_id from here on.
    """

    vote_id: int
    leader: int | None
    say: AskVotes | CastVote | None = None


class ElectionFacts(msgspec.Struct, frozen=True):
    """What elections depend on beside votes.

    `voters`: by the last members in the log. `cluster_id`: which cluster this node belongs to, 0: none yet.
    `is_whole`: its log has all that this node ever said that it stores. `is_leaving`: it is to lead nothing where
    another can.
    """

    voters: frozenset[int]
    cluster_id: int
    is_whole: bool = True
    is_leaving: bool = False


class LeaderHeard(msgspec.Struct):
    """`leader` speaks as the one of `vote_id`; None: somebody has been through that election.

    `hands_over`: it wants this node to lead.
    """

    vote_id: int
    leader: int | None
    hands_over: bool = False


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


class QuorumHeard(msgspec.Struct):
    """This leader had heard from a majority at that moment (monotonic seconds)."""

    at: float
