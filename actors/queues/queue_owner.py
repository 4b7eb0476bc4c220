"""QueueOwner: one shard's state. Leading it hosts the broker: requests in, entries to the log, answers out.

Leading, records gather while entries are on their way to the disk, and go to the Replicator as one entry when one has
arrived; what the broker parked is freed by `LogAdvanced` alone. Nothing is served before the first entry of the own
vote_id is committed. Following, it applies what is committed, and answers only what is asked about this node.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pykka

from actors.messages.calls import Answer, Call, ClientGone, ClusterAsked, Execute, LogAsked, Returned, send_answers
from actors.messages.checkpoints import DescribeRows
from actors.messages.lifecycle import Continue, Reconfigure, Stop, TimePassed
from actors.messages.log import (
    Append,
    Apply,
    Deposed,
    Drain,
    Drained,
    LogAdvanced,
    Promoted,
    Propose,
    ReloadNeeded,
    StateDropped,
    StateLoaded,
    Undrain,
)
from actors.messages.node_view import NodeView
from actors.queues.broker import Broker, Limits
from actors.queues.leader_clock import LeaderClock
from actors.queues.row_description import RowDescription
from actors.runtime.contract import Runtime, Timer
from actors.runtime.gathering import Gathering
from actors.runtime.loop_actor import LoopActor
from quorate.actions import ASKS_NODE, WRITES
from quorate.protocol import ErrorWord, refusal
from storage import entry as entry_codec
from storage.entry import StoredEntry
from storage.entry_making import make_entries
from storage.queue_state import NEVER
from storage.records import Lead, Record
from storage.state import ShardState

LINGER_S: Final = 0.002
"""How long records that no reply waits for (deliveries) may wait for others to be flushed with."""

LINGER_RECORDS_MAX: Final = 1000

TIMER_MAX_S: Final = 1.0
"""A timer is checked this often, so that a jump of the wall clock makes nothing late by more."""


@dataclass
class OwnerSettings:
    """Bytes, and how many entries may be on their way to the disk at once.

    `entry_bytes_max`: an entry is closed when it passes this; a quarter of a journal segment, so that it always fits.
    `tail_bytes_max`: entries that wait for LMDB; more are not sent to the journal before some have left.
    `journal_low_bytes`: with less room in the journal and a full disk, nothing is written any more.
    """

    writes_max: int = 2
    entry_bytes_max: int = 4 << 20
    tail_bytes_max: int = 64 << 20
    journal_low_bytes: int = 1 << 20
    lease_committed: bool = False


class QueueOwner(LoopActor):
    """Owns a shard's state; begins as a follower."""

    def __init__(
        self, runtime: Runtime, state: ShardState, limits: Limits, view: NodeView, settings: OwnerSettings
    ) -> None:
        super().__init__(runtime)
        self._limits = limits
        self._view = view
        self._settings = settings
        self._replicator: pykka.ActorRef[Any]
        self._router: pykka.ActorRef[Any]
        self._vote_id = 0
        self._is_leading = False
        self._lead_trans_id = 0
        self._is_serving = False
        self._awaits_state = False
        self._is_drained = False
        self._draining: Drain | None = None
        self._held: list[Execute] = []
        self._leased_until = NEVER
        self._under_way: deque[int] = deque()
        self._tail_bytes = 0
        self._logged = state.trans_id
        self._alarm: Timer | None = None
        self._alarm_at = NEVER
        self._linger: Timer | None = None
        self._gathering = Gathering()
        self._is_gathering = False
        self._continues = False
        self._room_bytes = NEVER
        self._stopping: Stop | None = None
        self._has_stopped = False
        self._disk_full: str | None = None
        self._proposal: Record | None = None
        self._take_state(state)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Execute: self._execute,
            LogAdvanced: self._log_advanced,
            Apply: self._apply,
            Promoted: self._promoted,
            Deposed: self._deposed,
            StateDropped: self._state_dropped,
            StateLoaded: self._state_loaded,
            Propose: self._propose,
            Drain: self._drain,
            Undrain: self._undrain,
            ClientGone: self._client_gone,
            TimePassed: self._time_passed,
            Continue: self._continue,
            DescribeRows: self._describe_rows,
            Reconfigure: self._reconfigure,
            Stop: self._stop_asked,
        }

    def attach(
        self, replicator: "pykka.ActorRef[Any]", checkpointer: "pykka.ActorRef[Any]", router: "pykka.ActorRef[Any]"
    ) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._router = router
        self._rows = RowDescription(checkpointer)
        self._replicator = replicator

    def on_receive(self, message: Any) -> None:
        """Dispatch, then carry out what came of it."""
        self._handlers[type(message)](message)
        self._carry_out()

    def _take_state(self, state: ShardState) -> None:
        """A broker over `state`, with nothing open."""
        self._broker = Broker(state, self._limits, self._view, lease_committed=self._settings.lease_committed)
        self._broker.disk_full = self._disk_full
        self._ledger = self._broker.ledger
        self._clock = LeaderClock(state.time)

    # -- requests ----------------------------------------------------------------------------------------------

    def _execute(self, message: Execute) -> None:
        calls = message.calls
        if self._stopping is not None:
            return self._refuse(calls, ErrorWord.STOPPING, "the node is stopping")
        if not self._is_serving:
            calls = self._own_view_of(message)
            if not calls:
                return None
        if self._broker.disk_full is not None and self._room_bytes < self._settings.journal_low_bytes:
            reason = f"nothing can be written now: {self._broker.disk_full}"
            self._refuse([call for call in calls if call.request.action in WRITES], ErrorWord.DISK_FULL, reason)
            calls = [call for call in calls if call.request.action not in WRITES]
        self._broker.execute(self._now(), calls)
        if self._broker.log_calls:
            for call in self._broker.log_calls:
                self._replicator.tell(LogAsked(call))
            self._broker.log_calls.clear()
        if self._broker.cluster_calls:
            for call in self._broker.cluster_calls:
                self._replicator.tell(ClusterAsked(call))
            self._broker.cluster_calls.clear()
        return None

    def _own_view_of(self, message: Execute) -> list[Call]:
        """The calls that can be answered though this node does not serve; others wait for that, or are refused."""
        own = [call for call in message.calls if call.request.action in ASKS_NODE]
        others = [call for call in message.calls if call.request.action not in ASKS_NODE]
        if others and self._is_leading:
            self._held.append(Execute(others))
        else:
            self._return(others)
        if self._awaits_state:
            self._refuse(own, ErrorWord.NO_LEADER, "this node reads its data again, since it lost its place as leader")
            return []
        return own

    def _refuse(self, calls: list[Call], error: str, reason: str) -> None:
        for call in calls:
            self._ledger.answer(call, refusal(call.request, error, reason))

    def _return(self, calls: list[Call]) -> None:
        """They were not done: the Router finds out who leads."""
        if calls:
            self._router.tell(Returned(calls))

    def _client_gone(self, message: ClientGone) -> None:
        self._broker.delivery.forget(message.client)
        for execute in self._held:
            execute.calls = [call for call in execute.calls if call.client is not message.client]

    def _time_passed(self, message: TimePassed) -> None:
        self._alarm = None
        self._alarm_at = NEVER
        if self._is_serving and not self._is_drained:
            self._broker.pass_time(self._now())

    def _continue(self, message: Continue) -> None:
        self._continues = False
        self._broker.go_on(self._now())

    def _reconfigure(self, message: Reconfigure) -> None:
        limits = message.limits
        assert isinstance(limits, Limits)
        self._limits = limits
        self._broker.set_limits(limits)

    # -- the log -----------------------------------------------------------------------------------------------

    def _log_advanced(self, message: LogAdvanced) -> None:
        self._room_bytes = message.room_bytes
        self._tail_bytes = message.tail_bytes
        self._broker.disk_full = self._disk_full = message.disk_full
        self._leased_until = message.leased_until
        if not self._is_leading:
            return
        self._ledger.lease(self.runtime.monotonic() < self._leased_until)
        while self._under_way and self._under_way[0] <= message.stored:
            self._under_way.popleft()
        ledger = self._ledger
        answers_before = len(ledger.answers)
        is_news = message.committed > ledger.committed
        if is_news:
            self._broker.commit(self._now(), message.committed)
        ledger.majority = self._view.voter_count // 2 + 1
        ledger.stored(message.stored, message.replicas)
        if is_news:
            freed = len(ledger.answers) - answers_before
            self._gathering.committed(self.runtime.monotonic(), ledger.parked_count, freed)
        if not self._is_serving and message.committed >= self._lead_trans_id:
            self._is_serving = True
            held, self._held = self._held, []
            for execute in held:
                self._execute(execute)

    def _apply(self, message: Apply) -> None:
        if self._awaits_state:
            return  # the fresh state has them, or they come again behind it
        state = self._ledger.state
        for stored in message.entries:
            self._follow(state, stored)
        self._ledger.followed(state.trans_id, state.time)
        self._tell_rows()

    @staticmethod
    def _follow(state: ShardState, stored: StoredEntry) -> None:
        entry = entry_codec.decode(stored.data, "a replicated entry")
        if entry.last_trans_id <= state.trans_id:
            return  # applied when this node led
        assert entry.first_trans_id == state.trans_id + 1, (entry.first_trans_id, state.trans_id)
        trans_id = entry.first_trans_id
        for record in entry.records:
            state.follow(trans_id, record, entry.time)
            trans_id += 1
        state.time = entry.time

    # -- leading and following ---------------------------------------------------------------------------------

    def _promoted(self, message: Promoted) -> None:
        """Apply what the log holds beyond the commit point, and put the first entry of the own vote_id behind it."""
        if self._awaits_state:
            return  # said again with the fresh state
        state = self._ledger.state
        for entry in message.entries:
            self._follow(state, entry)
        self._take_state(state)
        self._proposal = None
        self._tail_bytes = 0
        self._leased_until = -NEVER
        self._vote_id = message.vote_id
        self._is_leading = True
        self._is_serving = self._is_drained = False
        self._logged = state.trans_id
        self._ledger.set_time(self._now())
        self._ledger.append(Lead("", self._view.node_id))
        self._lead_trans_id = state.trans_id
        self._under_way.clear()
        self._write()
        self._tell_rows()
        self._arm_alarm()

    def _deposed(self, message: Deposed) -> None:
        """Answer all that is open as far as it is known, and go on as a follower."""
        if not self._is_leading:
            return
        who = f"node {message.leader}" if message.leader else "another node"
        unknown = f"this node stopped leading while the request was being committed; {who} may have it or not"
        ledger = self._ledger
        uncertain, undone = self._broker.take_open(self._logged)
        self._refuse(uncertain, ErrorWord.UNKNOWN_OUTCOME, unknown)
        for execute in self._held:
            undone += execute.calls
        self._held = []
        self._return(undone)
        self._send(ledger.take_answers())
        self._is_leading = self._is_serving = self._is_drained = False
        self._draining = None
        state = ledger.state
        if state.trans_id != message.log_end:
            self._awaits_state = True
            self._take_state(ShardState(state.shard, state.default_max_size))
            self._replicator.tell(ReloadNeeded())
            return
        for produced in ledger.take_unplaced():
            if produced.msg_id in state.messages and not produced.place:
                state.queues[produced.queue].place(produced, state.time)
        self._take_state(state)
        self._tell_rows()

    def _state_dropped(self, message: StateDropped) -> None:
        state = self._ledger.state
        self._awaits_state = True
        self._take_state(ShardState(state.shard, state.default_max_size))

    def _state_loaded(self, message: StateLoaded) -> None:
        self._awaits_state = False
        self._take_state(message.state)
        self._tell_rows()

    def _propose(self, message: Propose) -> None:
        if self._is_leading and message.vote_id == self._vote_id:
            self._proposal = message.record
            self._write()

    def _drain(self, message: Drain) -> None:
        if not self._is_serving or message.vote_id != self._vote_id:
            return
        self._is_drained = True
        self._draining = message
        self._return(self._broker.delivery.take_waiting())

    def _undrain(self, message: Undrain) -> None:
        self._is_drained = False
        self._draining = None
        self._arm_alarm()

    # -- carrying out ------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        ledger = self._ledger
        if ledger.answers:
            self._send(ledger.take_answers())
        if ledger.records and len(self._under_way) < self._settings.writes_max:
            is_urgent = self._stopping is not None or self._is_drained
            if ledger.is_awaited or is_urgent or len(ledger.records) >= LINGER_RECORDS_MAX:
                if is_urgent or self._gathering.is_over(self.runtime.monotonic(), ledger.parked_count):
                    self._write()
                elif not self._is_gathering:
                    self._is_gathering = True
                    self.runtime.call_later(0.0, self._gathered)
            elif self._linger is None:
                self._linger = self._later(LINGER_S, self._linger_over)
        if self._broker.next_event_at < self._alarm_at and self._is_leading:
            self._arm_alarm()
        if self._broker.has_more and not self._continues:
            self._continues = True
            self.actor_ref.tell(Continue())
        if self._draining is not None and ledger.is_settled and not self._broker.has_more:
            self._replicator.tell(Drained(self._draining.vote_id))
            self._draining = None
        if self._stopping is not None:
            self._go_on_stopping()

    def _send(self, answers: list[Answer]) -> None:
        send_answers(answers)

    def _gathered(self) -> None:
        self._is_gathering = False
        self._carry_out()

    def _linger_over(self) -> None:
        self._linger = None
        if self._ledger.records and len(self._under_way) < self._settings.writes_max:
            self._write()

    def _write(self) -> None:
        ledger = self._ledger
        if not (ledger.records or self._proposal) or not self._is_leading:
            return
        if self._tail_bytes > self._settings.tail_bytes_max and self._broker.disk_full is None:
            return  # LMDB is behind: requests wait for it, but not for a full disk: the journal has room for them
        records = ledger.take_records()
        state = ledger.state
        first = state.trans_id - len(records) + 1
        state.time = ledger.now
        entries = make_entries(self._vote_id, first, ledger.now, records, self._settings.entry_bytes_max)
        if self._proposal is not None:  # an entry of its own, so that a follower sees it without decoding all others
            ledger.append(self._proposal)
            self._proposal = None
            entries += make_entries(self._vote_id, state.trans_id, ledger.now, ledger.take_records(), 1)
        self._logged = state.trans_id
        self._tail_bytes += sum(len(entry.data) for entry in entries)
        self._under_way.append(state.trans_id)
        self._replicator.tell(Append(self._vote_id, entries))

    def _arm_alarm(self) -> None:
        """One timer, at the broker's next event; never further than `TIMER_MAX_S`, since the wall clock may jump."""
        at = self._broker.next_event_at
        if at == NEVER:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        delay_s = min(max(at - self._now(), 0.0), TIMER_MAX_S)
        self._alarm = self._later(delay_s, lambda: self.actor_ref.tell(TimePassed()))

    def _now(self) -> float:
        monotonic = self.runtime.monotonic()
        self._ledger.lease(not self._is_leading or monotonic < self._leased_until)
        return self._clock.now(self.runtime.now(), monotonic)

    def _later(self, delay_s: float, callback: Any) -> Timer:
        return self.runtime.call_later(delay_s, callback)

    # -- trimming ----------------------------------------------------------------------------------------------

    def _describe_rows(self, message: DescribeRows) -> None:
        self._rows.asked(message)
        self._tell_rows()

    def _tell_rows(self) -> None:
        if not self._awaits_state:
            self._rows.tell(self._ledger, self._view.committed, is_leading=self._is_leading)

    # -- stopping ----------------------------------------------------------------------------------------------

    def _stop_asked(self, message: Stop) -> None:
        self._stopping = message
        self._broker.delivery.end_waiting()

    def _go_on_stopping(self) -> None:
        """Stopped is: all committed. The Replicator sees to it that LMDB has it."""
        if self._has_stopped or (self._is_leading and (not self._ledger.is_settled or self._broker.has_more)):
            return
        assert self._stopping is not None
        self._has_stopped = True
        self._replicator.tell(Stop(self._stopping.reply_to))  # and still answers that the node is stopping
