"""The replies that the clients return as they came, by their fields: dictionaries, as docs/protocol.md names them.

What a row of another node's, or of a shard's, holds is said there: it grows with the versions.
"""

from typing import Any, NotRequired, TypedDict

JsonObject = dict[str, Any]
"""A reply, or a row of one, that has the fields which docs/protocol.md names for it."""


class Answered(TypedDict):
    """What every reply has. `was_repeated`: an earlier try of the request may have been done, too."""

    action: int
    code: int
    was_repeated: NotRequired[bool]


class QueueCounts(Answered):
    """A queue's counts. `exists` is False of a queue that is not there; `row`: see `QueueRow`."""

    queue: str
    size: int
    ready: int
    delayed: int
    in_flight: int
    max_size: int
    max_id: int
    wait_status: int
    paused: bool | str
    leader_node_id: int
    node_id: int
    trans_id: int
    log_size: int
    max_log_size: int
    settings: NotRequired[JsonObject]
    row: NotRequired[JsonObject]
    exists: NotRequired[bool]


class ReaderPosition(TypedDict):
    """A reader of the log: it has all records up to `trans_id`, as it said at `at` (Unix seconds).

    `lag`: records that it has not read. `lost`: of these, those that the log does not hold any more.
    """

    reader: str
    trans_id: int
    at: float
    lag: int
    lost: int


class LogRecords(Answered):
    """Records of the change log, in their order."""

    shard: int
    records: list[JsonObject]
    first_trans_id: int
    last_trans_id: int
    committed: int


class RawLog(Answered):
    """Entries of the change log as they are stored, each behind its length (4 bytes, big-endian)."""

    shard: int
    entries: bytes
    first_trans_id: int
    last_trans_id: int
    committed: int


class NodeStatus(Answered):
    """A node, and a row for each of its shards."""

    node_id: int
    node_type: int
    version: str
    pid: int
    uptime_s: float
    resident_bytes: int
    connections: int
    requests: int
    shards: list[JsonObject]
    open_requests: NotRequired[int]
    limits_reached: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    runs: NotRequired[str]
    node_host: NotRequired[str]
    node_port: NotRequired[int]
    partial: NotRequired[bool]
    missing_shards: NotRequired[list[int]]


class NodeMetrics(Answered):
    """A node's numbers, a row a shard. `seconds` and `records`: the bounds of the buckets of durations and records,
    in which they are counted."""

    node_id: int
    version: str
    shards: list[JsonObject]
    seconds: list[float]
    records: list[float]
    runs: NotRequired[str]
    partial: NotRequired[bool]
    missing_shards: NotRequired[list[int]]


class ClusterMembers(Answered):
    """The cluster's members, and who leads; of a node of several shards also a row for each of these."""

    leader_node_id: int
    members: list[JsonObject]
    level: NotRequired[int]
    shards: NotRequired[list[JsonObject]]
    partial: NotRequired[bool]
    missing_shards: NotRequired[list[int]]
