"""Replicator: the log. Hosts the replication machine, and keeps LMDB behind what is committed.

Between the QueueOwner, which makes or applies entries, the LogWriter and the Checkpointer, which store them, the other
nodes, which have them too, and the Elector, which says who leads. What the machine puts out is told in that order.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pykka

from actors.cluster.admin import ROUTER, ClusterAdmin
from actors.cluster.log_reading import LogReader
from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ELECTOR, LOG_WRITER, OWNER, PEERS
from actors.cluster.replication import Replication
from actors.cluster.snapshot_intake import SnapshotIntake
from actors.cluster.view import follower_rows, shown_leader
from actors.messages.calls import ClusterAsked, LogAsked
from actors.messages.checkpoints import (
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    DescribeRows,
    EntriesRead,
    LoadState,
    LogRead,
    PartStaged,
    ReadEntries,
    ReadSnapshot,
    SnapshotRead,
)
from actors.messages.disk import EntriesWritten, JournalBlocked, Recycle, WriteEntries
from actors.messages.election import AskVotes, CastVote, ClusterFounded, Follow, TakeLead, TakeOverAsked, VotersChanged
from actors.messages.lifecycle import CheckpointDue, HandOver, Stop, Stopped
from actors.messages.log import Append, Drained, ReloadNeeded, StateLoaded
from actors.messages.node_view import NodeView
from actors.messages.peers import Acquaintances, PeerDown, PeerSaid, PeerUp, SendPeers
from actors.runtime.contract import Runtime, Timer
from actors.runtime.loop_actor import LoopActor
from net.peers.messages import (
    Diverged,
    Hello,
    Pull,
    Push,
    SnapshotNeeded,
    SnapshotPull,
    SnapshotRows,
    Stored,
    TakeOver,
    Vote,
    VoteRequest,
)
from storage.entry import StoredEntry
from storage.log_store import Staged, decode_members
from storage.records import Member
from storage.vote_file import Identity

log = logging.getLogger("quorate.cluster")

CHECKPOINT_INTERVAL_S: Final = 0.05
RETRY_S: Final = 0.5
BUSY_TICK_S: Final = 0.01
ALONE_TICK_S: Final = 0.2


@dataclass
class ReplicatorSettings:
    """`listed` are the nodes that the configuration names, this one left out; `heartbeat_s` seconds.

    `is_alone`: this node belongs to no cluster and is to be one by itself. `faults`: see `Peers`.
    """

    listed: tuple[Member, ...] = ()
    is_alone: bool = True
    heartbeat_s: float = 0.05
    faults: dict[int, str] = field(default_factory=dict)


@dataclass
class Neighbours:
    """The actors that a Replicator tells."""

    owner: "pykka.ActorRef[Any]"
    elector: "pykka.ActorRef[Any]"
    log_writer: "pykka.ActorRef[Any]"
    checkpointer: "pykka.ActorRef[Any]"
    peers: "pykka.ActorRef[Any]"
    router: "pykka.ActorRef[Any]"


class Replicator(LoopActor):
    """One shard's log on this node. `new_cluster_id` draws a number for a cluster that this node founds."""

    def __init__(
        self,
        runtime: Runtime,
        replication: Replication,
        membership: Membership,
        identity: Identity,
        view: NodeView,
        settings: ReplicatorSettings,
        staged: Staged | None,
        new_cluster_id: Callable[[], int],
    ) -> None:
        super().__init__(runtime)
        self._machine = replication
        self._membership = membership
        self._identity = identity
        self._view = view
        self._settings = settings
        self._new_cluster_id = new_cluster_id
        self._hellos: dict[int, Hello] = {}
        self._intake = SnapshotIntake(replication, staged)
        self._admin = ClusterAdmin(replication, membership, self._hellos, settings.faults)
        self._admin.is_founded = identity.cluster_id != 0
        self._reader = LogReader(replication, view)
        self._staged_from = 0
        self._near: Neighbours
        self._is_checkpointing = False
        self._checkpoint_timer: Timer | None = None
        self._known_members: object = self
        self._known_leader: object = self
        self._stopping: Stop | None = None
        self._has_stopped = False
        view.followers = lambda: follower_rows(replication, runtime.monotonic())
        view.members = self._admin.members
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Append: lambda m, now: self._machine.append(now, m),
            EntriesWritten: lambda m, now: self._machine.written(now, m.entry_count, m.room_bytes),
            PeerSaid: self._peer_said,
            Follow: self._follow,
            TakeLead: self._take_lead,
            AskVotes: lambda m, now: self._machine.ask_votes(m),
            CastVote: lambda m, now: self._machine.cast_vote(m),
            ReloadNeeded: lambda m, now: self._machine.reload(),
            StateLoaded: lambda m, now: self._machine.state_loaded(m),
            CheckpointDue: self._checkpoint_due,
            Checkpointed: self._checkpointed,
            CheckpointFailed: self._checkpoint_failed,
            JournalBlocked: self._journal_blocked,
            DescribeRows: lambda m, now: self._near.owner.tell(m),
            LogAsked: lambda m, now: self._reader.asked(m.call, self._near.checkpointer, self.actor_ref),
            LogRead: lambda m, now: self._reader.read(m),
            EntriesRead: lambda m, now: self._machine.entries_read(now, m),
            SnapshotRead: self._snapshot_read,
            PartStaged: self._part_staged,
            PeerUp: self._peer_up,
            PeerDown: self._peer_down,
            ClusterAsked: lambda m, now: self._admin.command(now, m.call),
            Drained: lambda m, now: self._admin.drained(now, m),
            HandOver: lambda m, now: self._admin.hand_over(now, m),
            Stop: self._stop_asked,
        }

    def attach(self, neighbours: Neighbours) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._near = neighbours

    def on_start(self) -> None:
        """Store what the journal had left over, learn the log's bounds, and begin to look after time."""
        self._is_checkpointing = True
        self._near.checkpointer.tell(Checkpoint(self._committed_entries(), self.actor_ref))
        self._look_around()
        self._tick()

    def on_receive(self, message: Any) -> None:
        """Dispatch, then carry out what came of it; nothing any more once `Stopped` was said."""
        if self._has_stopped:
            return
        self._handlers[type(message)](message, self.runtime.monotonic())
        self._carry_out()

    # -- carrying out ------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        machine = self._machine
        near = self._near
        if self._admin.is_open:
            self._admin.tick(self.runtime.monotonic())
        while machine.out:
            out, machine.out = machine.out, []
            for to, message in out:
                if to is OWNER:
                    near.owner.tell(message)
                elif to is PEERS:
                    near.peers.tell(message)
                elif to is LOG_WRITER:
                    near.log_writer.tell(WriteEntries(message, self.actor_ref))
                elif to is ELECTOR:
                    near.elector.tell(message)
                elif to is ROUTER:
                    near.router.tell(message)
                else:
                    self._tell_checkpointer(message)
        self._view.committed = machine.committed
        self._view.vote_id = machine.vote_id
        current = self._membership.current
        is_settled = current is not None and self._membership.since <= machine.committed
        if current is not None and is_settled and current.cluster_id != self._identity.cluster_id:
            self._near.elector.tell(ClusterFounded(current.cluster_id))
            self._belong_to(current.cluster_id)
        if current is not self._known_members or machine.leader != self._known_leader:
            self._look_around()
        if self._checkpoint_timer is None and not self._is_checkpointing and machine.tail.bytes:
            self._checkpoint_later(CHECKPOINT_INTERVAL_S)

    def _tell_checkpointer(self, message: Any) -> None:
        if message is LoadState:
            message = LoadState(self.actor_ref)
        elif isinstance(message, ReadEntries):
            message.reply_to = self.actor_ref
        self._near.checkpointer.tell(message)

    def _look_around(self) -> None:
        """The members, or who leads, have changed: tell all who need to know."""
        current = self._membership.current
        leader = self._machine.leader
        view = self._view
        if current is not self._known_members:
            self._known_members = current
            if current is not None and self._known_leader is not self:
                named = [f"{m['node_id']} {m['role']}" for m in self._admin.members()]
                log.info("the members are now: %s", ", ".join(named))
            view.node_count = 1 if current is None else len(current.members)
            view.voter_count = 1 if current is None else len(current.voters)
            voters = self._membership.electors
            if current is None and self._settings.is_alone:
                voters = frozenset({self._membership.own.node_id})
            self._near.elector.tell(VotersChanged(voters))
            self._introduce()
        if not self._machine.is_leading and self._known_leader == self._machine.node_id:
            self._admin.deposed()
        if leader != self._known_leader and leader is not None:
            log.info("node %d leads, vote %d", leader, self._machine.vote_id)
        elif leader != self._known_leader and self._known_leader is not self:
            log.warning("no node leads, as far as this one knows, since vote %d", self._machine.vote_id)
        if leader != self._known_leader and self._machine.node_id in (leader, self._known_leader):
            self._introduce()
        self._known_leader = leader
        self._near.router.tell(shown_leader(view, self._membership, leader))

    def _belong_to(self, cluster_id: int) -> None:
        own = self._identity
        self._identity = Identity(cluster_id, own.node_id, own.disk_id)
        self._view.cluster_id = cluster_id
        self._admin.is_founded = True
        self._introduce()

    def _introduce(self) -> None:
        """Whom links are kept to: the members, those that are wanted, and before there are any, those listed."""
        current = self._membership.current
        nodes = self._settings.listed if current is None else (*current.members, *current.wanted)
        is_leading = self._machine.is_leading  # another's log may be one of long ago
        removed = tuple(current.removed) if current and is_leading else ()
        own = self._membership.own
        self._near.peers.tell(Acquaintances(own, self._identity, tuple(nodes), current is None, removed))

    def _follow(self, message: Follow, now: float) -> None:
        self._machine.follow(now, message.vote_id, message.leader)
        if message.cluster_id and not self._identity.cluster_id:
            self._belong_to(message.cluster_id)

    def _take_lead(self, message: TakeLead, now: float) -> None:
        self._machine.lead(now, message.vote_id)
        if self._membership.current is None:
            wanted = list(self._settings.listed)
            self._admin.founding = self._membership.found_cluster(self._new_cluster_id(), wanted)

    # -- time --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.actor_ref.is_alive() or self._has_stopped:
            return
        now = self.runtime.monotonic()
        machine = self._machine
        if machine.is_leading:
            if machine.progress:
                machine.heartbeat(now)
            self._admin.tick(now)
        else:
            if now >= machine.next_pull_at:
                machine.pull(now)
            self._intake.tick(now)
            if self._membership.may_found(
                self._identity, self._settings.listed, self._hellos, machine.tail.end.trans_id, machine.leader
            ):
                self._near.elector.tell(VotersChanged(frozenset({self._identity.node_id})))
        self._carry_out()
        is_busy = machine.next_pull_at != float("inf") or self._intake.next_at != float("inf")
        is_alone = machine.is_leading and not machine.progress
        delay_s = BUSY_TICK_S if is_busy else ALONE_TICK_S if is_alone else self._settings.heartbeat_s
        self.runtime.call_later(delay_s, self._tick)

    # -- peers -------------------------------------------------------------------------------------------------

    def _peer_up(self, message: PeerUp, now: float) -> None:
        self._hellos[message.node_id] = message.hello

    def _peer_down(self, message: PeerDown, now: float) -> None:
        self._hellos.pop(message.node_id, None)
        its = self._machine.progress.get(message.node_id)
        if its is not None:
            its.must_pull()

    def _peer_said(self, said: PeerSaid, now: float) -> None:
        message, node_id, machine = said.message, said.node_id, self._machine
        if not said.cluster_id and not self._identity.cluster_id:
            return  # neither belongs to a cluster yet: what it says is about a log that may never be one
        if isinstance(message, Vote | Stored) and not self._membership.is_from_its_disk(node_id, said.disk_id):
            return  # of a disk that the members do not know it by: it does not count
        machine.peer_cluster_id = said.cluster_id
        if isinstance(message, Push):
            machine.push(now, node_id, message)
        elif isinstance(message, Stored):
            machine.stored_by(now, node_id, message)
        elif isinstance(message, Pull):
            machine.pulled_by(now, node_id, message)
        elif isinstance(message, Diverged):
            machine.diverged(now, node_id, message)
        elif isinstance(message, VoteRequest):
            machine.vote_request(node_id, message)
        elif isinstance(message, Vote):
            machine.vote(node_id, message)
        elif isinstance(message, SnapshotNeeded):
            self._intake.needed(now, node_id, message)
        elif isinstance(message, SnapshotPull):
            if machine.is_leading and message.vote_id == machine.vote_id:
                self._near.checkpointer.tell(ReadSnapshot(node_id, message.cursor, self.actor_ref))
        elif isinstance(message, SnapshotRows):
            self._staged_from = node_id
            self._intake.rows(now, node_id, message, self.actor_ref)
        elif isinstance(message, TakeOver):
            if message.vote_id == machine.vote_id and node_id == machine.leader:
                self._near.elector.tell(TakeOverAsked(message.vote_id))
        else:
            raise TypeError(message)

    def _snapshot_read(self, message: SnapshotRead, now: float) -> None:
        machine, part = self._machine, message.part
        if machine.is_leading:
            rows = SnapshotRows(
                machine.vote_id,
                part.trimmed,
                part.vote_id,
                part.members or self._membership.settled_row(),
                part.rows,
                part.cursor,
                part.is_last,
                message.after_cursor,
            )
            self._near.peers.tell(SendPeers((message.node_id,), rows))

    def _part_staged(self, message: PartStaged, now: float) -> None:
        if self._intake.staged(now, message, self._staged_from):
            part = message.part
            members = decode_members(part.members) if part.members else None
            self._machine.installed(now, part.trimmed, part.vote_id, members)
            self._view.trimmed = self._view.stored = part.trimmed

    # -- LMDB behind the log -----------------------------------------------------------------------------------

    def _committed_entries(self) -> list[StoredEntry]:
        machine = self._machine
        return machine.tail.behind(machine.tail.stored, up_to=machine.committed)

    def _checkpoint_later(self, delay_s: float) -> None:
        self._checkpoint_timer = self.runtime.call_later(delay_s, lambda: self.actor_ref.tell(CheckpointDue()))

    def _checkpoint_due(self, message: CheckpointDue, now: float) -> None:
        self._checkpoint_timer = None
        machine = self._machine
        if self._is_checkpointing or machine.is_reloading or machine.is_installing:
            return
        entries = self._committed_entries()
        if entries:
            self._is_checkpointing = True
            self._near.checkpointer.tell(Checkpoint(entries, self.actor_ref))

    def _checkpointed(self, message: Checkpointed, now: float) -> None:
        self._is_checkpointing = False
        machine = self._machine
        if message.trans_id < machine.tail.stored or message.trimmed < machine.trimmed:
            return  # it was on its way when a snapshot took the place of the log
        machine.disk_full = None
        machine.trimmed = message.trimmed
        machine.tail.forget(message.trans_id)
        machine.tail.forget_history(message.trimmed)
        self._view.stored = message.trans_id
        self._view.trimmed = message.trimmed
        self._near.log_writer.tell(Recycle(message.trans_id))
        if machine.is_leading:
            machine.tell_owner(now)
        self._go_on_stopping()

    def _journal_blocked(self, message: JournalBlocked, now: float) -> None:
        self._machine.disk_full = message.reason
        self._machine.room_bytes = 0
        self._machine.tell_owner(now)

    def _checkpoint_failed(self, message: CheckpointFailed, now: float) -> None:
        self._is_checkpointing = False
        self._machine.disk_full = message.reason
        self._machine.tell_owner(now)
        self._checkpoint_later(RETRY_S)
        self._go_on_stopping()

    # -- stopping ----------------------------------------------------------------------------------------------

    def _stop_asked(self, message: Stop, now: float) -> None:
        self._stopping = message
        self._go_on_stopping()

    def _go_on_stopping(self) -> None:
        """Stopped is: LMDB has what is committed (unless its disk is full: then the journal keeps it)."""
        if self._stopping is None or self._is_checkpointing:
            return
        machine = self._machine
        if machine.disk_full is None and not machine.is_reloading and self._committed_entries():
            self._checkpoint_due(CheckpointDue(), 0.0)
            return
        self._has_stopped = True
        self._near.peers.tell(Stop(self.actor_ref))
        stopping, self._stopping = self._stopping, None
        stopping.reply_to.tell(Stopped("replicator"))
