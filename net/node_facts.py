"""What a worker's sessions know of the node that they are on."""

from collections.abc import Callable
from typing import Any, NamedTuple

from net.ignored_fields import IgnoredFields


class ListenerFacts(NamedTuple):
    """What the sessions of one port know of it. `debug`: DEBUG is there; `host`, `port`: what its clients dial.

    `shard`: that of the worker; `monotonic`: its clock (s). `auto_create`: a topic to which is appended is made where
    there is none, of `auto_create_partitions` partitions.
    """

    debug: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    shard: int = 0
    monotonic: Callable[[], float] = lambda: 0.0
    auto_create: bool = False
    auto_create_partitions: int = 1


USUAL: ListenerFacts = ListenerFacts()


class MetaqFacts:
    """What a worker's sessions of MetaQ's share: `worker`, which the first of them makes. `zookeeper`: how the broker
    stands there; empty: it is to be registered nowhere.
    """

    def __init__(self) -> None:
        self.worker: Any = None
        self.zookeeper = ""


class NodeFacts:
    """Written by its shard's actors, on the same loop, and read by sessions, which ask nobody.

    `cluster_id` 0: it is in no cluster yet. `voters`: the members that vote. `leader`: who leads this worker's shard,
    0: nobody that is known. `shards`: there are so many. `is_leaving`: its clients are to go to other nodes, and it
    does not want to lead. `said`, `heard`: messages to and from other nodes and workers. `job_ids`, `messages`,
    `names` and `keyed` are what sessions have worked out lately (`net.protocols.job_ids`, `disque_client`).
    `ignored`: the fields of requests that there are not.
    `gmq_ttr_grace_s`: so much longer than its TTR a job of gmq's may take; `gmq_pop_wait_s`: so long a Pop waits (s).
    `metaq`: see `MetaqFacts`.
    """

    def __init__(
        self,
        node_id: int = 1,
        cluster_id: int = 0,
        shards: int = 1,
        *,
        gmq_ttr_grace_s: float = 3.0,
        gmq_pop_wait_s: float = 2.0,
    ) -> None:
        self.gmq_ttr_grace_s = gmq_ttr_grace_s
        self.gmq_pop_wait_s = gmq_pop_wait_s
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.voters: tuple[int, ...] = ()
        self.leader = 0
        self.shards = shards
        self.is_leaving = False
        self.job_ids: dict[int, tuple[float, float, int, bytes]] = {}
        self.messages: dict[bytes, int] = {}
        self.names: dict[bytes, str] = {}
        self.keyed: Any = None
        self.ignored = IgnoredFields()
        self.metaq = MetaqFacts()
        self.said = 0
        self.heard = 0

    def belong_to(self, cluster_id: int) -> None:
        """Note that the node is one of that cluster: what was told before was another's."""
        if cluster_id != self.cluster_id:
            self.cluster_id = cluster_id
            self.job_ids.clear()
            self.messages.clear()
            self.keyed = None
