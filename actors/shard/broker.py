"""The broker: has a shard's machines do what calls ask for. Calls and the time in, records and answers out.

The host calls `begin` and `execute`, `commit`, `pass_time` and `go_on`, and then takes the records and the answers
from the ledger. Records are applied when they are made; answers come out when they may be told.
"""

from collections.abc import Callable

from actors.messages.blocks import BlocksRead
from actors.messages.call import Call, Client, given_up, is_given_up
from actors.messages.rights import Principal
from actors.runtime.work import Steps
from actors.shard.asking import Asking
from actors.shard.clocks import LeaderClock
from actors.shard.failed_calls import FAILED, Failure
from actors.shard.machine import Machine, ShardContext, WaitingCalls
from actors.shard.node_view import Limits
from quorate.actions import DONE_BY_SHARDS, NEEDS_SPACE, WRITES
from quorate.protocol import Action, Code, ErrorWord, TransactionRequest, refusal

Machines = Callable[[ShardContext], list[Machine]]
"""Makes the machines of one shard."""


class Broker:
    """Decides for one shard. The times that the host tells it while it leads are those of `clock`.

    `failures`: calls that raised and were answered `internal_error`; the host logs and empties them.
    """

    def __init__(self, context: ShardContext, machines: Machines) -> None:
        self.context = context
        self.ledger = context.ledger
        self.jobs = context.jobs
        self.clock = LeaderClock(self.ledger.now)
        self.machines = [*machines(context), Asking(context)]
        self._view = context.view
        self.failures: list[Failure] = []
        self._own_writes = context.own_writes
        self._state = context.ledger.state
        self._tails = context.ledger.state.topics.tails
        self._actions: dict[int, Callable[[Call], None]] = {}
        for machine in self.machines:
            actions = machine.actions()
            assert not self._actions.keys() & actions.keys(), "an action is one machine's"
            self._actions.update(actions)
        assert self._actions.keys() == DONE_BY_SHARDS, "an action without a row could be asked without a right"

    def release(self) -> None:
        """Let go of what it refers to itself by, since it is used no more."""
        self._actions.clear()

    # -- what the host calls -----------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Begin a turn, at that time by the host's clock: requests follow."""
        self.ledger.set_time(now)
        for machine in self.machines:
            machine.begin()

    def execute(self, call: Call) -> None:
        """Do what a call asks for, or have it wait for what its client has written."""
        self._do(call, may_wait=self._own_writes.has_any)

    def _do(self, call: Call, *, may_wait: bool = False) -> None:
        """Do a call. If it raises before a record was made, it is answered so, and nothing else changes."""
        ledger = self.ledger
        before = self._state.trans_id
        ledger.has_begun = False
        try:
            if not may_wait or not self._own_writes.waits(call, ledger.now):
                self._act(call)
        except Exception as error:
            if ledger.has_begun or self._state.trans_id != before:
                raise  # a part of it is done: the log recovers the state
            self._end_failed([call], error)

    def _act(self, call: Call) -> None:
        number = call.request.action
        action = self._actions.get(number)
        if action is None:
            self.ledger.refuse(call, ErrorWord.NOT_SUPPORTED, f"there is no action {number}")
        elif self._view.disk_full is not None and self._needs_space(call, number, self._view.disk_full):
            pass
        elif (call.was_late or call.client.is_gone) and is_given_up(call):
            self.ledger.answer_when_committed(call, given_up(call.request))
        else:
            action(call)

    def _needs_space(self, call: Call, number: int, reason: str) -> bool:
        """Refuse what needs space on a full disk; whether it did."""
        if self._view.is_journal_full and number in WRITES:
            self.ledger.answer(
                call, refusal(call.request, ErrorWord.DISK_FULL, f"nothing can be written now: {reason}")
            )
        elif number in NEEDS_SPACE or (isinstance(request := call.request, TransactionRequest) and _grows(request)):
            self.ledger.refuse(call, ErrorWord.DISK_FULL, f"nothing can be stored now: {reason}")
        elif number == Action.NODE_READY:  # nothing can be committed
            self.ledger.answer(call, refusal(call.request, ErrorWord.DISK_FULL, "nothing can be stored now"))
        else:
            return False
        return True

    def _end_failed(self, calls: list[Call], error: Exception) -> None:
        """End calls of which one has raised before a record was made: they are answered, and nothing else changes."""
        asked = self.context.asked
        for call in calls:
            for machine in self.machines:
                machine.withdraw(call)
            self.jobs.withdraw(call)
            asked[:] = [one for one in asked if one.call is not call]
            if not self.ledger.has_answer(call):
                self.ledger.answer(call, refusal(call.request, ErrorWord.INTERNAL, FAILED))
            self.failures.append(Failure(call, error))

    def told(self, now: float, message: BlocksRead) -> None:
        """Go on with what has asked for blocks. If it raises before a record was made, its call is answered so."""
        self.begin(now)
        read = self.context.disk.take(message.serial)
        if read is None:
            return
        before = self._state.trans_id
        self.ledger.has_begun = False
        try:
            read.then(message.stored)
        except Exception as error:
            if self.ledger.has_begun or self._state.trans_id != before or read.call is None:
                raise
            self._end_failed([read.call], error)

    def commit(self, now: float, trans_id: int) -> None:
        """Note that records up to `trans_id` are committed."""
        self.begin(now)
        placeable = self.ledger.commit(trans_id)
        self.jobs.committed(trans_id)
        if placeable:
            for machine in self.machines:
                machine.committed(placeable)
        if self._tails.is_unsettled:
            self._grown(self.ledger.committable)
        self._read_own()

    def followed(self, trans_id: int) -> None:
        """Note, on a follower, that records up to `trans_id` are committed and applied."""
        self.ledger.followed(trans_id, self._state.time)
        if self._tails.is_unsettled:
            self._grown(trans_id)
        for machine in self.machines:
            machine.followed()

    def _grown(self, committed: int) -> None:
        """Let topics have what is committed. All of an entry at once: nobody reads a part of it."""
        partitions = self._tails.settle(committed)
        if partitions:
            for machine in self.machines:
                machine.grown(partitions)

    @property
    def next_wait_at(self) -> float:
        """When `end_waits` has something to do (Unix seconds)."""
        return min([machine.next_wait_at for machine in self.machines])

    def end_waits(self, now: float) -> None:
        """End the waits whose time is over, on a node that does not lead."""
        self.begin(now)
        for machine in self.machines:
            machine.end_waits()

    def _read_own(self) -> None:
        """Do the reads that wait for what their clients have written no longer."""
        if self._own_writes.has_any:
            for call in self._own_writes.due(self.ledger.committed, self.ledger.now):
                if self.jobs.looks.is_late():
                    self.jobs.add(call, self._read_later(call))
                else:
                    self._do(call)

    def _read_later(self, call: Call) -> Steps:
        self._act(call)
        yield from ()  # it is over with that: what goes on from here is a job of its own, and has the call

    def pass_time(self, now: float) -> None:
        """Do what is due."""
        self.begin(now)
        for machine in self.machines:
            machine.pass_time()
        self._read_own()
        if self.ledger.replicated.next_deadline <= now:
            self.ledger.replicated.give_up_late()

    @property
    def next_event_at(self) -> float:
        """When `pass_time` has something to do (Unix seconds)."""
        at = self.ledger.replicated.next_deadline
        for machine in self.machines:
            event_at = machine.next_event_at
            if event_at < at:
                at = event_at
        read_at = self._own_writes.next_event_at
        return at if read_at is None else min(at, read_at)

    def is_behind(self, now: float) -> bool:
        """Whether something is due by then that was not done yet."""
        for machine in self.machines:  # noqa: SIM110  # a generator costs more, compiled
            if machine.is_behind(now):
                return True
        return False

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return self.jobs.has_more

    def go_on(self, now: float) -> None:
        """Do more of the calls that take several turns."""
        self.ledger.set_time(now)
        self.jobs.go_on()
        self._end_failed_jobs()

    def go_on_stranger(self) -> None:
        """Do one piece more of what a stranger asked for."""
        self.jobs.strangers.go_on()
        self._end_failed_jobs()

    def _end_failed_jobs(self) -> None:
        for calls, error in self.jobs.take_failed():
            self._end_failed(calls, error)

    def set_limits(self, limits: Limits) -> None:
        """Take over new limits; what is there already stays."""
        self.context.set_limits(limits)
        for machine in self.machines:
            machine.limits_changed()

    # -- calls that end otherwise ------------------------------------------------------------------------------

    def forget(self, client: Client) -> None:
        """End the waits of a client that is gone, or asks for nothing more."""
        for machine in self.machines:
            machine.forget(client)
        if client.is_gone:
            self.ledger.replicated.forget(client)

    def may_forget_later(self, client: Client) -> bool:
        """Whether waits of a client that has left may end in a later turn; they count for no limit from now on."""
        is_later = False
        for machine in self.machines:
            is_later = machine.may_forget_later(client) or is_later
        return is_later

    def rejudge(self, client: Client, principal: Principal) -> list[Call]:
        """Refuse what the client waits for and has no right to any more. Returns its reads that had to wait."""
        for machine in self.machines:
            machine.rejudge(client, principal)
        self.jobs.rejudge(client, principal)
        return self._own_writes.take_of(client)

    def take_waiting(self, now: float) -> list[WaitingCalls]:
        """Hand over all calls that wait for something to happen: nothing does here any more."""
        self.ledger.set_time(now)
        taken = [machine.take_waiting() for machine in self.machines]
        return [one for one in taken if one is not None]

    def take_open(self, logged: int) -> tuple[list[Call], list[Call]]:
        """Hand over all open calls: those that may have been done or not, and those that certainly were not.

        But for calls that wait for something to happen: see `take_waiting`.

        Records up to `logged` have left for the log; this node does not lead any more.
        """
        uncertain, undone = self.jobs.take_open(logged)
        begun = set(self.jobs.take_begun(logged))
        undone += self._own_writes.take_all()
        for trans_id, call, reply in self.ledger.take_open():
            is_write = call.request.action in WRITES and reply.code == Code.OK
            is_uncertain = is_write and (trans_id <= logged or call in begun)
            (uncertain if is_uncertain else undone).append(call)
        return uncertain, undone


def _grows(request: TransactionRequest) -> bool:
    """Whether one of its operations needs space."""
    return any(one.action in NEEDS_SPACE for one in request.operations)
