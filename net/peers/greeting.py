"""What a worker says of itself in every hello, to nodes and to its node's other workers."""

from dataclasses import dataclass, field

from net.node_facts import NodeFacts
from net.peers.messages import PEER_MAJOR, PEER_MINOR, Hello, Listening


@dataclass(frozen=True)
class Greeting:
    """The fields of `Hello` that are the same whomever it is said to, and for as long as the worker runs."""

    node_type: int = 1
    client_host: str = ""
    client_port: int = 0
    level: int = 1
    version: str = ""
    shard: int = 0
    shards: int = 1
    direct_port: int = 0
    listeners: tuple[Listening, ...] = ()
    facts: NodeFacts = field(default_factory=NodeFacts)

    def hello(
        self,
        node_id: int,
        to: int,
        to_shard: int,
        *,
        cluster_id: int = 0,
        disk_id: int = 0,
        at: tuple[str, int] = ("", 0),
        is_leaving: bool = False,
    ) -> Hello:
        """Said by node `node_id`, which nodes dial `at`, to the worker of shard `to_shard` of node `to`."""
        return Hello(
            PEER_MAJOR,
            PEER_MINOR,
            self.node_type,
            node_id,
            to,
            cluster_id,
            disk_id,
            at[0],
            at[1],
            self.client_host,
            self.client_port,
            self.level,
            self.version,
            self.shard,
            self.shards,
            to_shard,
            self.direct_port,
            list(self.listeners),
            is_leaving,
        )
