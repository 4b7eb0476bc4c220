"""What a Replicator is given: what it is to know of the node that it runs in, and whom it tells."""

from dataclasses import dataclass, field

from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import (
    ToCheckpointer,
    ToElector,
    ToLinks,
    ToQueueOwner,
    ToRegistrar,
    ToRouter,
    ToShardNews,
)
from net.node_facts import NodeFacts
from net.peers.messages import Listening
from storage.records import LEVEL, Member


@dataclass(frozen=True, kw_only=True)
class ReplicatorSettings:
    """`listed` are the nodes that the configuration names, this one left out.

    `is_alone`: this node belongs to no cluster and is to be one by itself. `client_host`, `client_port`: where clients
    reach this node. `level`: the feature level that it understands. `recovery`: what the last start had to cut off.
    `listeners` are all its ports for clients, `facts` what their sessions know of the node.
    `direct_port`: of this shard alone; 0: none. `founding_id`: the number of a cluster that this node founds; 0: drawn.
    """

    listed: tuple[Member, ...] = ()
    is_alone: bool = True
    client_host: str = "127.0.0.1"
    client_port: int = 1111
    log_records_max: int = 1_000_000
    level: int = LEVEL
    recovery: str = ""
    version: str = ""
    node_type: int = 1
    shard: int = 0
    shards: int = 1
    direct_port: int = 0
    founding_id: int = 0
    balance_s: float = 0.0
    listeners: tuple[Listening, ...] = ()
    facts: NodeFacts = field(default_factory=NodeFacts)


@dataclass
class Recipients:
    """The actors that a Replicator tells; `news` None: there is one shard; `registrar` None: there is none."""

    owner: Mailbox[ToQueueOwner]
    elector: Mailbox[ToElector]
    checkpointer: Mailbox[ToCheckpointer]
    links: Mailbox[ToLinks]
    router: Mailbox[ToRouter]
    news: Mailbox[ToShardNews] | None = None
    registrar: Mailbox[ToRegistrar] | None = None
