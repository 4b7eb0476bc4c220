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
            major=PEER_MAJOR,
            minor=PEER_MINOR,
            node_type=self.node_type,
            node_id=node_id,
            to=to,
            cluster_id=cluster_id,
            disk_id=disk_id,
            host=at[0],
            port=at[1],
            client_host=self.client_host,
            client_port=self.client_port,
            level=self.level,
            version=self.version,
            shard=self.shard,
            shards=self.shards,
            to_shard=to_shard,
            direct_port=self.direct_port,
            listeners=list(self.listeners),
            is_leaving=is_leaving,
        )
