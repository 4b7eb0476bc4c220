"""The broker: what each request does to a shard. A machine: requests and the time in, records and answers out.

The host calls `begin` and `execute`, `commit`, `pass_time` and `go_on`, and then takes the records and the answers
from the ledger. Records are applied when they are made; answers come out when they may be told.
"""

from collections.abc import Callable, Sequence
from typing import Final

from actors.messages.call import Call, given_up, is_given_up, may_consume
from actors.messages.calls import ClusterAsked, LogAsked, StatusAsked
from actors.messages.rights import ANONYMOUS
from actors.queues.clocks import LeaderClock, Ripening
from actors.queues.delivery import Delivery
from actors.queues.failed_calls import FAILED, Failure
from actors.queues.in_pieces import InPieces, NamedMessages
from actors.queues.ledger import Ledger
from actors.queues.log_head import Readers
from actors.queues.moving import Moving
from actors.queues.node_view import Limits, NodeView
from actors.queues.producing import Producing
from actors.queues.queries import Queries
from actors.queues.queue_admin import QueueAdmin, warn_of_hidden
from actors.queues.settling import Confirming, Settling
from quorate.actions import DONE_BY_SHARDS, IN_PIECES, NEEDS_SPACE, WRITES
from quorate.protocol import (
    BATCH_MAX,
    Action,
    Code,
    ErrorWord,
    Reply,
    done,
    refusal,
)
from storage.state import ShardState

_WATCH: Final = int(Action.WATCH)
WAITED_NAMES_MAX: Final = BATCH_MAX
"""For so many queues the consumers of one client wait in all, or one consumer for as many as a request may name."""

STRANGERS_SHARE: Final = 0.75
"""Who has shown no token gets no more than this part of `waiters_max`; the rest is for those who have."""


