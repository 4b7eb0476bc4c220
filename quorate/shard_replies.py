"""The replies that only a node of several shards gives. `partial`: shards that could not be asked are missing in it."""

from typing import Any

import msgspec

from quorate.protocol import ClusterReply, LeaderReply, Reply


class EmptyReply(Reply, kw_only=True):
    """The reply to a consume over several shards that found nothing; `partial`: `missing_shards` were not asked."""

    partial: bool = False
    missing_shards: list[int] | None = None


class ShardLeader(msgspec.Struct, gc=False):
    """Where clients reach the leader of one shard."""

    shard: int
    leader_node_id: int
    host: str
    port: int


class ShardMapReply(LeaderReply, kw_only=True):
    """The reply to leader where there are several shards and no queue is named: where each of them is led.

    `version` rises whenever any of it changes. The other fields are of shard 0. `partial`: see `ListReply`.
    """

    shards: list[ShardLeader]
    version: int
    partial: bool = False
    missing_shards: list[int] | None = None


class ShardedClusterReply(ClusterReply, kw_only=True):
    """The reply to a cluster's status where there are several shards: the members as shard 0 has them, and all shards.

    A row of `shards` has `shard`, `leader_node_id`, `level` and `members` (`node_id`, `role`, `lag` in records,
    `is_full`), or `fault` where the shard's leader could not be asked.
    """

    shards: list[Any]
    partial: bool = False
    missing_shards: list[int] | None = None
