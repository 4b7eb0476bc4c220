"""QueueOwner: one shard's state. Hosts the broker: requests in, entries to the log, answers out.

Records gather while entries are on their way to the disk, and go to the LogWriter as one entry when one has arrived;
what the broker parked is freed by `Appended` alone. On a single node durable here is committed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pykka

from actors.broker import Broker, Limits
from actors.gathering import Gathering
from actors.leader_clock import LeaderClock
from actors.log_reading import log_reply
from actors.loop_actor import LoopActor
from actors.messages import (
    Answer,
    Answered,
    Append,
    Appended,
    Call,
    Checkpoint,
    CheckpointDue,
    Checkpointed,
    CheckpointFailed,
    ClientGone,
    Continue,
    DescribeRows,
    Execute,
    JournalBlocked,
    LogRead,
    ReadLog,
    Reconfigure,
    Recycle,
    RowsDescribed,
    Stop,
    Stopped,
    TimePassed,
)
from actors.queries import NodeView
from actors.runtime import Runtime, Timer
from quorate.protocol import Action, ErrorWord, refusal
from storage import entry as entry_codec
from storage.log_store import StoredEntry, rows_now
from storage.queue_state import NEVER
from storage.records import Message, Record, messages_of

SMALL_ENTRY_RECORDS: Final = 100

LINGER_S: Final = 0.002
"""How long records that no reply waits for (deliveries) may wait for others to be flushed with."""

LINGER_RECORDS_MAX: Final = 1000

CHECKPOINT_INTERVAL_S: Final = 0.05
RETRY_S: Final = 0.5
TIMER_MAX_S: Final = 1.0
"""A timer is checked this often, so that a jump of the wall clock makes nothing late by more."""

LOG_REPLY_BYTES_MAX: Final = 1 << 20
LOG_COUNT_DEFAULT: Final = 100
WRITES: Final = frozenset(
    {Action.PRODUCE, Action.CONSUME, Action.CONFIRM, Action.CONFIGURE, Action.CLEAR, Action.RELEASE, Action.EXTEND}
    | {Action.REMOVE}
)


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


class QueueOwner(LoopActor):
    """Owns the broker. `unstored` are the entries that recovery found in the journal and LMDB does not have."""

    def __init__(
        self,
        runtime: Runtime,
        broker: Broker,
        view: NodeView,
        log_writer: "pykka.ActorRef[Any]",
        checkpointer: "pykka.ActorRef[Any]",
        settings: OwnerSettings,
        unstored: list[StoredEntry],
    ) -> None:
        super().__init__(runtime)
        self._broker = broker
        self._ledger = broker.ledger
        self._clock = LeaderClock(broker.ledger.now)
        self._view = view
        self._log_writer = log_writer
        self._checkpointer = checkpointer
        self._settings = settings
        self._under_way: deque[int] = deque()
        self._tail: deque[StoredEntry] = deque(unstored)
        self._tail_bytes = sum(len(entry.data) for entry in unstored)
        self._is_checkpointing = False
        self._checkpoint_timer: Timer | None = None
        self._alarm: Timer | None = None
        self._alarm_at = NEVER
        self._linger: Timer | None = None
        self._gathering = Gathering()
        self._is_gathering = False
        self._continues = False
        self._room_bytes = NEVER
        self._stopping: Stop | None = None
        self._has_stopped = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            Execute: self._execute,
            Appended: self._appended,
            ClientGone: self._client_gone,
            TimePassed: self._time_passed,
            Continue: self._continue,
            CheckpointDue: self._checkpoint_due,
            Checkpointed: self._checkpointed,
            CheckpointFailed: self._checkpoint_failed,
            JournalBlocked: self._journal_blocked,
            DescribeRows: self._describe_rows,
            LogRead: self._log_read,
            Reconfigure: self._reconfigure,
            Stop: self._stop_asked,
        }

    def on_start(self) -> None:
        """Store what the journal had left over; ask for the log's bounds."""
        self._checkpoint_due(None)
        self._arm_alarm()

    def on_receive(self, message: Any) -> None:
        """Dispatch, then carry out what came of it."""
        self._handlers[type(message)](message)
        self._carry_out()

    # -- what comes in -----------------------------------------------------------------------------------------

    def _execute(self, message: Execute) -> None:
        calls = message.calls
        if self._stopping is not None:
            return self._refuse(calls, ErrorWord.STOPPING, "the node is stopping")
        if self._broker.disk_full is not None and self._room_bytes < self._settings.journal_low_bytes:
            reason = f"nothing can be written now: {self._broker.disk_full}"
            self._refuse([call for call in calls if call.request.action in WRITES], ErrorWord.DISK_FULL, reason)
            calls = [call for call in calls if call.request.action not in WRITES]
        self._broker.execute(self._now(), calls)
        if self._broker.log_calls:
            self._read_log()
        return None

    def _refuse(self, calls: list[Call], error: str, reason: str) -> None:
        for call in calls:
            self._ledger.park(call, refusal(call.request, error, reason))

    def _appended(self, message: Appended) -> None:
        while self._under_way and self._under_way[0] <= message.trans_id:
            self._under_way.popleft()
        self._room_bytes = message.room_bytes
        self._broker.commit(self._now(), message.trans_id)
        self._gathering.committed(self.runtime.monotonic(), self._ledger.parked_count, len(self._ledger.answers))

    def _journal_blocked(self, message: JournalBlocked) -> None:
        self._broker.disk_full = message.reason
        self._room_bytes = 0

    def _client_gone(self, message: ClientGone) -> None:
        self._broker.delivery.forget(message.client)

    def _time_passed(self, message: TimePassed) -> None:
        self._alarm = None
        self._alarm_at = NEVER
        self._broker.pass_time(self._now())

    def _continue(self, message: Continue) -> None:
        self._continues = False
        self._broker.go_on(self._now())

    def _reconfigure(self, message: Reconfigure) -> None:
        limits = message.limits
        assert isinstance(limits, Limits)
        self._broker.set_limits(limits)

    # -- carrying out ------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        ledger = self._ledger
        if ledger.answers:
            self._send(ledger.take_answers())
        if ledger.records and len(self._under_way) < self._settings.writes_max:
            if ledger.is_awaited or self._stopping is not None or len(ledger.records) >= LINGER_RECORDS_MAX:
                if self._stopping or self._gathering.is_over(self.runtime.monotonic(), ledger.parked_count):
                    self._write()
                elif not self._is_gathering:
                    self._is_gathering = True
                    self.runtime.call_later(0.0, self._gathered)
            elif self._linger is None:
                self._linger = self._later(LINGER_S, self._linger_over)
        if self._broker.next_event_at < self._alarm_at:
            self._arm_alarm()
        if self._broker.has_more and not self._continues:
            self._continues = True
            self.actor_ref.tell(Continue())
        if self._stopping is not None:
            self._go_on_stopping()

    def _send(self, answers: list[Answer]) -> None:
        """Answers go to whoever the call came from; nearly always that is one."""
        first = answers[0][0].reply_to
        for call, _ in answers:
            if call.reply_to is not first:
                break
        else:
            first.tell(Answered(answers))
            return
        by_actor: dict[str, list[Answer]] = {}
        for answer in answers:
            by_actor.setdefault(answer[0].reply_to.actor_urn, []).append(answer)
        for group in by_actor.values():
            group[0][0].reply_to.tell(Answered(group))

    def _gathered(self) -> None:
        self._is_gathering = False
        self._carry_out()

    def _linger_over(self) -> None:
        self._linger = None
        if self._ledger.records and len(self._under_way) < self._settings.writes_max:
            self._write()

    def _write(self) -> None:
        if self._tail_bytes > self._settings.tail_bytes_max and self._broker.disk_full is None:
            return  # LMDB is behind: requests wait for it, but not for a full disk: the journal has room for them
        ledger = self._ledger
        records = ledger.take_records()
        first = ledger.state.trans_id - len(records) + 1
        ledger.state.time = ledger.now
        entries: list[StoredEntry] = []
        for part in _parts(records, self._settings.entry_bytes_max):
            data = entry_codec.encode(self._view.vote_id, first, ledger.now, part)
            first += len(part)
            entries.append(StoredEntry(first - 1, data))
            self._tail_bytes += len(data)
        self._tail.extend(entries)
        self._under_way.append(first - 1)
        self._log_writer.tell(Append(entries, self.actor_ref))
        if self._checkpoint_timer is None and not self._is_checkpointing:
            self._checkpoint_timer = self._later(CHECKPOINT_INTERVAL_S, lambda: self.actor_ref.tell(CheckpointDue()))

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
        return self._clock.now(self.runtime.now(), self.runtime.monotonic())

    def _later(self, delay_s: float, callback: Any) -> Timer:
        return self.runtime.call_later(delay_s, callback)

    # -- checkpoints and trimming ------------------------------------------------------------------------------

    def _checkpoint_due(self, message: CheckpointDue | None) -> None:
        self._checkpoint_timer = None
        if self._is_checkpointing:
            return
        committed = self._ledger.committed
        entries = [entry for entry in self._tail if entry.last_trans_id <= committed]
        if entries or message is None:
            self._is_checkpointing = True
            self._checkpointer.tell(Checkpoint(entries, self.actor_ref))
        elif self._tail:
            self._checkpoint_timer = self._later(CHECKPOINT_INTERVAL_S, lambda: self.actor_ref.tell(CheckpointDue()))

    def _checkpointed(self, message: Checkpointed) -> None:
        self._is_checkpointing = False
        self._broker.disk_full = None
        self._view.stored = message.trans_id
        self._view.trimmed = message.trimmed
        tail = self._tail
        while tail and tail[0].last_trans_id <= message.trans_id:
            self._tail_bytes -= len(tail.popleft().data)
        self._log_writer.tell(Recycle(message.trans_id))
        if tail and self._checkpoint_timer is None:
            self._checkpoint_timer = self._later(CHECKPOINT_INTERVAL_S, lambda: self.actor_ref.tell(CheckpointDue()))

    def _checkpoint_failed(self, message: CheckpointFailed) -> None:
        self._is_checkpointing = False
        self._broker.disk_full = message.reason
        self._checkpoint_timer = self._later(RETRY_S, lambda: self.actor_ref.tell(CheckpointDue()))

    def _describe_rows(self, message: DescribeRows) -> None:
        state = self._ledger.state
        described = RowsDescribed(message.plan, rows_now(message.plan, state.messages, state.queues), state.trans_id)
        self._ledger.after_commit(lambda: self._checkpointer.tell(described))

    # -- reading the log ---------------------------------------------------------------------------------------

    def _read_log(self) -> None:
        calls = list(self._broker.log_calls)
        self._broker.log_calls.clear()
        for call in calls:
            request = call.request
            after = request.after or 0
            count = request.count or LOG_COUNT_DEFAULT
            if request.shard not in (None, self._ledger.state.shard):
                self._refuse([call], ErrorWord.FIELD, f"shard: there is no shard {request.shard}")
            elif after < self._view.stored and after >= self._view.trimmed:
                bytes_max = min(call.reply_bytes_max // 4, LOG_REPLY_BYTES_MAX)  # names and JSON make it longer
                self._checkpointer.tell(ReadLog(call, after, count, bytes_max, self.actor_ref))
            else:
                self._answer_log(call, after, count, [])

    def _log_read(self, message: LogRead) -> None:
        self._answer_log(message.call, message.after, message.count, list(message.entries))

    def _answer_log(self, call: Call, after: int, count: int, stored: list[bytes]) -> None:
        """From LMDB's entries, or from memory if it had none behind `after`."""
        committed = self._ledger.committed
        entries = stored or [e.data for e in self._tail if after < e.last_trans_id <= committed][:count]
        self._ledger.answer(call, log_reply(call.request, after, count, entries, self._view.trimmed, committed))

    # -- stopping ----------------------------------------------------------------------------------------------

    def _stop_asked(self, message: Stop) -> None:
        self._stopping = message
        self._broker.delivery.end_waiting()

    def _go_on_stopping(self) -> None:
        """Stopped is: all committed, all of it in LMDB (unless its disk is full: then the journal keeps it)."""
        if self._has_stopped or not self._ledger.is_settled or self._broker.has_more:
            return
        if self._tail and self._broker.disk_full is None:
            if not self._is_checkpointing:
                self._checkpoint_due(CheckpointDue())
            return
        assert self._stopping is not None
        self._has_stopped = True
        self._stopping.reply_to.tell(Stopped("queue_owner"))  # and still answers that the node is stopping


def _parts(records: list[Record], bytes_max: int) -> list[list[Record]]:
    """The records, cut so that no entry has more than about `bytes_max` and one record more."""
    if len(records) < SMALL_ENTRY_RECORDS:
        size = sum(len(record.data) for record in records if type(record) is Message)
        if size < bytes_max // 2:
            return [records]
    parts: list[list[Record]] = [[]]
    size = 0
    for record in records:
        if parts[-1] and size > bytes_max:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += len(record.data) + 400 if isinstance(record, Message) else 400 + 40 * len(messages_of(record)[0])
    return parts
