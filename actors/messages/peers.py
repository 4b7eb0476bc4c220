"""Messages: peers."""

from dataclasses import dataclass

from net.peers.messages import Hello, PeerMessage
from storage.records import Member
from storage.vote_file import Identity


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
