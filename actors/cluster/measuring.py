"""What a worker tells of itself in a metrics reply: its row. A pure function of what its actors have counted."""

from typing import Any

from actors.cluster.replication import Replication
from actors.cluster.view import follower_rows, role_of
from actors.disk.log_writer import LogWriter
from actors.messages.client_counts import ClientCounts
from quorate.actions import NAMES

OTHER = "other"
"""The name of all actions that are none."""


def client_part(counts: ClientCounts) -> dict[str, Any]:
    """What its clients have asked for, and how it went; of actions that somebody has asked for."""
    rows = [(NAMES[number], row) for number, row in counts.by_action.items()]
    asked = {name: row for name, row in [*rows, (OTHER, counts.other)] if row.done or row.refused}
    return {
        "connections": counts.connections,
        "open_requests": counts.open_requests,
        "requests": {name: row.results for name, row in asked.items()},
        "request_seconds": {name: row.seconds.told for name, row in asked.items() if any(row.seconds.counts)},
        "limits_reached": dict(counts.refused_by_limit),
    }


def log_part(machine: Replication, writer: LogWriter, now: float) -> dict[str, Any]:
    """The shard's log on this node (monotonic s)."""
    log = machine.log
    return {
        "role": role_of(machine),
        "leader_node_id": machine.leader or 0,
        "vote_id": machine.vote_id,
        "committed": log.committed,
        "log_records": log.tail.end.trans_id - log.trimmed,
        "disk_full": log.disk_full or "",
        "lag": {str(row["node_id"]): row["lag"] for row in follower_rows(machine, now)},
        "journal_write_seconds": writer.write_seconds.told,
    }
