"""Show and find: one message, by its id or its key. A machine.

A show by queue and key may wait until its key names a message there, or another one than `unless`. Each
waiting show is in the line of its queue and key. A line is served when a message with that key has come into that
queue and is committed.
"""

from collections.abc import Callable
from typing import Final

from actors.messages.call import Call, may_consume
from actors.queues.consuming import LeftWaiters, why_not_wait
from actors.queues.delivery import Delivery, key_line
from actors.queues.scanning import view_for
from actors.queues.wait_queues import Waiter, WaitQueues
from actors.queues.waiting import Waiting
from actors.shard.machine import ShardContext, WaitingCalls
from quorate.actions import Right
from quorate.protocol import Action, ErrorWord, Reply, Request, ShowReply, done, refusal
from storage.message import Message, weight

SERVED_MAX: Final = 200
"""So many who wait for a key are answered in one turn, and so many whose time is over; some ms. A large message counts
for several, and so do those who are passed over."""

WORK_BYTES: Final = 8192
PASSED_OVER: Final = 32


class Showing(Waiting):
    """Of one shard. `lines`: who waits for which key of which queue."""

    def __init__(self, context: ShardContext, delivery: Delivery) -> None:
        super().__init__(context.ledger)
        self._context = context
        self._state = context.ledger.state
        self._delivery = delivery
        self._to_serve: dict[str, None] = {}
        self._work = SERVED_MAX
        delivery.on_keyed = self._came

    @property
    def lines(self) -> WaitQueues:
        """Who waits."""
        return self._delivery.key_lines

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.SHOW: self.show, Action.FIND: self.find}

    def show(self, call: Call) -> None:
        """Answer with one message: by its id, by queue and key, or by a key that is unique among all."""
        request = call.request
        fault = _fault_in(request)
        if fault is not None:
            return self._ledger.refuse_field(call, *fault)
        message = self._named(request)
        if message is not None and call.principal.rights.may(Right.LOOK, message.queue):
            return self._answer(call, message)
        wait_s, limits = request.wait or 0.0, self._context.limits
        if wait_s > limits.wait_s_max:
            return self._ledger.refuse_field(call, "wait", f"is {wait_s:g} s, and {limits.wait_s_max:g} are allowed")
        if not wait_s or call.client.has_left:
            return self._refuse(call)
        if (reason := why_not_wait(limits, self._delivery, call, 1)) is not None:
            return self._ledger.refuse(call, ErrorWord.OVERLOADED, reason)
        line = key_line(request.queue or "", request.key or "")
        return self.lines.stand(Waiter(call, [line], None, self._ledger.now + wait_s))

    def _named(self, request: Request) -> Message | None:
        """Find the message that a show means."""
        msg_id = request.msg_id
        if msg_id is None and request.scope is not None:
            return None if request.key is None else self._state.keys.get(request.key)
        if msg_id is None:
            queue = self._state.queues.get(request.queue or "")
            msg_id = None if queue is None else queue.keys.get(request.key or "")
            if msg_id == request.unless:
                return None
        return None if msg_id is None else self._state.messages.get(msg_id)

    def _answer(self, call: Call, message: Message) -> None:
        request = call.request
        view, now = view_for(call, self._state, message), self._ledger.now if request.as_job else None
        reply = done(request, ShowReply, queue=message.queue, msg_id=message.msg_id, message=view, now=now)
        self._ledger.answer_when_committed(call, reply)

    def _refuse(self, call: Call) -> None:
        """Refuse a show: the message is not there, as far as its client may know."""
        request = call.request
        named = f"message {request.msg_id}" if request.key is None else f"message with the key {request.key!r}"
        but = "" if request.unless is None else f", but perhaps {request.unless}"
        self._ledger.answer_when_committed(
            call, refusal(request, ErrorWord.NO_SUCH_MESSAGE, f"there is no {named}{but}")
        )

    def find(self, call: Call) -> None:
        """Answer whether a message that may be looked at has a key that is unique among all.

        A session that must know before it produces (`as_job`) is told of any: its produce would tell that, too.
        """
        request = call.request
        if request.key is None or request.scope is None:
            self._ledger.answer_when_committed(call, refusal(request, ErrorWord.FIELD, "key is missing, or scope"))
            return
        message = self._state.keys.get(request.key)
        if message is not None and (request.as_job or call.principal.rights.may(Right.LOOK, message.queue)):
            self._ledger.answer_when_committed(call, done(request, Reply))
        else:
            reason = f"there is no message with the key {request.key!r}"
            self._ledger.answer_when_committed(call, refusal(request, ErrorWord.NO_SUCH_MESSAGE, reason))

    # -- those who wait ----------------------------------------------------------------------------------------

    def _came(self, messages: list[Message]) -> None:
        """Note that messages came into their queues: those with keys are shown to those who wait for them."""
        for message in messages:
            if message.key is not None and (line := key_line(message.queue, message.key)) in self.lines:
                self._to_serve[line] = None
        self._serve()

    def _serve(self) -> None:
        """Answer those whose key names a message that they want; the rest, in turns to come."""
        while self._to_serve and self._work > 0:
            line = next(iter(self._to_serve))
            waiters = self.lines.in_line(line)
            for waiter in waiters:
                message = self._named(waiter.call.request)
                if message is None:
                    continue
                self.lines.leave(waiter)
                if may_consume(waiter.call):
                    self._answer(waiter.call, message)
                self._work -= 1 + weight(message) // WORK_BYTES
                if self._work <= 0:
                    return
            self._work -= len(waiters) // PASSED_OVER
            del self._to_serve[line]

    @property
    def next_event_at(self) -> float:
        """When somebody has waited for long enough, or is to be answered in a turn to come."""
        return self._ledger.now if self._to_serve else self.lines.next_deadline

    def begin(self) -> None:
        """With so much work to be done in the turn."""
        self._work = SERVED_MAX

    def pass_time(self) -> None:
        """Answer more of those who wait, and those who have waited for long enough."""
        self._serve()
        for waiter in self.lines.late(self._ledger.now):
            if self._work <= 0:
                break
            self._work -= 1
            self.end_wait(waiter)

    def end_wait(self, waiter: Waiter) -> None:
        """Answer that the message is not there."""
        self.lines.leave(waiter)
        self._refuse(waiter.call)

    def take_waiting(self) -> WaitingCalls | None:
        """All of them."""
        self._to_serve.clear()
        lines = self.lines
        if not len(lines):
            return None
        self._delivery.key_lines = WaitQueues()
        return LeftWaiters(lines, self._ledger.now)


def _fault_in(request: Request) -> tuple[str, str] | None:
    """Find the field of a show that is wrong, and say how."""
    by_key = request.msg_id is None and request.scope is None
    if by_key and (request.queue is None or request.key is None):
        return "msg_id", "is missing, and so are queue and key"
    for name, value in (("wait", request.wait), ("unless", request.unless)):
        if value and not by_key:
            return name, "stands beside queue and key, and nothing else that names a message"
    return None
