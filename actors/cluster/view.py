"""What a node shows of its part in the cluster: who leads, and how far each follower is."""

from typing import Any

from actors.cluster.membership import Membership
from actors.cluster.replication import Replication
from actors.messages.node_view import NodeView
from actors.messages.peers import LeaderChanged


def follower_rows(machine: Replication, now: float) -> list[dict[str, Any]]:
    """What status tells of each follower: `lag` in records, `silent_s` since its last answer, None before the first."""
    end = machine.tail.end.trans_id
    return [
        {
            "node_id": node_id,
            "trans_id": its.match,
            "lag": end - its.match,
            "is_pushed": its.sent is not None,
            "silent_s": None if its.heard_at < 0 else round(now - its.heard_at, 3),
        }
        for node_id, its in sorted(machine.progress.items())
    ]


def shown_leader(view: NodeView, membership: Membership, leader: int | None) -> LeaderChanged:
    """Put the leader into the view; returns it as the Router is told."""
    host, port = ("", 0) if leader is None else membership.address(leader)
    is_self = leader == membership.own.node_id
    if is_self and not host:
        host, port = view.host, view.port
    view.leader_node_id, view.leader_host, view.leader_port = leader or 0, host, port
    view.role = "leader" if is_self else "follower" if leader else "none"
    return LeaderChanged(leader or 0, is_self, host, port)
