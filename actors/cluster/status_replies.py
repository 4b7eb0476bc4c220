"""What a node says of itself: to its own actors and other nodes unasked, and to whoever asks. Parts of the Replicator.

`Announcer` is called when the members, or who leads, may have changed. `StatusReplies` makes status, metrics and the
description of the cluster, for whoever may do anything at all; what is the queues' comes with the question. The
rows are pure functions of what the machines and this worker's actors have counted.
"""

import logging
import math
from typing import Any, Final

from actors.cluster.admin import ClusterAdmin
from actors.cluster.replication import Replication
from actors.cluster.replicator_settings import Recipients, ReplicatorSettings
from actors.disk.log_writer import LogWriter
from actors.messages.answering import send_answers
from actors.messages.calls import StatusAsked
from actors.messages.election import ElectionFacts
from actors.messages.measures import ClientCounts
from actors.messages.peers import Introduce, LeaderChanged, MembersChanged, RootSettled
from actors.runtime.contract import Runtime
from quorate.actions import NAMES
from quorate.node_replies import RECORD_BOUNDS, SECOND_BOUNDS, MetricsReply, StatusReply
from quorate.protocol import Action, ErrorWord, Reply, Request, done, refusal
from storage.records import Members
from storage.vote_file import Identity

log = logging.getLogger("quorate.cluster")


CONTRADICTS: Final = (
    "this node's data contradict its leader's: {0}. It takes no further part in the cluster. Its data are of another "
    "history, as those of a restored backup are: if the others are right, remove node {1} from the cluster, empty its "
    "folder, and add it again"
)


OTHER = "other"
"""The name of all actions that are none."""


class Announcer:
    """`identity`: who this node is, as it was told last. `settled`: the last members that it knew as committed."""

    def __init__(
        self, machine: Replication, admin: ClusterAdmin, settings: ReplicatorSettings, identity: Identity
    ) -> None:
        self.identity = identity
        self.settled: Members | None = None
        self._machine = machine
        self._membership = machine.log.membership
        self._admin = admin
        self._settings = settings
        self._actors: Recipients
        self._told_members: object = self
        self._told_leader: object = self
        self._told_contradiction: str | None = None
        self._told_leaving = False
        self._told_elector: ElectionFacts | None = None
        self._told_part = (False, False)
        settings.facts.node_id = identity.node_id
        settings.facts.belong_to(identity.cluster_id)

    def attach(self, neighbours: Recipients) -> None:
        """Whom it tells."""
        self._actors = neighbours

    @property
    def is_news(self) -> bool:
        """Whether the members, or who leads, are others than those that were told."""
        is_other = self._membership.current is not self._told_members or self._machine.role.leader != self._told_leader
        is_other = is_other or self._settings.facts.is_leaving != self._told_leaving or self._part != self._told_part
        return is_other or self._machine.log.contradiction is not self._told_contradiction

    @property
    def _part(self) -> tuple[bool, bool]:
        """Whether this node's log counts for nothing yet, and whether it is to found its cluster by itself."""
        return self._machine.log.abstains, self._admin.founds_alone

    @property
    def has_lost(self) -> bool:
        """Whether this node led when it was told last, and does not lead any more."""
        return self._told_leader == self._machine.log.node_id and not self._machine.is_leading

    def look_around(self) -> None:
        """Tell all who need to know that the members, or who leads, have changed."""
        current, leader = self._membership.current, self._machine.leader
        is_first = self._told_leader is self
        own_id = self._machine.log.node_id
        is_other_leader = leader != self._told_leader
        contradiction = self._machine.log.contradiction
        if contradiction is not self._told_contradiction:
            self._told_contradiction = contradiction
            log.critical("%s", CONTRADICTS.format(contradiction, own_id))
        if current is not self._told_members:
            self._told_members = current
            self._members_changed(is_first)
        elif self._settings.facts.is_leaving != self._told_leaving or (
            is_other_leader and own_id in (leader, self._told_leader)
        ):
            self._introduce()
        self._told_leader = leader
        self._settings.facts.leader = leader or 0
        self._settings.facts.node_id = own_id
        if is_other_leader and leader is not None:
            log.info("node %d leads, vote %d", leader, self._machine.vote_id)
        elif is_other_leader and not is_first:
            log.warning("no node leads, as far as this one knows, since vote %d", self._machine.vote_id)
        self._tell_elector()
        self.tell_leader()

    def _voters(self) -> frozenset[int]:
        """Who votes, by the log. A node whose log is another history's has no part in that."""
        own_id = self._membership.own.node_id
        if self._told_contradiction is not None:
            return frozenset()
        if self._membership.current is None and (self._settings.is_alone or self._admin.founds_alone):
            return frozenset({own_id})
        return self._membership.electors

    def _tell_elector(self) -> None:
        """Tell what elections depend on, if any of it is another than it was."""
        self._told_part = self._part
        is_whole, is_leaving = not self._machine.log.abstains, self._settings.facts.is_leaving
        facts = ElectionFacts(self._voters(), self.identity.cluster_id, is_whole, is_leaving)
        if facts != self._told_elector:
            self._told_elector = facts
            self._actors.elector.tell(facts)

    def _members_changed(self, is_first: bool) -> None:
        current = self._membership.current
        if current is not None and not is_first:
            named = [f"{m['node_id']} {m['role']}" for m in self._admin.members()]
            log.info("the members are now: %s", ", ".join(named))
        self._admin.founds_alone = self._admin.founds_alone and current is None
        voters = self._voters()
        self._settings.facts.voters = tuple(sorted(voters))
        nodes = 1 if current is None else len(current.members)
        since = None if current is None else self._membership.since
        self._actors.owner.tell(MembersChanged(nodes, max(len(voters), 1), self._membership.level, since))
        self._introduce()

    def tell_leader(self) -> None:
        """Who leads, and where its clients reach it: a node says so when it introduces itself."""
        leader, vote_id, shard = self._machine.leader, self._machine.vote_id, self._settings.shard
        if leader is None:
            changed = LeaderChanged(0, False, shard=shard)
        elif leader == self._machine.log.node_id:
            port = self._settings.direct_port or self._settings.client_port
            changed = LeaderChanged(leader, True, self._settings.client_host, port, vote_id, shard)
        else:
            hello = self._admin.hellos.get(leader)
            host, port = ("", 0) if hello is None else (hello.client_host, hello.direct_port or hello.client_port)
            changed = LeaderChanged(leader, False, host, port, vote_id, shard)
        for ref in (self._actors.router, self._actors.owner, self._actors.news, self._actors.registrar):
            if ref is not None:
                ref.tell(changed)

    def see_whether_settled(self) -> None:
        """Belong to a cluster that is committed: its leader has proved it with the log, not by saying so."""
        current, committed = self._membership.current, self._machine.log.committed
        if current is not None and self._membership.since <= committed:
            self.settled = current
            if self._actors.news is not None and self._settings.shard == 0:
                self._actors.news.tell(RootSettled(committed, current))
            if current.cluster_id != self.identity.cluster_id:
                self._belong_to(current.cluster_id)

    def _belong_to(self, cluster_id: int) -> None:
        """Belong to that cluster from now on."""
        own = self.identity
        self.identity = Identity(cluster_id, own.node_id, own.disk_id)
        self._admin.joined()
        self._tell_elector()
        self._introduce()

    def _introduce(self) -> None:
        """Whom links are kept to: the members, those that are wanted, and before there are any, those listed.

        A member is dialled where the log says, and where the configuration does: nodes may have moved together.
        """
        current = self._membership.current
        nodes = self._settings.listed if current is None else (*current.members, *current.wanted)
        is_leading = self._machine.is_leading  # another's log may be one of long ago
        removed = tuple(current.removed) if current and is_leading else ()
        addresses = {member.node_id: (member.host, member.port) for member in self._settings.listed}
        own, level = self._membership.own, self._membership.level
        facts = self._settings.facts
        facts.belong_to(self.identity.cluster_id)
        self._told_leaving = facts.is_leaving
        known = (tuple(nodes), current is None, removed, level, addresses, facts.is_leaving)
        introduce = Introduce(own, self.identity, *known)
        for ref in (self._actors.links, self._actors.news):
            if ref is not None:
                ref.tell(introduce)


