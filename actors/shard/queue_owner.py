"""QueueOwner: one shard's state. Leading it hosts the broker: requests in, entries to the log, answers out.

Leading, records gather while entries are on their way to the disk, and go to the Replicator as one entry when one has
arrived; what the broker parked is freed by `LogAdvanced` alone. Following, it applies what is committed, and answers
only what is asked about this node. What it may do at the moment, `OwnerStage` says.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from actors.messages.answering import send_answers
from actors.messages.blocks import BlocksRead, BlocksStored, CloseTail, GapFilled
from actors.messages.call import Call
from actors.messages.calls import ClientGone, Execute, RightsChanged, StatusAsked
from actors.messages.checkpoints import DescribeHead
from actors.messages.lifecycle import Reconfigure, Stop
from actors.messages.log import (
    Apply,
    Deposed,
    Drain,
    Drained,
    LogAdvanced,
    LogCut,
    Promoted,
    Propose,
    ReloadNeeded,
    StateDropped,
    StateGone,
    StateLoaded,
    Undrain,
)
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToBlockReader, ToCheckpointer, ToQueueOwner, ToReplicator, ToRouter
from actors.messages.peers import LeaderChanged, MembersChanged
from actors.messages.registering import GroupsRead, TellTopics
from actors.runtime.contract import Runtime, Timer
from actors.runtime.loop_actor import LoopActor
from actors.runtime.work import Steps
from actors.shard.admission import READS_AGAIN, STOPS, Admission
from actors.shard.appending import Appender, Appending, AppendingLimits
from actors.shard.block_news import BlockNews, close_tail, note_filled, note_stored
from actors.shard.broker import Broker, Machines
from actors.shard.clocks import Alarm
from actors.shard.ledger import Ledger
from actors.shard.leftovers import Interlude, Leftovers
from actors.shard.log_head import HeadRows
from actors.shard.machine import ShardContext
from actors.shard.node_view import Limits, NodeView
from actors.shard.owner_stage import OwnerStage
from actors.shard.topic_facts import tell_topics
from quorate.protocol import Action, ErrorWord
from storage.queue_state import NEVER
from storage.records import FIRST_LEVEL, Lead
from storage.state import ShardState
from storage.undo import PIECE_STEPS

log = logging.getLogger("quorate.queues")


COMMIT_PIECE: Final = 2000
"""The replies and messages of so many records that are committed are let go of in one turn: some 3 ms."""


@dataclass(frozen=True)
class OwnerSettings:
    """`journal_low_bytes`: with less room in the journal and a full disk, nothing is written any more.

    So many steps of a lost lead are undone in one turn, `undo_piece`; so many records that are committed let go of the
    replies and messages that wait for them in one, `commit_piece`.

    `machines` makes what does a shard's actions. For `lease_committed` see `ShardContext`.
    """

    appending: AppendingLimits
    machines: Machines
    journal_low_bytes: int = 1 << 20
    lease_committed: bool = False
    undo_piece: int = PIECE_STEPS
    commit_piece: int = COMMIT_PIECE


def warn_of_hidden(state: ShardState, names: Iterable[str]) -> None:
    """Log which queues with messages are out of reach, since virtual queues have their names."""
    for name in names:
        queue = state.queues.get(name)
        if queue is not None and queue.size:
            log.warning(
                "queue %r is virtual now: the %d messages of the real one are out of reach as long as it is",
                *(name, queue.size),
            )


def _reconfigure(broker: Broker, message: Reconfigure) -> None:
    warn_of_hidden(broker.ledger.state, message.hides)
    broker.set_limits(message.limits)


class _TimePassed:
    """To itself: the moment has come that a timer was set for."""


class Pieces:
    """When an owner goes on with work that was cut: in the next turn of the loop, or a little later.

    `go_on` does the next piece, and is called once for all who have asked.
    """

    def __init__(self, runtime: Runtime, go_on: Callable[[], None]) -> None:
        self._runtime = runtime
        self._go_on = go_on
        self._timer: Timer | None = None
        self._is_soon = False

    def ask(self, in_s: float) -> None:
        """Have the next piece done in so many seconds, if none is to be done; at once (0.0) also where one is."""
        if self._is_soon or (self._timer is not None and in_s > 0.0):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_soon = in_s <= 0.0
        self._timer = self._runtime.call_later(in_s, self._rang)

    def _rang(self) -> None:
        self._is_soon = False
        self._timer = None
        self._go_on()


class QueueOwner(LoopActor[ToQueueOwner]):
    """Owns a shard's state; begins as a follower. `view` is what it knows of the node to begin with."""

    def __init__(
        self,
        runtime: Runtime,
        state: ShardState,
        limits: Limits,
        view: NodeView,
        settings: OwnerSettings,
    ) -> None:
        super().__init__(runtime)
        self._view = view
        self._settings = settings
        self._stage = OwnerStage()
        self._rows = HeadRows()
        machine = Appending(settings.appending, state.trans_id)
        self._appender = Appender(runtime, machine, self._stage, self._carry_out)
        self._admission = Admission(self._stage, runtime.monotonic_clock)
        self._replicator: Mailbox[ToReplicator]
        self._blocks = BlockNews()
        self._leftovers = Leftovers(self._admission)
        self._alarm = Alarm(runtime, lambda: self.actor_ref.tell(_TimePassed()))
        self._pieces = Pieces(runtime, self._continue)
        self._stopping: Stop | None = None
        self._broker: Broker
        self._ledger: Ledger
        self._interlude = Interlude(self, settings.undo_piece, self._carry_out)
        self._begin(state, limits, FIRST_LEVEL)
        self._blocks.loaded(state)
        self.handlers = {
            Execute: lambda m: self._execute(m.calls),
            LogAdvanced: self._log_advanced,
            Apply: self._apply,
            Promoted: self._promoted,
            Deposed: self._deposed,
            LogCut: self._log_cut,
            StateDropped: self._state_dropped,
            StateLoaded: self._state_loaded,
            LeaderChanged: self._view.leader_changed,
            MembersChanged: self._members_changed,
            Propose: self._propose,
            Drain: self._drain,
            Undrain: self._undrain,
            ClientGone: lambda m: self._admission.client_gone(m.client, self._broker),
            RightsChanged: lambda m: self._execute(self._admission.rejudge(self._broker, m)),
            _TimePassed: self._time_passed,
            DescribeHead: self._describe,
            BlocksRead: lambda m: self._broker.told(self._now(), m),
            BlocksStored: lambda m: note_stored(self._ledger.state.topics, m),
            GapFilled: lambda m: note_filled(self._ledger.state.topics, m),
            GroupsRead: self._view.groups_read,
            TellTopics: lambda m: tell_topics(self._ledger.state.topics, m),
            CloseTail: lambda m: close_tail(self._ledger.state.topics, m),
            Reconfigure: lambda m: _reconfigure(self._broker, m),
            Stop: self._stop_asked,
        }

    def attach(
        self,
        replicator: Mailbox[ToReplicator],
        checkpointer: Mailbox[ToCheckpointer],
        router: Mailbox[ToRouter],
        reader: Mailbox[ToBlockReader],
    ) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._replicator = replicator
        self._blocks.checkpointer, self._blocks.reader = checkpointer, reader
        self._appender.replicator = replicator
        self._admission.router = router

    def on_receive(self, message: Any) -> None:
        """Dispatch, then carry out what came of it."""
        self.handlers[type(message)](message)
        self._carry_out()

    def _take_state(self, state: ShardState, committed: int | None = None) -> None:
        """Go on with that one. What waits for it to get something is asked for again, wherever that is."""
        self._leftovers.add_waiting(self._broker.take_waiting(self._now()))
        self._broker.release()
        if self._ledger.state is not state:
            self._leftovers.add_state(self._ledger.state)
        self._begin(state, self._broker.context.limits, self._ledger.level, committed)

    def _begin(self, state: ShardState, limits: Limits, level: int, committed: int | None = None) -> None:
        """Make a broker over `state`, with nothing open."""
        leases = self._settings.lease_committed
        context = ShardContext(state, limits, self._view, leases_are_committed=leases, committed=committed)
        self._broker = Broker(context, self._settings.machines)
        self._rows.readers = None
        self._ledger = self._broker.ledger
        self._ledger.level = level
        self._appender.ledger = self._admission.ledger = self._ledger
        self._admission.jobs = self._broker.jobs
        self._broker.jobs.set_late(self.runtime.is_late)
        if self.runtime.watcher is not None:
            self.runtime.watcher("state", (state, self._ledger.now))

    def _empty_state(self) -> None:
        """Drop a state that is not the log's: nothing is known until a fresh one comes."""
        state = self._ledger.state
        self._rows.dropped()
        self._leftovers.add_waiting(self._broker.take_waiting(self._now()))
        uncertain, undone = self._broker.take_open(self._appender.machine.logged)
        self._admission.refuse([*uncertain, *undone], ErrorWord.NO_LEADER, READS_AGAIN)
        send_answers(self._ledger.take_answers())
        self._take_state(ShardState(state.messages.shard))

    # -- requests ----------------------------------------------------------------------------------------------

    def _execute(self, calls: list[Call]) -> None:
        """Do the calls, in order, the first and then as many as are begun before it is late; the rest is put off."""
        now = self._now()  # and with it, whether the lease is held
        admitted = self._admission.admit(calls)
        broker, runtime, last = self._broker, self.runtime, len(admitted) - 1
        broker.begin(now)
        for index, call in enumerate(admitted):
            broker.execute(call)
            if index < last and runtime.is_late():
                self._admission.put_off(admitted[index + 1 :])
                break
        if self._admission.has_more:
            self._admission.execute_strangers(broker, broker.execute, runtime.is_late)

    def _time_passed(self, message: _TimePassed) -> None:
        self._alarm.rang()
        if self._stage.lets_time_pass:
            self._pass_time()
        else:
            self._broker.end_waits(self._now())

    def _pass_time(self) -> None:
        """Do what is due, as much as one turn does. Who has caught up with the time does what was held, too."""
        now = self._now()
        self._broker.pass_time(now)
        if not self._broker.is_behind(now) and self._stage.caught_up():
            self._execute([])

    def _continue(self) -> None:
        """One piece more of work that was cut; the loop has looked at sockets and timers since the one before."""
        if self._interlude.is_on:
            self._pieces.ask(0.0)
        elif not self.has_ended:
            self._leftovers.let_go()
            if self._stage.leads:
                self._commit_some()
                self._ledger.replicated.committed()
                if self._stage.committed(self._ledger.committed):
                    self._pass_time()
            if self._admission.has_more:
                self._execute([])
            if self._broker.has_more:
                self._broker.go_on(self._now())
            if self._rows.has_more:
                self._describe()
            self._leftovers.drop()
            self._carry_out()

    def _members_changed(self, message: MembersChanged) -> None:
        self._view.nodes, self._view.voters = message.nodes, message.voters
        self._ledger.level = message.level
        self._stage.named(message.since)
        state = self._ledger.state
        state.undo.turn(state, is_on=self._stage.leads and message.voters > 1)
        tenures = state.facts.tenures.rows
        if self._stage.leads and tenures and tenures[-1].node_id != self._view.node_id:
            self._ledger.append(Lead("", self._view.node_id))  # it has led before, and now it is known who did
        if self._stage.committed(self._ledger.committed):
            self._pass_time()

    # -- the log -----------------------------------------------------------------------------------------------

    def _log_advanced(self, message: LogAdvanced) -> None:
        committed = message.committed
        self._view.heard, self._view.trimmed = message.heard, message.trimmed
        self._view.disk_full = message.disk_full
        self._view.is_journal_full = (
            message.disk_full is not None and message.room_bytes < self._settings.journal_low_bytes
        )
        self._appender.is_disk_full = message.disk_full is not None
        if not self._stage.leads:
            return
        ledger, machine = self._ledger, self._appender.machine
        monotonic = self.runtime.monotonic()
        ledger.lease.pass_time(monotonic)
        was_doubtful = ledger.lease.is_doubtful
        ledger.renew_lease(message.leased_until, message.confirmed_at)
        machine.advanced(max(message.durable, committed), message.tail_bytes)
        ledger.committable = max(committed, ledger.committable)
        self._commit_some()
        ledger.replicated.majority = self._view.voters // 2 + 1
        ledger.replicated.durable(message.durable, message.replicas)
        if self._stage.committed(ledger.committed):
            self._pass_time()
        elif self._admission.holds_what_may_be_done:
            self._execute([])
        if was_doubtful:
            self._appender.append()

    def _commit_some(self) -> None:
        """Let go of what waits for records that are committed, as much as one turn does."""
        ledger = self._ledger
        if ledger.committed >= ledger.committable:
            return
        answers_before = len(ledger.answers)
        committed = min(ledger.committed + self._settings.commit_piece, ledger.committable)
        self._view.committed = committed
        self._broker.commit(self._now(), committed)
        parked, freed = ledger.parked_count, len(ledger.answers) - answers_before
        is_shared = self._view.voters > 1
        self._appender.machine.committed(self.runtime.monotonic(), committed, parked, freed, is_shared=is_shared)

    def _apply(self, message: Apply) -> None:
        if self._stage.is_reloading:
            for stored in message.entries:
                stored.read = None  # the fresh state has them, or they come again behind it
            return
        ledger, committed = self._ledger, message.entries[-1].last_trans_id

        def follow() -> None:
            """They are applied."""
            self._view.committed = committed
            self._broker.followed(committed)
            self._describe()

        self._interlude.follow(ledger.state, message.entries, follow)

    # -- leading and following ---------------------------------------------------------------------------------

    def _promoted(self, message: Promoted) -> None:
        """Apply what the log holds beyond the commit point, and put the first entry of the own vote_id behind it."""
        if self._stage.is_reloading:
            return  # said again with the fresh state
        state, committed = self._ledger.state, self._ledger.committed
        uncertain, undone = self._broker.take_open(state.trans_id)
        self._admission.hold([*uncertain, *undone])  # what was asked about this node, and waited for a commit
        state.undo.turn(state, is_on=self._view.voters > 1)

        def follow() -> None:
            """They are applied."""
            self._take_state(state, committed)
            self._appender.machine.begin(state.trans_id)
            self._ledger.renew_lease(-NEVER, -NEVER)
            self._ledger.set_time(self._now())
            self._ledger.append(Lead("", self._view.node_id))
            self._stage.promoted(message.vote_id, state.trans_id)
            self._appender.append()
            self._describe()

        self._interlude.follow(state, message.entries, follow)

    def _deposed(self, message: Deposed) -> None:
        """Let go of what is committed, answer all else that is open as far as it is known, and follow."""
        if not self._stage.leads:
            return
        self._appender.rest()  # what left now would count as logged, and calls that are certainly not done as unknown
        ledger = self._ledger

        def commit() -> Steps:
            while True:
                self._commit_some()
                self._send()
                if ledger.committed >= ledger.committable:
                    return
                yield

        self._interlude.do(commit(), lambda: self._stop_leading(message))

    def _stop_leading(self, message: Deposed) -> None:
        who = f"node {message.leader}" if message.leader else "another node"
        unknown = f"this node stopped leading while the request was being committed; {who} may have it or not"
        ledger, state, leftovers = self._ledger, self._ledger.state, self._leftovers
        leftovers.add_waiting(self._broker.take_waiting(self._now()))
        state.placed_at = ledger.now
        uncertain, undone = self._broker.take_open(self._appender.machine.logged)
        leftovers.add_uncertain(uncertain, unknown)
        leftovers.add_undone([*undone, *self._admission.take_held()])
        leftovers.let_go()
        self._send()
        self._stage.deposed()
        state.undo.turn(state, is_on=False)

        def follow(is_undone: bool) -> None:
            """See to it that the state holds what the log does, or is read anew."""
            if not is_undone:
                self._reload()
                return
            for produced in ledger.take_unplaced():
                if produced.msg_id in state.messages and not produced.place:
                    state.queues[produced.queue].place(produced, state.time)
            self._rows.dropped()
            self._take_state(state, message.committed)
            self._describe()

        self._interlude.undo(state, message.log_end, follow)

    def _log_cut(self, message: LogCut) -> None:
        """Undo what another leader's log does not hold, and was applied here while this node led."""
        if self._stage.is_reloading:
            return
        ledger = self._ledger

        def follow(is_undone: bool) -> None:
            if not is_undone:
                self._reload()
                return
            uncertain, undone = self._broker.take_open(ledger.state.trans_id)
            self._rows.dropped()
            self._take_state(ledger.state, min(ledger.committed, message.after))
            self._execute([*uncertain, *undone])  # what was asked about this node, and waited for a commit
            self._describe()

        self._interlude.undo(ledger.state, message.after, follow)

    def _reload(self) -> None:
        """Drop the state: it holds what the log does not, and that can't be undone."""
        self._stage.dropped()
        self._empty_state()
        self._replicator.tell(ReloadNeeded())

    def _state_dropped(self, message: StateDropped) -> None:
        self._stage.dropped()
        self._leftovers.add_undone(self._admission.take_held())
        self._empty_state()
        self._leftovers.is_awaited = True

    def _state_loaded(self, message: StateLoaded) -> None:
        self._stage.loaded()
        self._take_state(message.state)
        self._blocks.loaded(message.state)
        self._view.committed = message.state.trans_id
        self._rows.readers_moved(self._ledger)  # before it is said what may be trimmed
        self._describe()

    def _propose(self, message: Propose) -> None:
        if self._stage.leads and message.vote_id == self._stage.vote_id:
            self._appender.machine.propose(message.record)
            self._appender.append()

    def _drain(self, message: Drain) -> None:
        if self._stage.drain(message.vote_id):
            self._leftovers.add_waiting(self._broker.take_waiting(self._now()))
            self._admission.give_back(self._admission.take_unserved())

    def _undrain(self, message: Undrain) -> None:
        if self._stage.undrain():
            self._pass_time()

    # -- carrying out ------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        if self._interlude.is_on:
            return
        ledger, stage, asked = self._ledger, self._stage, self._broker.context.asked
        if ledger.answers:
            self._send()
        if self._broker.failures:
            self._admission.failed.note(self.runtime.monotonic(), self._broker.failures)
            self._broker.failures.clear()
        if asked:
            for one in asked:
                if isinstance(one, StatusAsked) and one.call.request.action == Action.NODE_METRICS:
                    one.shard.update(self._appender.machine.measured)
                    one.shard["internal_errors"] = self._admission.failed.count
                self._replicator.tell(one)
            asked.clear()
        if ledger.records and stage.leads:
            self._appender.go_on()
        next_at = self._broker.next_event_at if stage.lets_time_pass else self._broker.next_wait_at
        if next_at < self._alarm.at:
            self._alarm.set(next_at, self._now())
        has_to_commit = ledger.committed < ledger.committable and stage.leads
        has_calls = self._broker.has_more or self._admission.has_calls
        if has_to_commit or self._broker.has_more or self._leftovers.has_any or self._rows.has_more:
            self._pieces.ask(0.0)
        elif self._admission.has_more:
            self._pieces.ask(self._admission.more_in_s)
        if self._leftovers.is_awaited and not self._leftovers.has_states:
            self._leftovers.is_awaited = False
            self._replicator.tell(StateGone())
        is_done = not (has_calls or self._admission.holds_any or self._leftovers.has_calls) and ledger.is_settled
        if stage.is_draining and is_done and stage.drained():
            self._replicator.tell(Drained(stage.vote_id))
        if ledger.state.facts.readers is not self._rows.readers and not stage.is_reloading:
            self._rows.readers_moved(ledger)
        self._blocks.tell(ledger.state.topics, self._broker.context.disk)
        if self._broker.context.not_here:
            self._admission.give_back(self._broker.context.take_not_here())
        for message in self._rows.take_ready() if self._rows.is_ready else ():
            self._blocks.checkpointer.tell(message)
        if self._stopping is not None:
            self._go_on_stopping()

    def _send(self) -> None:
        answers = self._ledger.take_answers()
        if self.runtime.watcher is not None:
            self.runtime.watcher("answered", answers)
        send_answers(answers)

    def _now(self) -> float:
        # The wall clock first: whoever is put aside between the two is behind by that until the next reading. Ahead, it
        # would stay so as long as it leads.
        wall = self.runtime.now()
        monotonic = self.runtime.monotonic()
        self._ledger.lease.pass_time(monotonic)
        return self._broker.clock.now(wall, monotonic)

    # -- trimming ----------------------------------------------------------------------------------------------

    def _describe(self, asked: DescribeHead | None = None) -> None:
        if asked is not None:
            self._rows.asked(asked)
        if not self._stage.is_reloading:
            self._rows.describe(self._ledger, is_leading=self._stage.leads)

    # -- stopping ----------------------------------------------------------------------------------------------

    def _stop_asked(self, message: Stop) -> None:
        self._stopping = message
        self._stage.is_stopping = True
        self._leftovers.add_waiting(self._broker.take_waiting(self._now()))
        self._admission.refuse(self._admission.take_held(), ErrorWord.STOPPING, STOPS)

    def _go_on_stopping(self) -> None:
        """Stop when all is committed. The Replicator sees to it that LMDB has it."""
        is_at_work = self._broker.has_more or self._admission.has_calls
        if self._leftovers.has_calls or (self._stage.leads and (not self._ledger.is_settled or is_at_work)):
            return
        stopping, self._stopping = self._stopping, None
        assert stopping is not None
        self._replicator.tell(Stop(stopping.reply_to))  # and this one still answers that the node is stopping
