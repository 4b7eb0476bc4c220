"""What a node tells of itself: its status, its numbers, its settings, its clients, and the others that it knows."""

from typing import Any, Final

from quorate.protocol import Reply


class StatusReply(Reply, kw_only=True):
    """The reply to status: this node, one object a shard. `warnings`: what is less safe; `runs`: which code does."""

    node_id: int
    node_type: int
    version: str
    pid: int
    uptime_s: float
    resident_bytes: int
    connections: int
    requests: int
    shards: list[Any]
    open_requests: int = 0
    limits_reached: list[str] = []
    warnings: list[str] = []
    runs: str = ""
    node_host: str = ""
    node_port: int = 0
    partial: bool = False
    missing_shards: list[int] | None = None


SECOND_BOUNDS: Final[tuple[float, ...]] = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 1.0, 2.5, 10.0),
)
"""Of the buckets that a metrics reply counts durations in (s); one more is for all beyond."""

RECORD_BOUNDS: Final[tuple[float, ...]] = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""The same for records."""


class MetricsReply(Reply, kw_only=True):
    """The reply to metrics: this node's numbers, one object a shard, which its worker has counted since it began."""

    node_id: int
    version: str
    shards: list[Any]
    seconds: tuple[float, ...]
    records: tuple[float, ...]
    runs: str = ""
    partial: bool = False
    missing_shards: list[int] | None = None


class DescribeReply(Reply, kw_only=True):
    """The reply to describe: the nodes as this one sees them, for whoever may do anything at all.

    `cluster_id`: hexadecimal, "0" while it is in none. `now`: Unix seconds. `nodes`: an object each, with its node_id,
    its role (leader, follower, unlinked, silent or leaving) and its listeners (protocol, host, port), as far as they
    are known. `said`, `heard`: messages to and from other nodes and workers.
    """

    node_id: int
    cluster_id: str
    now: float
    nodes: list[Any]
    is_leaving: bool = False
    said: int = 0
    heard: int = 0


class ConfigReply(Reply, kw_only=True):
    """The reply to config: this node's settings, but for what is secret."""

    options: dict[str, Any]


class ClientReply(Reply, kw_only=True):
    """The reply to client: its number on this worker, and an object for each client that was listed, or closed."""

    number: int
    clients: list[Any] = []
