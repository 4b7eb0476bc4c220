"""QueueOwner: one shard's state. Leading it hosts the broker: requests in, entries to the log, answers out.

Leading, records gather while entries are on their way to the disk, and go to the Replicator as one entry when one has
arrived; what the broker parked is freed by `LogAdvanced` alone. Following, it applies what is committed, and answers
only what is asked about this node. What it may do at the moment, `Tenure` says.
"""

from typing import Any

from actors.messages.answering import send_answers
from actors.messages.call import Call
from actors.messages.calls import ClientGone, Execute, Returned, RightsChanged, StatusAsked
from actors.messages.checkpoints import DescribeHead
from actors.messages.lifecycle import Reconfigure, Stop
from actors.messages.log import (
    Apply,
    Deposed,
    Drain,
    Drained,
    LogAdvanced,
    Promoted,
    Propose,
    ReloadNeeded,
    StateDropped,
    StateGone,
    StateLoaded,
    Undrain,
)
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToCheckpointer, ToReplicator, ToRouter
from actors.messages.peers import LeaderChanged, MembersChanged
from actors.queues.appender import Appender
from actors.queues.appending import Appending
from actors.queues.broker import Broker, Limits
from actors.queues.clocks import Alarm, LeaderClock
from actors.queues.head_rows import HeadRows
from actors.queues.ledger import Ledger
from actors.queues.leftovers import Leftovers
from actors.queues.surroundings import OwnerSettings, Surroundings
from actors.queues.tenure import Tenure
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from quorate.actions import ASKS_NODE, WAITS, WRITES
from quorate.protocol import Action, ErrorWord, Reply, done, refusal
from storage import entry_codec
from storage.queue_state import NEVER
from storage.records import FIRST_LEVEL, Lead
from storage.state import ShardState


class _TimePassed:
    """To itself: the moment has come that a timer was set for."""


