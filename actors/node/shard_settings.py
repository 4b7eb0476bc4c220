"""What a shard's actors need of the configuration."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from actors.cluster.following import PULL_BYTES, PUSH_BYTES
from actors.cluster.progress import WINDOW_BYTES
from actors.cluster.pushing import Lateness
from actors.gateway.client_moves import MOVE_AFTER
from actors.gateway.routing import HOLD_S
from actors.gateway.under_way import FORWARD_BYTES
from actors.registrar.registration import Place
from actors.runtime.blocking import BlockingActor
from actors.shard.queue_owner import COMMIT_PIECE
from net.node_facts import NodeFacts
from net.peers.link import FRAME_BYTES_MAX, LinkTerms
from net.peers.messages import Listening
from net.peers.proof import Keyring
from storage.records import LEVEL, Member
from storage.undo import PIECE_STEPS


class Registering(NamedTuple):
    """Where a broker is registered, and the actor that does so, with what it is made of beside its registrar."""

    place: Place
    lane: type[BlockingActor]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ShardSettings:
    """What a shard's actors need of the configuration.

    The shard is number `shard` of `shards`; clients reach it alone at `direct_port`, if not 0. `cluster_id` is for a
    cluster that this node founds, 0: one is drawn.
    `move_after`: see `actors.gateway.client_moves`. After `balance_s` another node that should lead the shard gets the
    place.
    `own` is this node with the address that nodes reach it at, `listed` are the others that it names; clients reach it
    at `client_host` and `client_port`. `level` is the feature level that it understands. `renewed`: why it has begun
    anew, if it has. `listeners` are all its ports for clients, `facts` what their sessions know of the node. The bytes
    are limits that the simulator makes tiny. `registration`: where the shard's broker is registered for MetaQ's
    clients.
    """

    shard: int = 0
    shards: int = 1
    direct_port: int = 0
    cluster_id: int = 0
    balance_s: float = 0.0
    move_after: int = MOVE_AFTER
    log_records_max: int = 1_000_000
    reader_records_max: int = 10_000_000
    reader_bytes_max: int = 8 << 30
    log_bytes_max: int = 4 << 30
    segment_bytes: int = 16 << 20
    flush_interval_s: float | None = None
    is_lease_committed: bool = False
    undo_piece: int = PIECE_STEPS
    commit_piece: int = COMMIT_PIECE
    own: Member = field(default_factory=lambda: Member(1, "127.0.0.1", 0))
    listed: tuple[Member, ...] = ()
    client_host: str = "127.0.0.1"
    client_port: int = 1111
    node_type: int = 1
    version: str = ""
    level: int = LEVEL
    election_timeout_s: float = 0.4
    lateness: Lateness = field(default_factory=Lateness)
    sync_records_per_s: int = 100_000
    forwards: bool = True
    hold_s: float = HOLD_S
    snapshot_part_bytes: int = 256 << 10
    pull_bytes: int = PULL_BYTES
    push_bytes: int = PUSH_BYTES
    window_bytes: int = WINDOW_BYTES
    forward_bytes: int = FORWARD_BYTES
    frame_bytes_max: int = FRAME_BYTES_MAX
    keyring: Keyring = field(default_factory=Keyring)
    renewed: str = ""
    listeners: tuple[Listening, ...] = ()
    facts: NodeFacts = field(default_factory=NodeFacts)
    registration: Registering | None = None

    @property
    def link_terms(self) -> LinkTerms:
        """What holds for links to other workers."""
        return LinkTerms(self.keyring, self.frame_bytes_max)