class Broker:
    """Decides for one shard. `view` is what it knows of the node; for `lease_committed` see `Delivery`. The times that
    the host tells it while it leads are those of `clock`.

    `committed`: how far the state is settled, as in `Ledger`. What the log, the cluster and a status are asked for is
    not its to answer: it gathers in `asked`, for the Replicator, and the host empties that. `failures`: calls that
    raised and were answered `internal_error`; the host logs and empties them.
    """

    def __init__(
        self,
        state: ShardState,
        limits: Limits,
        view: NodeView,
        *,
        lease_committed: bool = False,
        committed: int | None = None,
    ) -> None:
        self.ledger = Ledger(state, committed)
        self.ledger.set_time(max(state.time, state.placed_at))
        self.clock = LeaderClock(self.ledger.now)
        self.delivery = Delivery(self.ledger, leases_are_committed=lease_committed)
        self.readers = Readers(self.ledger, view)
        self.asked: list[LogAsked | ClusterAsked | StatusAsked] = []
        self.queries = Queries(self.ledger, self.delivery, view, self.readers, self.asked)
        self.admin = QueueAdmin(self.ledger, self.delivery, limits.new_queue, limits.queues_max)
        self.pieces = InPieces(self.ledger, limits.settle_piece)
        named = NamedMessages(self.ledger, self.pieces)
        confirming = Confirming(self.ledger, named)
        settling = Settling(self.ledger, self.delivery, named)
        self.moving = Moving(self.ledger, self.delivery, self.pieces, limits.queues_max)
        self.ripening = Ripening(state)
        self.producing = Producing(self.ledger, self.delivery, self.admin, view, limits)
        self.disk_full: str | None = None
        self.failures: list[Failure] = []
        self._state = state
        self.delivery.idle.set_idle_s(limits.idle_queue_s, self.ledger.now)
        self._set_own_limits()
        self._actions: dict[int, Callable[[Call], None]] = {
            Action.PRODUCE: self.producing.produce,
            Action.CONSUME: self._consume,
            Action.WATCH: self._consume,
            Action.CONFIRM: confirming.confirm,
            Action.CONFIGURE: self.admin.configure,
            Action.CLEAR: self.admin.clear,
            Action.RELEASE: settling.release,
            Action.EXTEND: settling.extend,
            Action.BURY: settling.bury,
            Action.MOVE: self.moving.move,
            Action.WITHHOLD: settling.withhold,
            Action.SCAN: self.queries.scan,
            Action.CANCEL: self._cancel,
            Action.REMOVE: self.admin.clear,
            Action.LOG: lambda call: self.asked.append(LogAsked(call)),
            Action.CLUSTER: lambda call: self.asked.append(ClusterAsked(call)),
            Action.NODE_INIT: lambda call: self.asked.append(ClusterAsked(call)),
            Action.MONITOR: self.queries.monitor,
            Action.NODE_MONITOR: self.queries.monitor,
            Action.LIST: self.queries.list_queues,
            Action.NODE_LIST: self.queries.list_queues,
            Action.LEADER: self.queries.leader,
            Action.PEEK: self.queries.peek,
            Action.POSITION: self.readers.position,
            Action.SHOW: self.queries.show,
            Action.FIND: self.queries.find,
            Action.NODE_METRICS: self.queries.measure,
            Action.NODE_READY: self._ready,
            Action.NODE_DESCRIBE: lambda call: self.asked.append(StatusAsked(call, {})),
            Action.NODE_LEAVE: lambda call: self.asked.append(ClusterAsked(call)),
            Action.NODE_STATUS: lambda call: self.asked.append(StatusAsked(call, self.queries.status())),
        }
        assert self._actions.keys() == DONE_BY_SHARDS, "an action without a row could be asked without a right"

    def release(self) -> None:
        """Let go of what it refers to itself by, since it is used no more: the state goes at once with it."""
        self._actions.clear()

    # -- what the host calls -----------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Begin a turn, at that time by the host's clock: requests follow."""
        self.ledger.set_time(now)
        self.delivery.begin()

    def execute(self, call: Call) -> None:
        """Do a request, or have it wait for what its client has written."""
        self._do(call, may_wait=self.producing.own_writes.has_any)

    def _do(self, call: Call, *, may_wait: bool = False) -> None:
        """Do a request. If it raises before a record was made, it is answered so, and nothing else changes."""
        before = self._state.trans_id
        self.delivery.has_begun = False
        try:
            if not may_wait or not self.producing.own_writes.waits(call, self.ledger.now):
                self._act(call)
        except Exception as error:
            if self.delivery.has_begun or self._state.trans_id != before:
                raise  # a part of it is done: the log recovers the state
            self._end_failed([call], error)

    def _act(self, call: Call) -> None:
        number = call.request.action
        action = self._actions.get(number)
        if action is None:
            self.ledger.refuse(call, ErrorWord.NOT_SUPPORTED, f"there is no action {number}")
        elif self.disk_full is not None and number in NEEDS_SPACE:
            self.ledger.refuse(call, ErrorWord.DISK_FULL, f"nothing can be stored now: {self.disk_full}")
        elif (call.was_late or call.client.is_gone) and is_given_up(call):
            self.ledger.answer_when_committed(call, given_up(call.request))
        else:
            action(call)

    def _end_failed(self, calls: list[Call], error: Exception) -> None:
        """End calls of which one has raised before a record was made: they are answered, and nothing else changes."""
        for call in calls:
            self.delivery.lines.withdraw(call)
            self.pieces.withdraw(call)
            self.queries.withdraw(call)
            self.asked[:] = [one for one in self.asked if one.call is not call]
            if not self.ledger.has_answer(call):
                self.ledger.answer(call, refusal(call.request, ErrorWord.INTERNAL, FAILED))
            self.failures.append(Failure(call, error))

    def commit(self, now: float, trans_id: int) -> None:
        """Note that records up to `trans_id` are committed."""
        self.ledger.set_time(now)
        self.delivery.begin()
        placeable = self.ledger.commit(trans_id)
        self.pieces.committed(trans_id)
        if placeable:
            self.delivery.place_produced(placeable)
        self._read_own()

    def _read_own(self) -> None:
        """Do the reads that wait for what their clients have written no longer."""
        if self.producing.own_writes.has_any:
            for call in self.producing.own_writes.due(self.ledger.committed, self.ledger.now):
                self._do(call)

    def pass_time(self, now: float) -> None:
        """Do what is due."""
        self.ledger.set_time(now)
        self.delivery.begin()
        self.delivery.pass_time()
        self._read_own()
        if self.ledger.replicated.next_deadline <= now:
            self.ledger.replicated.give_up_late()
        if self.delivery.idle.next_event_at <= now:
            self.admin.drop_idle()
        self.producing.let_go()

    @property
    def next_event_at(self) -> float:
        """When `pass_time` has something to do (Unix seconds)."""
        at = min(self.delivery.next_event_at, self.ledger.replicated.next_deadline)
        look_at = self.producing.next_look_at
        if look_at is not None and look_at < at:
            at = look_at
        read_at = self.producing.own_writes.next_event_at
        return at if read_at is None else min(at, read_at)

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return self.admin.has_more or self.queries.has_more or self.ripening.has_more or self.pieces.has_known

    def go_on(self, now: float) -> None:
        """Do one more piece of work that was cut into pieces."""
        self.ledger.set_time(now)
        call = self.pieces.go_on()
        if call is not None:
            self.execute(call)
        self.admin.go_on()
        try:
            self.queries.go_on()  # which makes no records
        except Exception as error:
            self._end_failed(self.queries.take_open(), error)
        self.ripening.go_on()

    def set_limits(self, limits: Limits, hides: Sequence[str] = ()) -> None:
        """Take over new limits; what is there already stays. `hides`: names that are virtual queues' from now on."""
        warn_of_hidden(self._state, hides)
        self.producing.limits = limits
        self.admin.set_limits(limits.new_queue, limits.queues_max)
        self.moving.queues_max = limits.queues_max
        self._set_own_limits()

    def _set_own_limits(self) -> None:
        self.delivery.handing.kept_max = self.producing.limits.kept_max
        if self.delivery.idle.idle_s != self.producing.limits.idle_queue_s:
            self.delivery.idle.set_idle_s(self.producing.limits.idle_queue_s, self.ledger.now)

    def take_open(self, logged: int) -> tuple[list[Call], list[Call]]:
        """All calls that are open: those that may have been done or not, and those that certainly were not.

        But for consumers that wait: see `Delivery.take_lines`.

        Records up to `logged` have left for the log; this node does not lead any more.
        """
        uncertain, undone = self.pieces.take_open(logged)
        begun = set(self.pieces.take_begun(logged))
        uncertain += self.admin.take_open()
        undone += self.queries.take_open() + self.producing.own_writes.take_all()
        for trans_id, call, reply in self.ledger.take_open():
            action = call.request.action
            is_write = action in WRITES and reply.code == Code.OK
            is_uncertain = is_write and (trans_id <= logged or action in IN_PIECES or call in begun)
            (uncertain if is_uncertain else undone).append(call)
        return uncertain, undone

    def _ready(self, call: Call) -> None:
        """Say whether clients can be served; the Replicator knows whether somebody leads."""
        if self.disk_full is not None:  # on so many nodes that nothing can be committed
            self.ledger.answer(call, refusal(call.request, ErrorWord.DISK_FULL, "nothing can be stored now"))
        else:
            self.asked.append(StatusAsked(call, {}))

    # -- consume and acknowledge -------------------------------------------------------------------------------

    def _consume(self, call: Call) -> None:
        if call.client.has_left and not may_consume(call):  # which may change what it asks for
            return self.ledger.answer(call, done(call.request, Reply))
        request = call.request
        name, others = request.queue, request.queues
        if name is not None:
            names = [name] if others is None else [name, *others]
        elif others is not None:
            names = list(dict.fromkeys(others))
        else:
            return self.ledger.refuse_field(call, "queue", "is missing, and so is queues")
        wait_s = request.wait or 0.0
        if wait_s > self.producing.limits.wait_s_max and not request.as_job:
            return self.ledger.refuse_field(
                call, "wait", f"is {wait_s:g} s, and {self.producing.limits.wait_s_max:g} are allowed"
            )
        if wait_s and (reason := self._why_not_wait(call, len(names))):
            return self.ledger.refuse(call, ErrorWord.OVERLOADED, reason)
        if request.action == _WATCH:
            return self.delivery.watch_for(call, names, wait_s)
        return self.delivery.consume(call, names, request.count, wait_s)

    def _cancel(self, call: Call) -> None:
        """End a wait of the same client. The reply comes behind the one to the wait, also where that was a message."""
        request = call.request
        if request.seq is None:
            return self.ledger.refuse_field(call, "seq", "is missing: which request is not to wait any more?")
        is_ended = self.delivery.cancel(call.client, request.seq)
        return self.ledger.answer_when_committed(call, done(request, Reply, cancelled=int(is_ended)))

    def _why_not_wait(self, call: Call, names: int) -> str | None:
        """Why no consumer more of that client can wait for so many queues; None if one can."""
        limits, delivery = self.producing.limits, self.delivery
        there, own = delivery.lines.named, delivery.lines.names_of(call.client)
        if there + names > limits.waiters_max:
            return f"{limits.waiters_max} consumers wait already"
        if delivery.lines.count_of(call.client) >= limits.waits_per_client_max:
            return f"{limits.waits_per_client_max} consumers of this connection wait already"
        if own and own + names > WAITED_NAMES_MAX:
            return f"this connection waits for {own} queues already, and for {WAITED_NAMES_MAX} it may"
        if call.principal.name == ANONYMOUS:
            allowed = int(limits.waiters_max * STRANGERS_SHARE)
            if delivery.lines.named_by_strangers + names > allowed:
                return f"{allowed} consumers without a token wait already"
        return None
