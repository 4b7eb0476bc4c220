"""What a node says of itself when it is asked: status, metrics, and the description for whoever may do anything at all.

`StatusReplies` is a part of the Replicator, which knows most of it; what is the queues' comes with the question. The
rows are pure functions of what the machines and this worker's actors have counted.
"""

import math
from typing import Any

from actors.cluster.admin import ClusterAdmin
from actors.cluster.announcing import Announcer
from actors.cluster.replication import Replication
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.disk.log_writer import LogWriter
from actors.messages.answering import send_answers
from actors.messages.calls import StatusAsked
from actors.messages.measures import ClientCounts
from actors.runtime.contract import Runtime
from quorate.actions import NAMES
from quorate.node_replies import RECORD_BOUNDS, SECOND_BOUNDS, MetricsReply, StatusReply
from quorate.protocol import Action, Reply, Request, done

OTHER = "other"
"""The name of all actions that are none."""


class StatusReplies:
    """Of one shard on one node. `counts`: of this worker's clients."""

    def __init__(
        self,
        runtime: Runtime,
        machine: Replication,
        admin: ClusterAdmin,
        settings: ReplicatorSettings,
        *,
        announcer: Announcer,
        writer: LogWriter,
        counts: ClientCounts,
    ) -> None:
        self._runtime = runtime
        self._machine = machine
        self._admin = admin
        self._settings = settings
        self._announcer = announcer
        self._writer = writer
        self._counts = counts

    def asked(self, message: StatusAsked) -> None:
        """Answer."""
        action = message.call.request.action
        if action == Action.NODE_DESCRIBE:
            reply = self._description(message)
        elif action == Action.NODE_METRICS:
            reply = self._metrics(message)
        else:
            reply = self._status(message)
        send_answers([(message.call, reply)])

    def _description(self, message: StatusAsked) -> Reply:
        runtime, cluster_id = self._runtime, self._announcer.identity.cluster_id
        return self._admin.describe(message.call, runtime.monotonic(), runtime.now(), cluster_id)

    def _metrics(self, message: StatusAsked) -> Reply:
        row = measured(self._machine, self._writer, self._counts, self._runtime, self._settings)
        about = (self._machine.log.node_id, self._settings.version, self._counts)
        return metrics_reply(message.call.request, {**message.shard, **row}, *about)

    def _status(self, message: StatusAsked) -> Reply:
        log, settings, counts = self._machine.log, self._settings, self._counts
        now = self._runtime.monotonic()
        shard = shard_row(
            self._machine,
            now,
            leader_node_id=self._machine.leader or 0,
            cluster_id=f"{self._announcer.identity.cluster_id:x}",
            max_log_size=settings.log_records_max,
            log_size=log.tail.end.trans_id - log.trimmed,
            recovery=settings.recovery,
            members=self._admin.members(),
            direct_port=settings.direct_port,
            abstains=log.abstains,
        )
        pid, resident_bytes = self._runtime.process()
        is_asked_here = message.call.is_part or settings.shards == 1  # then it is one of those itself
        return done(
            message.call.request,
            StatusReply,
            queue=None,
            node_id=log.node_id,
            node_type=settings.node_type,
            version=settings.version,
            pid=pid,
            uptime_s=round(now - counts.started_at, 3),
            resident_bytes=resident_bytes,
            connections=counts.connections,
            requests=counts.requests,
            open_requests=counts.open_requests - is_asked_here,
            limits_reached=counts.limits_reached,
            warnings=counts.warnings,
            runs=counts.runs,
            shards=[{**message.shard, **shard, "pid": pid, "resident_bytes": resident_bytes}],
        )


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
