"""Consume, watch and cancel: what lets a consumer in, and what ends its wait. A machine over `Delivery`."""

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from actors.messages.call import Call, Client, may_consume
from actors.messages.rights import ANONYMOUS, Principal
from actors.queues.delivery import Delivery
from actors.queues.wait_queues import Waiter, WaitQueues
from actors.shard.machine import Machine, ShardContext, WaitingCalls
from actors.shard.node_view import Limits
from quorate.protocol import BATCH_MAX, Action, ErrorWord, Reply, done
from storage.message import Message

_WATCH: Final = int(Action.WATCH)
WAITED_NAMES_MAX: Final = BATCH_MAX
"""For so many queues the consumers of one client wait in all, or one consumer for as many as a request may name."""

STRANGERS_SHARE: Final = 0.75
"""Who has shown no token gets no more than this part of `waiters_max`; the rest is for those who have."""


class LeftWaiters(WaitingCalls):
    """Consumers that waited, in their order. `taken_at`: by the clock of the leader that gave them their deadlines;
    another's may not be asked later.
    """

    def __init__(self, lines: WaitQueues, taken_at: float) -> None:
        self._lines = lines
        self._waiters = deque(lines.all())
        self._taken_at = taken_at

    def __len__(self) -> int:
        return len(self._waiters)

    def take(self) -> Call:
        """Take the call of the first, for what is left of its time.

        It is taken out of its lines, too: to drop these with tens of thousands in them takes 15 ms.
        """
        waiter: Waiter = self._waiters.popleft()
        self._lines.leave(waiter)
        call = waiter.call
        call.request = replace(call.request, wait=max(waiter.deadline - self._taken_at, 0.001))
        return call


class Consuming(Machine):
    """Of one shard. `also_cancels`: each ends a wait that is none of a consumer's; whether there was one."""

    def __init__(
        self, context: ShardContext, delivery: Delivery, cancels_too: Callable[[Client, object], bool]
    ) -> None:
        self._context = context
        self.also_cancels = [cancels_too]
        self._ledger = context.ledger
        self.delivery = delivery
        delivery.idle.set_idle_s(context.limits.idle_queue_s, context.ledger.now)
        self.limits_changed()

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.CONSUME: self.consume, Action.WATCH: self.consume, Action.CANCEL: self.cancel}

    def limits_changed(self) -> None:
        """For how many messages are kept, and for how long a queue that nobody uses."""
        limits, delivery = self._context.limits, self.delivery
        delivery.handing.kept_max = limits.kept_max
        if delivery.idle.idle_s != limits.idle_queue_s:
            delivery.idle.set_idle_s(limits.idle_queue_s, self._ledger.now)

    def consume(self, call: Call) -> None:
        """Delivers messages, or waits for one; or says whether there is one."""
        if call.client.has_left and not may_consume(call):  # which may change what it asks for
            return self._ledger.answer(call, done(call.request, Reply))
        request, limits = call.request, self._context.limits
        name, others = request.queue, request.queues
        if name is not None:
            names = [name] if others is None else [name, *others]
        elif others is not None:
            names = list(dict.fromkeys(others))
        else:
            return self._ledger.refuse_field(call, "queue", "is missing, and so is queues")
        topics = self._ledger.state.topics.by_name
        if topics and any(one in topics for one in names):
            topic = next(one for one in names if one in topics)
            reason = f"{topic!r} is a topic, whose messages stay: read it (action {Action.READ})"
            return self._ledger.refuse(call, ErrorWord.IS_A_TOPIC, reason)
        wait_s = request.wait or 0.0
        if wait_s > limits.wait_s_max and not request.as_job:
            return self._ledger.refuse_field(call, "wait", f"is {wait_s:g} s, and {limits.wait_s_max:g} are allowed")
        if wait_s and (why := why_not_wait(limits, self.delivery, call, len(names))):
            return self._ledger.refuse(call, ErrorWord.OVERLOADED, why)
        if request.action == _WATCH:
            return self.delivery.watch_for(call, names, wait_s)
        return self.delivery.consume(call, names, request.count, wait_s)

    def cancel(self, call: Call) -> None:
        """End a wait of the same client. The reply comes behind the one to the wait, also where that was a message."""
        request = call.request
        if request.seq is None:
            return self._ledger.refuse_field(call, "seq", "is missing: which request is not to wait any more?")
        is_ended = self.delivery.cancel(call.client, request.seq)
        is_ended = is_ended or any(ends(call.client, request.seq) for ends in self.also_cancels)
        return self._ledger.answer_when_committed(call, done(request, Reply, cancelled=int(is_ended)))

    # -- time, and calls that end otherwise --------------------------------------------------------------------

    @property
    def next_event_at(self) -> float:
        """When a message is due, or a consumer has waited for long enough."""
        return self.delivery.next_event_at

    def is_behind(self, now: float) -> bool:
        """Whether a message is due that is not where it belongs yet."""
        return self.delivery.alarms.next_at <= now

    def begin(self) -> None:
        """With so much work to be done in the turn."""
        self.delivery.begin()

    def committed(self, produced: list[Message]) -> None:
        """They are given to those who wait for them."""
        self.delivery.place_produced(produced)

    def pass_time(self) -> None:
        """Messages become due, and waits end."""
        self.delivery.pass_time()

    def withdraw(self, call: Call) -> None:
        """Out of all lines."""
        self.delivery.lines.withdraw(call)

    def forget(self, client: Client) -> None:
        """Its consumers get an empty reply."""
        self.delivery.forget(client)

    def may_forget_later(self, client: Client) -> bool:
        """Those that it asked for as a stranger."""
        lines = self.delivery.lines
        if not lines.are_strangers(client):
            return False
        lines.discount(client)
        return True

    def rejudge(self, client: Client, principal: Principal) -> None:
        """Its consumers."""
        self.delivery.rejudge(client, principal)

    def take_waiting(self) -> WaitingCalls | None:
        """All consumers."""
        lines = self.delivery.take_lines()
        return LeftWaiters(lines, self._ledger.now) if len(lines) else None


def why_not_wait(limits: Limits, delivery: Delivery, call: Call, names: int) -> str | None:
    """Why no consumer more of that client can wait for so many queues, or a key; None if one can."""
    client = call.client
    every = (delivery.lines, delivery.key_lines, delivery.read_lines, delivery.member_lines)
    own = sum([lines.names_of(client) for lines in every])
    if sum([lines.named for lines in every]) + names > limits.waiters_max:
        return f"{limits.waiters_max} consumers wait already"
    if sum([lines.count_of(client) for lines in every]) >= limits.waits_per_client_max:
        return f"{limits.waits_per_client_max} consumers of this connection wait already"
    if own and own + names > WAITED_NAMES_MAX:
        return f"this connection waits for {own} queues already, and for {WAITED_NAMES_MAX} it may"
    if call.principal.name == ANONYMOUS:
        allowed = int(limits.waiters_max * STRANGERS_SHARE)
        if sum([lines.named_by_strangers for lines in every]) + names > allowed:
            return f"{allowed} consumers without a token wait already"
    return None
