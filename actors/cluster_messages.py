"""The messages that are about the cluster: who leads, what other nodes say, snapshots. As `actors.messages`."""

from dataclasses import dataclass
from typing import Any

import pykka

from actors.messages import Call
from net.peer_messages import Hello, PeerMessage, Vote
from storage.log_store import SnapshotPart
from storage.log_tail import LogEnd
from storage.records import Member, Record
from storage.vote_file import Identity


@dataclass(slots=True)
class Returned:
    """These requests were not done, since this node does not lead (any more)."""

    calls: list[Call]


@dataclass(slots=True)
class Propose:
    """Put this record into the log."""

    vote_id: int
    record: Record


@dataclass(slots=True)
class Drain:
    """Take nothing new on, and say `Drained` when all is committed; `Undrain` takes it back."""

    vote_id: int


@dataclass(slots=True)
class Undrain:
    """Serve again."""


@dataclass(slots=True)
class Drained:
    """All that was open is committed."""

    vote_id: int


@dataclass(slots=True)
class LeaderChanged:
    """`leader` leads, 0: nobody that is known; `is_self`; it can be reached at `host` and `port`."""

    leader: int
    is_self: bool
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class PeerSaid:
    """A node said this; it belongs to cluster `cluster_id`, 0: to none yet, and has that disk."""

    node_id: int
    message: PeerMessage
    cluster_id: int = 0
    disk_id: int = 0


@dataclass(slots=True)
class PeerUp:
    """The link to a node is open; this is how it introduced itself."""

    node_id: int
    hello: Hello


@dataclass(slots=True)
class PeerDown:
    """The link to a node is closed: what was said last may not have arrived."""

    node_id: int


@dataclass(slots=True)
class PeerUnheard:
    """The link that a node speaks over is closed, or a new one has taken its place: what it said may be lost."""

    node_id: int


@dataclass(slots=True)
class SendPeers:
    """Say this to these nodes; to those that no link is open to it is not said."""

    node_ids: tuple[int, ...]
    message: PeerMessage


@dataclass(slots=True)
class CutPeer:
    """What this node says can't be right: close its link."""

    node_id: int
    reason: str


@dataclass(slots=True)
class Acquaintances:
    """Whom to keep links to and whom to accept. `nodes`: all that are known; `own`, `identity` are this node's."""

    own: Member
    identity: Identity
    nodes: tuple[Member, ...]
    accepts_all: bool
    removed: tuple[Member, ...] = ()


@dataclass(slots=True)
class VoteAsked:
    """A candidate asks for a vote in `vote_id`. `comparison`: of its log with ours, below 0 if it is behind."""

    candidate: int
    vote_id: int
    is_pre: bool
    is_forced: bool
    end: LogEnd
    comparison: int


@dataclass(slots=True)
class VoteGiven:
    """A voter has answered."""

    voter: int
    vote: Vote


@dataclass(slots=True)
class LeaderHeard:
    """A node speaks as the leader of `vote_id`, in cluster `cluster_id`."""

    vote_id: int
    leader: int
    cluster_id: int


@dataclass(slots=True)
class VoteIdSeen:
    """Somebody has been through a later election."""

    vote_id: int


@dataclass(slots=True)
class QuorumHeard:
    """A majority took this node for the leader at that moment (monotonic seconds)."""

    at: float


@dataclass(slots=True)
class VotersChanged:
    """These nodes vote, by the last members in the log."""

    voters: frozenset[int]


@dataclass(slots=True)
class ClusterFounded:
    """This node belongs to cluster `cluster_id`."""

    cluster_id: int


@dataclass(slots=True)
class TakeOverAsked:
    """The leader of `vote_id` wants this node to lead."""

    vote_id: int


@dataclass(slots=True)
class AskVotes:
    """Ask all voters, saying where the log ends."""

    vote_id: int
    is_pre: bool
    is_forced: bool


@dataclass(slots=True)
class CastVote:
    """Send this vote, if the log is still not ahead of the candidate's, which ends at `end`."""

    candidate: int
    vote: Vote
    end: LogEnd


@dataclass(slots=True)
class Follow:
    """`leader` leads in `vote_id`, None: nobody does yet. Nothing of an older vote_id counts any more."""

    vote_id: int
    leader: int | None
    cluster_id: int = 0


@dataclass(slots=True)
class TakeLead:
    """This node leads in `vote_id`."""

    vote_id: int


@dataclass(slots=True)
class SaveIdentity:
    """Make it durable."""

    identity: Identity
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class IdentitySaved:
    """It is."""

    identity: Identity


@dataclass(slots=True)
class HandOver:
    """This node is about to stop: let another lead, and say `HandedOver`."""

    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class HandedOver:
    """It does not lead any more, or there is nobody else who could."""


@dataclass(slots=True)
class ReadEntries:
    """Read what follows record `after` for a node that pulls."""

    node_id: int
    after: int
    records_max: int
    bytes_max: int
    reply_to: "pykka.ActorRef[Any] | None" = None


@dataclass(slots=True)
class EntriesRead:
    """The entries that a `ReadEntries` asked for."""

    node_id: int
    after: int
    entries: list[bytes]


@dataclass(slots=True)
class ReadSnapshot:
    """Read the snapshot's rows behind `cursor` for a node."""

    node_id: int
    cursor: bytes
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class SnapshotRead:
    """The rows that a `ReadSnapshot` asked for."""

    node_id: int
    after_cursor: bytes
    part: SnapshotPart


@dataclass(slots=True)
class StagePart:
    """Keep a part of a snapshot; the last one makes it count."""

    part: SnapshotPart
    source: int
    is_first: bool
    reply_to: "pykka.ActorRef[Any]"


@dataclass(slots=True)
class PartStaged:
    """It is kept; or there was no space, and it must be asked for again."""

    part: SnapshotPart
    refused: str | None = None


@dataclass(slots=True)
class ClusterAsked:
    """A client asks about, or for, the cluster."""

    call: Call
