"""What a node shows of its part in the cluster: who leads, and how far each follower is. Pure functions."""

import math
from typing import Any

from actors.cluster.replication import Replication


def follower_rows(machine: Replication, now: float) -> list[dict[str, Any]]:
    """Tell in status of each follower: `lag` in records, `silent_s` since its last answer, None before the first."""
    leading = machine.leading
    if leading is None:
        return []
    end = machine.log.tail.end.trans_id
    return [
        {
            "node_id": node_id,
            "trans_id": progress.match,
            "lag": end - progress.match,
            "is_pushed": progress.sent is not None,
            "is_full": progress.is_full,
            "silent_s": None if progress.heard_at == -math.inf else round(now - progress.heard_at, 3),
        }
        for node_id, progress in sorted(leading.progress.items())
    ]


def role_of(machine: Replication) -> str:
    """leader, follower, or none while nobody is known to lead."""
    if machine.log.contradiction is not None:
        return "none"
    return "leader" if machine.is_leading else "follower" if machine.leader else "none"


def shard_row(machine: Replication, now: float, **known: Any) -> dict[str, Any]:
    """Make the log's part of a shard's row in status; `known` is what the machine does not know."""
    log = machine.log
    return {
        "role": role_of(machine),
        "vote_id": machine.vote_id,
        "committed": log.committed,
        "durable": log.durable,
        "checkpointed": log.tail.checkpointed,
        "first_trans_id": log.trimmed + 1,
        "level": log.membership.level,
        "disk_full": log.disk_full or "",
        "contradiction": log.contradiction or "",
        "followers": follower_rows(machine, now),
        **known,
    }
