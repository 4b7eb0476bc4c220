"""Messages: node_view."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class NodeView:
    """What the queries tell of the node beside the state: who it is, its part in the cluster, the log's bounds.

    Kept up by the Replicator. `followers` are objects for status; `role` is leader, follower or none.
    """

    node_id: int = 1
    node_type: int = 1
    host: str = "127.0.0.1"
    port: int = 1111
    version: str = ""
    max_log_size: int = 0
    trimmed: int = 0
    stored: int = 0
    vote_id: int = 1
    recovery: str = ""
    leader_node_id: int = 0
    leader_host: str = ""
    leader_port: int = 0
    role: str = "none"
    node_count: int = 1
    voter_count: int = 1
    cluster_id: int = 0
    committed: int = 0
    followers: Callable[[], list[dict[str, Any]]] = list
    members: Callable[[], list[dict[str, Any]]] = list
