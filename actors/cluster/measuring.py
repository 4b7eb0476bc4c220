"""What a worker tells of itself in a metrics reply: its row. A pure function of what its actors have counted."""

from typing import Any

from actors.cluster.replication import Replication
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.cluster.view import follower_rows, role_of
from actors.disk.log_writer import LogWriter
from actors.messages.client_counts import ClientCounts
from actors.runtime.contract import Runtime
from quorate.actions import NAMES
from quorate.node_replies import RECORD_BOUNDS, SECOND_BOUNDS, MetricsReply
from quorate.protocol import Request, done

OTHER = "other"
"""The name of all actions that are none."""


def measured(
    machine: Replication, writer: LogWriter, counts: ClientCounts, runtime: Runtime, settings: ReplicatorSettings
) -> dict[str, Any]:
    """Make the row of the worker with these, but for what is its queues'."""
    now, (pid, resident_bytes) = runtime.monotonic(), runtime.process()
    itself_s, system_s, descriptors = runtime.usage()
    return {
        **_of_clients(counts),
        **_of_log(machine, writer, now),
        "log_records_max": settings.log_records_max,
        "uptime_s": round(now - counts.started_at, 3),
        "pid": pid,
        "resident_bytes": resident_bytes,
        "cpu_s": round(itself_s + system_s, 3),
        "system_s": round(system_s, 3),
        "descriptors": descriptors,
    }


def metrics_reply(
    request: Request, row: dict[str, Any], node_id: int, version: str, counts: ClientCounts
) -> MetricsReply:
    """One worker's, with its row."""
    bounds = {"seconds": SECOND_BOUNDS, "records": RECORD_BOUNDS}
    about = {"node_id": node_id, "version": version, "runs": counts.runs}
    return done(request, MetricsReply, queue=None, shards=[row], **about, **bounds)


def _of_clients(counts: ClientCounts) -> dict[str, Any]:
    """Tell what its clients have asked for, and how it went; of actions that somebody has asked for."""
    rows = [(NAMES[number], row) for number, row in counts.by_action.items()]
    asked = {name: row for name, row in [*rows, (OTHER, counts.other)] if row.done or row.refused}
    return {
        "connections": counts.connections,
        "connections_begun": counts.connections_begun,
        "bytes_read": counts.traffic.read,
        "bytes_written": counts.traffic.written,
        "open_requests": counts.open_requests,
        "requests": {name: row.results for name, row in asked.items()},
        "request_seconds": {name: row.seconds.told for name, row in asked.items() if any(row.seconds.counts)},
        "limits_reached": dict(counts.refused_by_limit),
    }


def _of_log(machine: Replication, writer: LogWriter, now: float) -> dict[str, Any]:
    """Tell of the shard's log on this node (monotonic s)."""
    log = machine.log
    return {
        "role": role_of(machine),
        "leader_node_id": machine.leader or 0,
        "vote_id": machine.vote_id,
        "elections": machine.elections,
        "committed": log.committed,
        "log_records": log.tail.end.trans_id - log.trimmed,
        "disk_full": log.disk_full or "",
        "lag": {str(row["node_id"]): row["lag"] for row in follower_rows(machine, now)},
        "journal_write_seconds": writer.ways.place.seconds.told,
    }
