"""Replicator: the log. Hosts replication, the journal, the cluster's administration and checkpointing; carries out.

Between the QueueOwner, which makes or applies entries, the Checkpointer, which stores them, the other nodes, which have
them too, and the Elector, which says who leads. A decision is a message, and its type says for whom:
`_recipients` is that table.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from actors.cluster.admin import ClusterAdmin
from actors.cluster.checkpointing import Checkpointing
from actors.cluster.decisions import (
    CheckpointerDecision,
    Decisions,
    ElectorDecision,
    OwnerDecision,
    PeersDecision,
    RouterDecision,
    WriteEntries,
)
from actors.cluster.leading import Leading
from actors.cluster.log_reading import LogReading
from actors.cluster.replication import Replication
from actors.cluster.replicator_settings import Recipients, ReplicatorSettings
from actors.cluster.root_members import Balancing, Founder
from actors.cluster.status_replies import Announcer, StatusReplies
from actors.disk.log_writer import LogWriter
from actors.messages.answering import send_answers
from actors.messages.blocks import BlocksFetched, BlocksMissing
from actors.messages.calls import Answered, ClusterAsked, LogAsked, StatusAsked
from actors.messages.checkpoints import (
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    EntriesRead,
    LogRead,
    PartStaged,
    RawRead,
    SnapshotRead,
)
from actors.messages.election import Standing
from actors.messages.lifecycle import HandedOver, HandOver, Stop, Stopped
from actors.messages.log import Append, Drained, ReloadNeeded, StateGone, StateLoaded
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToReplicator
from actors.messages.measures import ClientCounts
from actors.messages.peers import (
    PeerDown,
    PeerFault,
    PeerReceiving,
    PeerRestless,
    PeerSaid,
    PeerUp,
    RootSettled,
)
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from storage.vote_file import Identity

log = logging.getLogger("quorate.cluster")

BUSY_TICK_S: Final = 0.01
ALONE_TICK_S: Final = 0.2


class Replicator(LoopActor[ToReplicator]):
    """One shard's log on this node; `writer` has its journal. `new_cluster_id` draws a number for a cluster.

    `counts`: of this worker's clients, for a status.
    """

    def __init__(
        self,
        runtime: Runtime,
        replication: Replication,
        writer: LogWriter,
        identity: Identity,
        settings: ReplicatorSettings,
        *,
        new_cluster_id: Callable[[], int],
        counts: ClientCounts,
    ) -> None:
        super().__init__(runtime)
        self._machine = replication
        self._writer = writer
        self._written = 0
        self._log = replication.log
        self._admin = admin = ClusterAdmin(
            replication,
            settings,
            is_founded=identity.cluster_id != 0,
            balancing=Balancing(settings.shard, settings.shards, settings.balance_s, replication.limits.heard_s),
        )
        self._announcer = Announcer(replication, admin, settings, identity)
        self._founding = Founder(replication.log.membership, settings, admin.hellos, new_cluster_id)
        self._reading = LogReading(replication.log, settings.shard)
        self._checkpointing = Checkpointing()
        self._actors: Recipients
        self._recipients: dict[type, Mailbox[Any]] = {}
        self._watched = self._log.committed
        self._handing_over: HandOver | None = None
        self._stopping: Stop | None = None
        self._has_stopped = False
        machine, announcer = self._machine, self._announcer
        told = StatusReplies(runtime, machine, admin, settings, announcer=announcer, writer=writer, counts=counts)
        self.handlers = {
            Append: self._append,
            PeerSaid: self._peer_said,
            PeerReceiving: self._peer_receiving,
            Standing: self._stand,
            ReloadNeeded: lambda m: self._do(self._log.reload()),
            StateGone: lambda m: self._do(self._log.state_gone()),
            StateLoaded: lambda m: self._do(machine.state_loaded(m)),
            Checkpointed: self._checkpointed,
            CheckpointFailed: self._checkpoint_failed,
            LogAsked: lambda m: self._read_on(self._reading.asked(self._now(), m.call)),
            LogRead: lambda m: self._do(self._reading.read(m)),
            RawRead: lambda m: self._read_on(self._reading.raw_read(self._now(), m)),
            StatusAsked: told.asked,
            EntriesRead: lambda m: self._do(machine.entries_read(self._now(), m)),
            BlocksMissing: lambda m: self._do(machine.blocks.missing(self._now(), m)),
            BlocksFetched: lambda m: self._do(machine.blocks.fetched(m)),
            SnapshotRead: lambda m: self._do(machine.snapshot_read(m)),
            PartStaged: lambda m: self._do(machine.part_staged(self._now(), m)),
            PeerUp: self._peer_up,
            PeerDown: self._peer_down,
            PeerFault: self._peer_fault,
            PeerRestless: lambda m: self._admin.restless.update({m.node_id: self._now()}),
            ClusterAsked: lambda m: self._do(admin.command(self._now(), m.call)),
            Drained: lambda m: self._do(admin.drained(self._now(), m)),
            RootSettled: self._root_settled,
            HandOver: self._hand_over,
            Stop: self._stop_asked,
            **writer.handlers,
        }

    def attach(self, neighbours: Recipients) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._actors = neighbours
        self._announcer.attach(neighbours)
        for decision, recipient in (
            (OwnerDecision, neighbours.owner),
            (ElectorDecision, neighbours.elector),
            (CheckpointerDecision, neighbours.checkpointer),
            (PeersDecision, neighbours.links),
            (RouterDecision, neighbours.router),
        ):
            self._recipients.update(dict.fromkeys(decision.__args__, recipient))

    def on_start(self) -> None:
        """Store what the journal had left over, learn the log's bounds, and begin to look after time."""
        self._writer.begin(self, self._see_written, self._see_journal_space)
        self._actors.checkpointer.tell(Checkpoint(self._log.unstored(), self._log.membership.settled_level))
        self._announcer.look_around()
        self._tick()

    def on_receive(self, message: Any) -> None:
        """Nothing any more once `Stopped` was said."""
        if not self._has_stopped:
            self.handlers[type(message)](message)

    def _now(self) -> float:
        return self.runtime.monotonic()

    # -- carrying out ------------------------------------------------------------------------------------------

    def _do(self, decisions: Decisions) -> None:
        """Carry out, in order; then see what follows from where the log is now."""
        if decisions or self.runtime.watcher is not None:
            self._tell(decisions)
        while self._writer.durable != self._written:  # nearly always when the disk has finished something
            self._written = self._writer.durable
            self._tell(self._machine.written(self._now(), self._written, self._writer.room_bytes))
        if self._admin.is_open:
            self._tell(self._admin.tick(self._now()))
        announcer = self._announcer
        if announcer.is_news:
            if announcer.has_lost:
                self._tell(self._admin.deposed())
            announcer.look_around()
        if self._log.membership.current is not announcer.settled:
            announcer.see_whether_settled()
        if self._log.tail.bytes and (delay_s := self._checkpointing.grown()) is not None:
            self.runtime.call_later(delay_s, self._checkpoint_due)

    def _tell(self, decisions: Decisions) -> None:
        watcher = self.runtime.watcher
        if watcher is not None and self._log.committed != self._watched:
            for entry in self._log.tail.behind(self._watched, up_to=self._log.committed):
                watcher("committed", entry)
            self._watched = self._log.committed
        recipients = self._recipients
        for decision in decisions:
            if watcher is not None:
                watcher("decided", decision)
            recipient = recipients.get(type(decision))
            if recipient is not None:
                recipient.tell(decision)
            elif type(decision) is WriteEntries:
                self._writer.write(decision.entries, others_wait=decision.others_wait)
            elif isinstance(decision, Answered):
                send_answers(decision.answers)
            elif isinstance(decision, HandedOver):
                handing_over, self._handing_over = self._handing_over, None
                if handing_over is not None:
                    handing_over.reply_to.tell(decision)
            else:
                raise TypeError(decision)

    # -- the Elector -------------------------------------------------------------------------------------------

    def _stand(self, standing: Standing) -> None:
        takes_lead = standing.leader == self._log.node_id and not self._machine.is_leading
        if takes_lead and self._log.membership.current is None:
            self._admin.found(self._founding.members(self._admin.root))
        self._do(self._machine.stand(self._now(), standing))

    def _root_settled(self, message: RootSettled) -> None:
        """Tell what all shards follow."""
        self._admin.root = message.members
        self._do(self._admin.tick(self._now()))

    # -- time --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.has_ended or self._has_stopped:
            return
        now, machine = self._now(), self._machine
        self._do(machine.tick(now) + self._admin.tick(now))
        identity = self._announcer.identity
        if machine.leading is None and self._founding.is_due(
            identity, self._admin.root, self._log.tail.end.trans_id, machine.leader
        ):
            self._admin.founds_alone = True
            self._do([])
        leading = machine.leading
        is_alone = leading is not None and not leading.progress
        heartbeat_s = machine.limits.heartbeat_s if leading is None else leading.heartbeat_s
        delay_s = BUSY_TICK_S if machine.is_pulling else ALONE_TICK_S if is_alone else heartbeat_s
        self.runtime.call_later(delay_s, self._tick)

    # -- entries -----------------------------------------------------------------------------------------------

    def _append(self, message: Append) -> None:
        self._do(self._machine.append(self._now(), message))
        self._look_at_late()

    def _look_at_late(self) -> None:
        """See that what waits for followers that come late does not wait for long."""
        leading = self._machine.leading
        if leading is not None and (delay_s := leading.pushing.timer(self._now())) is not None:
            self.runtime.call_later(delay_s, partial(self._late_due, leading))

    def _late_due(self, led: Leading) -> None:
        """Push what is due, unless the timer was of an earlier lead."""
        if led is self._machine.leading and not self.has_ended and not self._has_stopped:
            self._do(led.pushing.ring(self._now()))
            self._look_at_late()

    # -- peers -------------------------------------------------------------------------------------------------

    def _peer_up(self, message: PeerUp) -> None:
        self._admin.hellos[message.node_id] = message.hello
        self._admin.faults.pop(message.node_id, None)
        self._machine.linked(self._now(), message.node_id)
        if message.node_id == self._machine.leader:
            self._announcer.tell_leader()

    def _peer_down(self, message: PeerDown) -> None:
        self._admin.hellos.pop(message.node_id, None)
        if self._machine.leading is not None:
            self._do(self._machine.leading.peer_down(self._now(), message.node_id))

    def _peer_fault(self, message: PeerFault) -> None:
        if message.reason is None:
            self._admin.faults.pop(message.node_id, None)
        else:
            self._admin.faults[message.node_id] = message.reason

    def _peer_said(self, said: PeerSaid) -> None:
        if not said.cluster_id and not self._announcer.identity.cluster_id:
            return  # neither belongs to a cluster yet: what it says is about a log that may never be one
        self._do(self._machine.heard(self._now(), said))

    def _peer_receiving(self, message: PeerReceiving) -> None:
        self._do(self._machine.receiving(self._now(), message.node_id))

    # -- the disk, and LMDB behind the log ---------------------------------------------------------------------

    def _see_written(self) -> None:
        if not self._has_stopped:
            self._do([])

    def _checkpoint_due(self) -> None:
        if self.has_ended or self._has_stopped:
            return
        may_store = not self._log.is_reloading and not self._log.is_installing
        entries = self._checkpointing.due(self._log.unstored(), may_store=may_store)
        if entries:
            if self._machine.leading is not None:  # what LMDB has is soon not in memory: who waits would pull
                self._do(self._machine.leading.pushing.push_late(self._now()))
            self._actors.checkpointer.tell(Checkpoint(entries, self._log.membership.settled_level))
        elif self._log.tail.bytes and (delay_s := self._checkpointing.grown()) is not None:
            self.runtime.call_later(delay_s, self._checkpoint_due)

    def _checkpointed(self, message: Checkpointed) -> None:
        self._checkpointing.stored()
        self._see_disk()
        if self._log.checkpointed(message.trans_id, message.trimmed):
            self._writer.recycle(message.trans_id)
        self._tell_owner()
        self._do([])
        self._go_on_stopping()

    def _checkpoint_failed(self, message: CheckpointFailed) -> None:
        delay_s = self._checkpointing.failed(message.reason)
        self._see_disk()
        self._tell_owner()
        self.runtime.call_later(delay_s, self._checkpoint_due)
        self._go_on_stopping()

    def _see_journal_space(self) -> None:
        self._checkpointing.journal_space(self._writer.shortage)
        self._log.writing.room_bytes = float(self._writer.room_bytes)
        self._see_disk()
        self._tell_owner()

    def _see_disk(self) -> None:
        """Whether the disk is full; said once when it becomes so, and once when it is not any more."""
        self._log.disk_full = reason = self._checkpointing.disk_full
        if self._checkpointing.take_news():
            if reason is not None:
                log.warning("the disk is full: what needs space is refused until there is some: %s", reason)
            else:
                log.info("the disk has space again")

    def _tell_owner(self) -> None:
        leading = self._machine.leading
        if leading is not None:
            self._actors.owner.tell(leading.advanced(self._now()))

    # -- requests ----------------------------------------------------------------------------------------------

    def _read_on(self, decisions: Decisions) -> None:
        """Carry out what is decided about readers of the whole log; look again when they have rested."""
        self._do(decisions)
        delay_s = self._reading.timer(self._now())
        if delay_s is not None:
            self.runtime.call_later(delay_s, self._rested)

    def _rested(self) -> None:
        if not self.has_ended and not self._has_stopped:
            self._read_on(self._reading.rested(self._now()))

    # -- stopping ----------------------------------------------------------------------------------------------

    def _hand_over(self, message: HandOver) -> None:
        self._handing_over = message
        self._do(self._admin.hand_over(self._now()))

    def _stop_asked(self, message: Stop) -> None:
        self._stopping = message
        self._go_on_stopping()

    def _go_on_stopping(self) -> None:
        """Stop when LMDB has what is committed (unless its disk is full: then the journal keeps it)."""
        if self._stopping is None:
            return
        has_unstored = bool(self._log.unstored())
        if not self._checkpointing.is_done(has_unstored=has_unstored, is_reloading=self._log.is_reloading):
            self._checkpoint_due()
            return
        self._has_stopped = True
        self._actors.links.tell(Stop(self.actor_ref))
        stopping, self._stopping = self._stopping, None
        stopping.reply_to.tell(Stopped("replicator"))