class QueueOwner(LoopActor):
    """Owns a shard's state; begins as a follower. `around` is what it knows of the node to begin with."""

    def __init__(
        self, runtime: Runtime, state: ShardState, limits: Limits, around: Surroundings, settings: OwnerSettings
    ) -> None:
        super().__init__(runtime)
        self._limits = limits
        self._around = around
        self._settings = settings
        self._tenure = Tenure()
        self._rows = HeadRows()
        self._appending = Appending(settings.appending, state.trans_id)
        self._appender = Appender(runtime, self._appending, self._tenure, self._carry_out)
        self._replicator: Mailbox[ToReplicator]
        self._checkpointer: Mailbox[ToCheckpointer]
        self._router: Mailbox[ToRouter]
        self._held: list[Call] = []
        self._leftovers = Leftovers()
        self._room_bytes = NEVER
        self._level = FIRST_LEVEL
        self._disk_full: str | None = None
        self._alarm = Alarm(runtime, lambda: self.actor_ref.tell(_TimePassed()))
        self._continues = self._tells_gone = False
        self._stopping: Stop | None = None
        self._broker: Broker
        self._ledger: Ledger
        self._has_broker = False
        self._take_state(state)
        self.handlers = {
            Execute: lambda m: self._execute(m.calls),
            LogAdvanced: self._log_advanced,
            Apply: self._apply,
            Promoted: self._promoted,
            Deposed: self._deposed,
            StateDropped: self._state_dropped,
            StateLoaded: self._state_loaded,
            LeaderChanged: self._around.leader_changed,
            MembersChanged: self._members_changed,
            Propose: self._propose,
            Drain: self._drain,
            Undrain: lambda m: self._tenure.undrain(),
            ClientGone: self._client_gone,
            RightsChanged: lambda m: self._broker.delivery.rejudge(m.client, m.principal),
            _TimePassed: self._time_passed,
            DescribeHead: self._describe_head,
            Reconfigure: self._reconfigure,
            Stop: self._stop_asked,
        }

    def attach(
        self, replicator: Mailbox[ToReplicator], checkpointer: Mailbox[ToCheckpointer], router: Mailbox[ToRouter]
    ) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._replicator, self._checkpointer, self._router = replicator, checkpointer, router
        self._appender.replicator = replicator

    def on_receive(self, message: Any) -> None:
        """Dispatch, then carry out what came of it."""
        self.handlers[type(message)](message)
        self._carry_out()

    def _take_state(self, state: ShardState, committed: int | None = None) -> None:
        """A broker over `state`, with nothing open."""
        if self._has_broker:
            self._broker.release()
            if self._ledger.state is not state:
                self._leftovers.add_state(self._ledger.state)
        self._has_broker = True
        self._broker = Broker(
            state, self._limits, self._around, lease_committed=self._settings.lease_committed, committed=committed
        )
        self._broker.disk_full = self._disk_full
        self._rows.readers = None
        self._ledger = self._broker.ledger
        self._ledger.level = self._level
        self._appender.ledger = self._ledger
        self._clock = LeaderClock(state.time)

    def _empty_state(self) -> None:
        """The state is not the log's: nothing is known until a fresh one comes."""
        state = self._ledger.state
        self._rows.dropped()
        self._leftovers.add_waiters(self._broker.delivery, self._now())
        uncertain, undone = self._broker.take_open(self._appending.logged)
        reason = "this node reads its data again, since it lost its place as leader"
        self._refuse([*uncertain, *undone], ErrorWord.NO_LEADER, reason)
        send_answers(self._ledger.take_answers())
        self._take_state(ShardState(state.shard))

    # -- requests ----------------------------------------------------------------------------------------------

    def _execute(self, calls: list[Call]) -> None:
        tenure = self._tenure
        if tenure.is_stopping:
            return self._refuse(calls, ErrorWord.STOPPING, "the node is stopping")
        if not tenure.serves:
            calls = self._own_view_of(calls)
        elif self._held:
            calls, self._held = [*self._held, *calls], []
        if self._disk_full is not None and self._room_bytes < self._settings.journal_low_bytes:
            reason = f"nothing can be written now: {self._disk_full}"
            self._refuse([call for call in calls if call.request.action in WRITES], ErrorWord.DISK_FULL, reason)
            calls = [call for call in calls if call.request.action not in WRITES]
        self._broker.execute(self._now(), calls)
        return None

    def _own_view_of(self, calls: list[Call]) -> list[Call]:
        """The calls that can be answered though this node does not serve; others wait for that, or are refused."""
        own = [call for call in calls if call.request.action in ASKS_NODE]
        others = [call for call in calls if call.request.action not in ASKS_NODE]
        if others and self._tenure.leads:
            self._held += others
        else:
            self._return(others)
        if not self._tenure.is_reloading:
            return own
        of_queues = (Action.NODE_MONITOR, Action.NODE_LIST)
        reason = "this node reads its data again, since it lost its place as leader"
        self._refuse([call for call in own if call.request.action in of_queues], ErrorWord.NO_LEADER, reason)
        return [call for call in own if call.request.action not in of_queues]

    def _refuse(self, calls: list[Call], error: str, reason: str) -> None:
        for call in calls:
            self._ledger.answer(call, refusal(call.request, error, reason))

    def _return(self, calls: list[Call]) -> None:
        """They were not done: the Router finds out who leads."""
        if calls:
            self._router.tell(Returned(calls))

    def _client_gone(self, message: ClientGone) -> None:
        self._broker.delivery.forget(message.client)
        if message.client.is_gone:
            self._ledger.replicated.forget(message.client)
        gone = [c for c in self._held if c.client is message.client and c.request.action in WAITS]
        self._held = [call for call in self._held if call not in gone]
        for call in gone:
            self._ledger.answer(call, done(call.request, Reply))

    def _time_passed(self, message: _TimePassed) -> None:
        self._alarm.rang()
        if self._tenure.lets_time_pass:
            self._broker.pass_time(self._now())

    def _continue(self) -> None:
        """One piece more of work that was cut; the loop has looked at sockets and timers since the one before."""
        self._continues = False
        if not self.has_ended:
            self._give_back()
            if self._broker.has_more:
                self._broker.go_on(self._now())
            if self._rows.has_more:
                self._describe()
            self._leftovers.drop()
            self._carry_out()

    def _give_back(self) -> None:
        """Some of the consumers that waited here, and do not any more."""
        calls = self._leftovers.some_calls()
        if self._tenure.is_stopping:
            self._refuse(calls, ErrorWord.STOPPING, "the node is stopping")
        else:
            self._return(calls)

    def _reconfigure(self, message: Reconfigure) -> None:
        assert isinstance(message.limits, Limits)
        self._limits = message.limits
        self._broker.set_limits(message.limits)

    def _members_changed(self, message: MembersChanged) -> None:
        self._around.nodes, self._around.voters = message.nodes, message.voters
        self._level = self._ledger.level = message.level
        tenures = self._ledger.state.tenures.rows
        self._tenure.named(message.since)
        if self._tenure.leads and tenures and tenures[-1].node_id != self._around.node_id:
            self._ledger.append(Lead("", self._around.node_id))  # it has led before, and now it is known who did
        if self._tenure.committed(self._ledger.committed):
            self._execute([])  # and with it what was held

    # -- the log -----------------------------------------------------------------------------------------------

    def _log_advanced(self, message: LogAdvanced) -> None:
        committed = message.committed
        self._room_bytes, self._around.trimmed = message.room_bytes, message.trimmed
        self._around.heard = message.heard
        self._broker.disk_full = self._disk_full = message.disk_full
        self._appender.is_disk_full = message.disk_full is not None
        if not self._tenure.leads:
            return
        ledger = self._ledger
        monotonic = self.runtime.monotonic()
        ledger.pass_monotonic(monotonic)
        ledger.lease(message.leased_until, message.confirmed_at)
        self._appending.advanced(max(message.durable, committed), message.tail_bytes)
        answers_before = len(ledger.answers)
        is_news = committed > ledger.committed
        if is_news:
            self._around.committed = committed
            self._broker.commit(self._now(), committed)
        ledger.replicated.majority = self._around.voters // 2 + 1
        ledger.replicated.durable(message.durable, message.replicas)
        if is_news:
            freed = len(ledger.answers) - answers_before
            parked = ledger.parked_count
            self._appending.committed(monotonic, committed, parked, freed, is_shared=ledger.replicated.majority > 1)
        if self._tenure.committed(committed):
            self._execute([])  # and with it what was held

    def _apply(self, message: Apply) -> None:
        if self._tenure.is_reloading:
            for stored in message.entries:
                stored.read = None  # the fresh state has them, or they come again behind it
            return
        state = self._ledger.state
        for stored in message.entries:
            state.follow_entry(entry_codec.read(stored, "a replicated entry"))
        self._around.committed = message.entries[-1].last_trans_id
        self._ledger.followed(self._around.committed, state.time)
        self._describe()

    # -- leading and following ---------------------------------------------------------------------------------

    def _promoted(self, message: Promoted) -> None:
        """Apply what the log holds beyond the commit point, and put the first entry of the own vote_id behind it."""
        if self._tenure.is_reloading:
            return  # said again with the fresh state
        state, committed = self._ledger.state, self._ledger.committed
        uncertain, undone = self._broker.take_open(state.trans_id)
        self._held += [*uncertain, *undone]  # what was asked about this node, and waited for a commit
        for entry in message.entries:
            state.follow_entry(entry_codec.read(entry, "a replicated entry"))
        self._take_state(state, committed)
        self._appending.begin(state.trans_id)
        self._ledger.lease(-NEVER, -NEVER)
        self._ledger.set_time(self._now())
        self._ledger.append(Lead("", self._around.node_id))
        self._tenure.promoted(message.vote_id, state.trans_id)
        self._appender.append()
        self._describe()

    def _deposed(self, message: Deposed) -> None:
        """Answer all that is open as far as it is known, and go on as a follower."""
        if not self._tenure.leads:
            return
        who = f"node {message.leader}" if message.leader else "another node"
        unknown = f"this node stopped leading while the request was being committed; {who} may have it or not"
        ledger = self._ledger
        self._leftovers.add_waiters(self._broker.delivery, self._now())
        uncertain, undone = self._broker.take_open(self._appending.logged)
        self._refuse(uncertain, ErrorWord.UNKNOWN_OUTCOME, unknown)
        undone += self._held
        self._held = []
        self._return(undone)
        self._send()
        state = ledger.state
        is_in_log = state.trans_id == message.log_end
        self._tenure.deposed(is_in_log=is_in_log)
        if not is_in_log:
            self._empty_state()
            self._replicator.tell(ReloadNeeded())
            return
        for produced in ledger.take_unplaced():
            if produced.msg_id in state.messages and not produced.place:
                state.queues[produced.queue].place(produced, state.time)
        self._take_state(state, message.committed)
        self._describe()

    def _state_dropped(self, message: StateDropped) -> None:
        self._tenure.dropped()
        self._return(self._held)
        self._held = []
        self._empty_state()
        self._tells_gone = True

    def _state_loaded(self, message: StateLoaded) -> None:
        self._tenure.loaded()
        self._take_state(message.state)
        self._around.committed = message.state.trans_id
        self._rows.readers_moved(self._ledger)  # before it is said what may be trimmed
        self._describe()

    def _propose(self, message: Propose) -> None:
        if self._tenure.leads and message.vote_id == self._tenure.vote_id:
            self._appending.propose(message.record)
            self._appender.append()

    def _drain(self, message: Drain) -> None:
        if self._tenure.drain(message.vote_id):
            self._leftovers.add_waiters(self._broker.delivery, self._now())

    # -- carrying out ------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        ledger, tenure, asked = self._ledger, self._tenure, self._broker.asked
        if ledger.answers:
            self._send()
        if asked:
            for one in asked:
                if isinstance(one, StatusAsked) and one.call.request.action == Action.NODE_METRICS:
                    one.shard.update(self._appending.measured)
                self._replicator.tell(one)
            asked.clear()
        if ledger.records and tenure.leads:
            self._appender.go_on()
        if self._broker.next_event_at < self._alarm.at and tenure.lets_time_pass:
            self._alarm.set(self._broker.next_event_at, self._now())
        if (self._leftovers.has_any or self._rows.has_more or self._broker.has_more) and not self._continues:
            self._continues = True
            self.runtime.call_later(0.0, self._continue)
        if self._tells_gone and not self._leftovers.has_states:
            self._tells_gone = False
            self._replicator.tell(StateGone())
        has_more = self._leftovers.waiters or self._broker.has_more
        if tenure.is_draining and ledger.is_settled and not has_more and tenure.drained():
            self._replicator.tell(Drained(tenure.vote_id))
        if ledger.state.readers is not self._rows.readers and not tenure.is_reloading:
            self._rows.readers_moved(ledger)
        for message in self._rows.take_ready() if self._rows.is_ready else ():
            self._checkpointer.tell(message)
        if self._stopping is not None:
            self._go_on_stopping()

    def _send(self) -> None:
        answers = self._ledger.take_answers()
        if self.runtime.watcher is not None:
            self.runtime.watcher("answered", answers)
        send_answers(answers)

    def _now(self) -> float:
        monotonic = self.runtime.monotonic()
        self._ledger.pass_monotonic(monotonic)
        return self._clock.now(self.runtime.now(), monotonic)

    # -- trimming ----------------------------------------------------------------------------------------------

    def _describe_head(self, message: DescribeHead) -> None:
        self._rows.asked(message)
        self._describe()

    def _describe(self) -> None:
        if not self._tenure.is_reloading:
            self._rows.describe(self._ledger, is_leading=self._tenure.leads)

    # -- stopping ----------------------------------------------------------------------------------------------

    def _stop_asked(self, message: Stop) -> None:
        self._stopping = message
        self._tenure.is_stopping = True
        self._leftovers.add_waiters(self._broker.delivery, self._now())
        undone, self._held = self._held, []
        self._refuse(undone, ErrorWord.STOPPING, "the node is stopping")

    def _go_on_stopping(self) -> None:
        """Stopped is: all committed. The Replicator sees to it that LMDB has it."""
        if self._leftovers.waiters or (self._tenure.leads and (not self._ledger.is_settled or self._broker.has_more)):
            return
        stopping, self._stopping = self._stopping, None
        assert stopping is not None
        self._replicator.tell(Stop(stopping.reply_to))  # and this one still answers that the node is stopping
