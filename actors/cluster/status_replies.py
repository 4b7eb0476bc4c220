"""What a node says of itself when it is asked: status, metrics, and the description for whoever may do anything at all.

A part of the Replicator, which knows most of it; what is the queues' comes with the question.
"""

from actors.cluster.admin import ClusterAdmin
from actors.cluster.announcing import Announcer
from actors.cluster.measuring import measured, metrics_reply
from actors.cluster.replication import Replication
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.cluster.view import shard_row
from actors.disk.log_writer import LogWriter
from actors.messages.answering import send_answers
from actors.messages.calls import StatusAsked
from actors.messages.client_counts import ClientCounts
from actors.runtime.contract import Runtime
from quorate.node_replies import StatusReply
from quorate.protocol import Action, Reply, done


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
