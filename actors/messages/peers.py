"""Links to other nodes, and who leads as far as requests are concerned.

| message | from | to | meaning |
|---|---|---|---|
| SendPeers | Replicator, Router, ShardNews | Links | say this to nodes |
| PeerSaid | Links | Replicator, Router, ShardNews | a node said this |
| PeerUp, PeerDown | Links | Replicator, Router, ShardNews | the link to a node is open, or closed |
| PeerUnheard | Links | Router | the link that a node speaks over is closed |
| PeerReceiving | Links | Replicator | a node is in the middle of saying something long |
| PeerBehind | Links | Router | a node takes clients' answers more slowly than they come, or no more |
| PeerFault | Links | Replicator | why there is no link to a node |
| NodeRemoved | Links | Router | this node is no member of its cluster any more |
| PeerRestless | Links | Replicator | links to a node come and go many times a minute |
| CutPeer | Replicator, Router, ShardNews | Links | what that node says can't be right |
| Introduce | Replicator | Links, ShardNews | who this node is, whom to keep links to, whom to accept |
| LeaderChanged | Replicator, ShardNews | Router, QueueOwner, Registrar, ShardNews | who leads, and where it is |
| MembersChanged | Replicator | QueueOwner | how many nodes there are, and what all of them understand |
| RootSettled | Replicator, ShardNews | ShardNews, Replicator | whom all shards follow: shard 0 says it to the others |
| Reach | ShardNews | Links | where another shard's leader is |
| KeyringChanged | the worker | Links | by which secrets nodes prove themselves from now on |

Routers and Links know the workers of other shards by numbers below 0 (`worker_key`), where nodes have theirs above
it.
"""

import msgspec

from net.peers.messages import Hello, PeerMessage
from net.peers.proof import Keyring
from quorate.shards import ID_SHARDS
from storage.records import Member, Members
from storage.vote_file import Identity


def worker_key(shard: int, node_id: int = 0) -> int:
    """Give the worker of that shard on node `node_id`, 0: on this node."""
    return -1 - shard - node_id * ID_SHARDS


def node_of(key: int) -> int:
    """Give the node of a worker; 0: this one."""
    return key if key > 0 else (-1 - key) // ID_SHARDS


def shard_of(key: int) -> int:
    """Give the shard of a worker."""
    return (-1 - key) % ID_SHARDS


def shown(key: int) -> str:
    """For people: whom a request was forwarded to."""
    if key > 0 or node_of(key):
        return f"node {node_of(key)}"
    return f"the worker of shard {shard_of(key)}"


class LeaderChanged(msgspec.Struct):
    """`leader` leads, 0: nobody that is known; `is_self`.

    Clients reach it at `host` and `port`; "" and 0: that is not known. It was elected under `vote_id`, for `shard`.
    """

    leader: int
    is_self: bool
    host: str = ""
    port: int = 0
    vote_id: int = 0
    shard: int = 0


class PeerBehind(msgspec.Struct):
    """Clients' answers wait for a node (or a worker): nothing is to be done for it meanwhile that has a long one."""

    node_id: int
    is_behind: bool


class MembersChanged(msgspec.Struct):
    """There are so many nodes and voters, and all of them understand feature level `level`.

    `since`: the record that says so; 0: one of long ago. None: the log names no members yet, its cluster is just being
    founded.
    """

    nodes: int
    voters: int
    level: int
    since: int | None = 0


class RootSettled(msgspec.Struct):
    """Shard 0's log has settled these members, and is known to be committed up to `committed`."""

    committed: int
    members: Members


class Reach(msgspec.Struct):
    """Node `node_id` leads the shard, 0: this node does: its worker is to be reached."""

    shard: int
    node_id: int


class KeyringChanged(msgspec.Struct):
    """These secrets of the cluster are valid from now on."""

    keyring: Keyring


class PeerSaid(msgspec.Struct):
    """A node said this; it belongs to cluster `cluster_id`, 0: to none yet, and has that disk."""

    node_id: int
    message: PeerMessage
    cluster_id: int = 0
    disk_id: int = 0


class PeerUp(msgspec.Struct):
    """The link to a node is open, and this is how it introduced itself, now or anew."""

    node_id: int
    hello: Hello


class PeerRestless(msgspec.Struct):
    """Links to a node come and go many times a minute: it, or this node, may run twice. Said once a minute."""

    node_id: int


class NodeRemoved(msgspec.Struct):
    """This node is no member of its cluster any more, as node `node_id` says, which leads that; 0: it is one again."""

    node_id: int


class PeerDown(msgspec.Struct):
    """The link to a node is closed: what was said last may not have arrived.

    Of the forwarded calls none behind number `last_serial` has left this node.
    """

    node_id: int
    last_serial: int = 0


class PeerUnheard(msgspec.Struct):
    """The link that a node speaks over is closed, or a new one has taken its place: what it said may be lost."""

    node_id: int


class PeerReceiving(msgspec.Struct):
    """Bytes of a message that is not whole yet have come from a node: it lives, and has much to say."""

    node_id: int


class PeerFault(msgspec.Struct):
    """Why there is no link to a node; None: there is one."""

    node_id: int
    reason: str | None


class SendPeers(msgspec.Struct):
    """Say this to these nodes; to those that no link is open to it is not said."""

    node_ids: tuple[int, ...]
    message: PeerMessage


class CutPeer(msgspec.Struct):
    """What this node says can't be right: close its link."""

    node_id: int
    reason: str


class Introduce(msgspec.Struct):
    """Who this node is (`own`, `identity`), and whom to keep links to: `nodes`, each at one of its addresses.

    `is_leaving`: its clients are to go elsewhere. `accepts_all`: it belongs to no cluster yet, and whoever has one may
    come. `removed` are told so when they come.
    """

    own: Member
    identity: Identity
    nodes: tuple[Member, ...]
    accepts_all: bool
    removed: tuple[Member, ...] = ()
    level: int = 0
    addresses: dict[int, tuple[str, int]] = {}
    is_leaving: bool = False