RESTLESS_S: Final = 90.0
"""It is said once a minute, as long as it is so."""


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
        elif action == Action.NODE_READY:
            reply = self._readiness(message.call.request)
        else:
            reply = self._status(message)
        send_answers([(message.call, reply)])

    def _description(self, message: StatusAsked) -> Reply:
        runtime, cluster_id = self._runtime, self._announcer.identity.cluster_id
        return self._admin.describe(message.call, runtime.monotonic(), runtime.now(), cluster_id)

    def _readiness(self, request: Request) -> Reply:
        """Say whether clients can be served here; anybody may ask, so nothing else is said."""
        if not self._machine.leader:
            return refusal(request, ErrorWord.NO_LEADER, "this node knows no leader")
        if self._machine.log.disk_full:
            return refusal(request, ErrorWord.DISK_FULL, "nothing can be stored on this node's disk")
        return done(request, Reply)

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
            unlinked={str(node_id): fault for node_id, fault in sorted(self._admin.faults.items())},
            direct_port=settings.direct_port,
            abstains=log.abstains,
            zookeeper=settings.facts.metaq.zookeeper,
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
            warnings=[*counts.warnings, *restless_warnings(self._admin.restless, now)],
            runs=counts.runs,
            shards=[{**message.shard, **shard, "pid": pid, "resident_bytes": resident_bytes}],
        )


def restless_warnings(restless: dict[int, float], now: float) -> list[str]:
    """Warn of nodes whose links came and went too often lately (monotonic s)."""
    return [
        f"links to node {node_id} come and go many times a minute: does it run twice, or this node, on a copied folder?"
        for node_id, at in sorted(restless.items())
        if now - at < RESTLESS_S
    ]


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
        "ignored_fields": settings.facts.ignored.count,
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
        "certificates": dict(counts.certificates),
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
