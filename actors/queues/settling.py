"""What consumers say of the messages that they hold: done, given back, worked on for longer, not wanted. Machines."""

from collections.abc import Callable
from operator import le
from typing import Any, Final

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.queues.message_replies import STATE_NAMES
from actors.queues.named_messages import Many, NamedMessages, count_of, only
from actors.shard.machine import Machine, ShardContext
from quorate.protocol import RELATIVE_TIME_LIMIT_S, Action, ErrorWord, Reply, done, refusal
from storage.message import Message, deliveries_in_all, is_buried, is_dropped, is_kept
from storage.message_ids import named, newest_record
from storage.queue_state import ALL_READY
from storage.records import DEAD, NACKS, Clear, Confirm, Extend, Place, Release, Withhold

_Confirm: Final = Confirm
_Reply: Final = Reply
_CONFIRM: Final = int(Action.CONFIRM)

LATER: Final = (Place.IN_FLIGHT, Place.DELAYED, Place.HELD)
"""Where what is asked for may stand."""


class Confirming(Machine):
    """Of one shard. With `held` only what is in flight is confirmed."""

    def __init__(self, context: ShardContext, named_messages: NamedMessages) -> None:
        self._ledger = context.ledger
        self._named = named_messages

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.CONFIRM: self.confirm}

    def confirm(self, call: Call) -> None:
        """Remove the messages for good: they are done."""
        request = call.request
        if request.held:
            return self._confirm_held(call)
        msg_id: Any = request.msg_id
        confirmed = 0
        elsewhere: int | None = None
        if msg_id is not None and request.msg_ids is None and not isinstance(request.delivery, list):
            message = self._named.message(call, msg_id)
            if message is not None:
                if request.delivery is None or deliveries_in_all(message) <= request.delivery:
                    confirmed = 1
                    kind = Clear if request.discard else _Confirm
                    self._ledger.append(kind(message.queue, [msg_id], [newest_record(message)]))
                else:
                    elsewhere = 1
            elif self._named.are_taken_away(call, [msg_id]):
                return None
        else:
            return self._named.begin(call, self._confirm_some, self._confirmed)
        return self._answer_confirmed(call, confirmed, elsewhere)

    def _answer_confirmed(self, call: Call, confirmed: int, elsewhere: int | None) -> None:
        request = call.request
        queue, seq, msg_id = request.queue, request.seq, request.msg_id
        reply = _Reply(action=_CONFIRM, code=0, queue=queue, seq=seq, msg_id=msg_id, confirmed=confirmed)
        if elsewhere is not None:
            reply.elsewhere = elsewhere
        if request.early:
            self._ledger.answer(call, reply)
        else:
            self._ledger.answer_when_committed(call, reply)

    def _confirm_some(self, many: Many, ids: list[int]) -> None:
        kind = Clear if many.call.request.discard else _Confirm
        for name, messages in self._named.meant(many, self._named.found(many, ids), le).items():
            self._ledger.append(kind(name, *named(messages)))

    def _confirmed(self, many: Many) -> None:
        self._answer_confirmed(many.call, many.done, many.found - many.done or None)

    def _confirm_held(self, call: Call) -> None:
        """Confirm those of the messages that are in flight, or say where the first of them stands."""
        request = call.request
        ids = self._named.ids_of(call)
        if ids is None:
            return None
        if len(ids) == 1 and request.delivery is None and (request.key is not None or request.scope is None):
            message = self._named.message(call, ids[0])
            if message is not None and message.place == Place.IN_FLIGHT:  # nearly always
                kind = Clear if request.discard else _Confirm
                self._ledger.append(kind(message.queue, ids, [newest_record(message)]))
                reply = _Reply(action=_CONFIRM, code=0, queue=request.queue, seq=request.seq, confirmed=1)
                reply.msg_id = request.msg_id
                return self._ledger.answer_when_committed(call, reply)
        return self._named.do(Many(call, ids), self._confirm_some_held, self._held_confirmed)

    def _confirm_some_held(self, many: Many, ids: list[int]) -> None:
        request = many.call.request
        found = self._named.found(many, ids, by_id=request.scope is None or request.key is not None)
        held = self._named.meant(many, only(found, lambda message: message.place == Place.IN_FLIGHT), le)
        kind = Clear if request.discard else _Confirm
        for name, messages in held.items():
            self._ledger.append(kind(name, *named(messages)))

    def _held_confirmed(self, many: Many) -> None:
        call, request = many.call, many.call.request
        if many.done:
            reply = done(request, Reply, msg_id=request.msg_id, confirmed=many.done)
            return self._ledger.answer_when_committed(call, reply)
        if not many.found:
            return self._named.refuse_missing(many)
        reply = refusal(request, ErrorWord.NOT_IN_FLIGHT, f"message {many.first_id} is not in flight for who asks")
        reply.msg_id, reply.state = many.first_id, STATE_NAMES[many.first_place]
        reply.deliveries = many.first_deliveries
        return self._ledger.answer_when_committed(call, reply)


class Settling(Machine):
    """Release, extend, withhold and bury, of one shard."""

    def __init__(self, context: ShardContext, delivery: Delivery, named_messages: NamedMessages) -> None:
        self._ledger = context.ledger
        self._delivery = delivery
        self._named = named_messages

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {
            Action.RELEASE: self.release,
            Action.EXTEND: self.extend,
            Action.BURY: self.bury,
            Action.WITHHOLD: self.withhold,
        }

    def _in_flight(self, many: Many, ids: list[int], *, or_delayed: bool = False) -> dict[str, list[Message]]:
        """Find those in flight that the request means; they are counted as done.

        `or_delayed`: those that are delayed, too, unless the request is about a delivery; and of those that are
        delivered at most once, and kept, only these.
        """
        places = LATER if or_delayed and many.call.request.delivery is None else (Place.IN_FLIGHT,)
        found = self._named.found(many, ids)
        flying = only(found, lambda message: message.place in places and not _is_over(message))
        many.flying += count_of(flying)
        return self._named.meant(many, flying)

    def _was_none(self, many: Many) -> bool:
        """Refuse the call if it was done to none: whether that is so."""
        if many.done:
            return False
        call, ids = many.call, many.ids
        if many.flying:
            reason = f"message {ids[0]} has been delivered again since, and is in flight for another consumer"
            self._ledger.refuse(call, ErrorWord.NOT_IN_FLIGHT, reason)
        elif many.found:
            self._ledger.refuse(call, ErrorWord.NOT_IN_FLIGHT, f"message {ids[0]} is not in flight")
        else:
            self._named.refuse_missing(many)
        return True

    def release(self, call: Call) -> None:
        """Give the messages back, or end their delay: they are due at once, or after `delay`."""
        self._named.begin(call, self._release_some, self._released)

    def _release_some(self, many: Many, ids: list[int]) -> None:
        request, now = many.call.request, self._ledger.now
        delay = request.delay
        due_at = now if not delay else now + delay if delay < RELATIVE_TIME_LIMIT_S else delay
        for name, messages in self._in_flight(many, ids, or_delayed=True).items():
            # what was delivered before may not go out after it expires: then is when it is dropped
            due_ats = [self._back_at(message, due_at) for message in messages]
            counts: list[int] | None = None
            if request.nack is not False:
                counts = [nacks_of(message) + 1 if message.deliveries or request.nack else 0 for message in messages]
            if counts is None or not any(counts):
                self._ledger.append(Release(name, *named(messages), due_ats))
            else:
                deliveries = [message.deliveries for message in messages]
                self._ledger.append(Release(name, *named(messages), due_ats, counts, deliveries))
            for message in messages:
                self._delivery.place(message)

    def _released(self, many: Many) -> None:
        if not self._was_none(many):
            request = many.call.request
            reply = done(request, Reply, msg_id=request.msg_id, released=many.done)
            self._ledger.answer_when_committed(many.call, reply)

    def _back_at(self, message: Message, due_at: float) -> float:
        """When a message that is given back is due. Where its queue takes nothing in, it was there before that."""
        if message.deliveries or is_dropped(message.marks):
            due_at = min(due_at, message.expires_at)
        queue = self._ledger.state.queues[message.queue]
        if due_at <= self._ledger.now and 0.0 < queue.paused_in_at < due_at:
            return queue.paused_in_at
        return due_at

    def withhold(self, call: Call) -> None:
        """Keep the messages from being given out for now: they are ready again after `delay`, or their retry time.

        One that is delivered at most once, and kept, does not come again.
        """
        return self._named.begin(call, self._withhold_some, self._withheld)

    def _withhold_some(self, many: Many, ids: list[int]) -> None:
        delay = many.call.request.delay
        by_queue = only(self._named.found(many, ids), lambda message: message.place in ALL_READY)
        many.done += count_of(by_queue)
        for name, messages in by_queue.items():
            due_ats = [self._withheld_until(message, delay) for message in messages]
            self._ledger.append(Withhold(name, *named(messages), due_ats))
            for message in messages:
                self._delivery.place(message)

    def _withheld(self, many: Many) -> None:
        call, request = many.call, many.call.request
        if many.done or request.msg_ids is not None:
            reply = done(request, Reply, msg_id=request.msg_id, withheld=many.done)
            return self._ledger.answer_when_committed(call, reply)
        if many.found:
            return self._ledger.refuse(call, ErrorWord.NOT_READY, f"message {many.ids[0]} is not ready")
        return self._named.refuse_missing(many)

    def _withheld_until(self, message: Message, delay: float | None) -> float:
        now, expires_at = self._ledger.now, message.expires_at
        if delay:
            at = now + delay if delay < RELATIVE_TIME_LIMIT_S else delay
        elif not message.retry_s and is_kept(message.marks):
            return expires_at
        else:
            at = now + message.retry_s
        return min(at, expires_at) if message.deliveries or is_dropped(message.marks) else at

    def extend(self, call: Call) -> None:
        """Give the messages longer to be worked on: `retry` seconds from now, also beyond their expiry.

        Those that are to be buried when they expire are so in any case.
        """
        request = call.request
        if request.as_job:
            return self._postpone(call)
        if not request.retry:
            return self._ledger.refuse_field(call, "retry", "is missing or 0: for how many seconds from now?")
        return self._named.begin(call, self._extend_some, self._extended)

    def _extend_some(self, many: Many, ids: list[int]) -> None:
        retry_s = many.call.request.retry or 0.0
        for name, messages in self._in_flight(many, ids).items():
            due_ats = [self._held_until(message, retry_s) for message in messages]
            self._ledger.append(Extend(name, *named(messages), due_ats))
            self._delivery.alarms.set(name, min(due_ats))

    def _extended(self, many: Many) -> None:
        if not self._was_none(many):
            request = many.call.request
            reply = done(request, Reply, msg_id=request.msg_id, extended=many.done)
            self._ledger.answer_when_committed(many.call, reply)

    def _postpone(self, call: Call) -> None:
        """Let a job come again its retry time from now, wherever it is: it is worked on; not in the second half of its
        life.

        `count` of the reply: that time (s); 0, of what does not come again.
        """
        request = call.request
        msg_id = request.msg_id
        message = None if msg_id is None else self._named.message(call, msg_id)
        if message is None:
            if msg_id is not None and self._named.are_taken_away(call, [msg_id]):
                return None
            return self._ledger.refuse(call, ErrorWord.NO_SUCH_MESSAGE, f"there is no message {msg_id}")
        now, retry_s = self._ledger.now, message.retry_s
        dead: Any = (message.marks or {}).get(DEAD)
        begun = message.produced_at if dead is None else max(message.produced_at, float(dead["at"]))
        if retry_s and now - begun > (message.expires_at - begun) / 2:
            return self._ledger.refuse(call, ErrorWord.TIME, "half of its time to live is over")
        if retry_s and message.place != Place.UNPLACED:
            due_at = now + retry_s
            if message.deliveries or is_dropped(message.marks):
                due_at = min(due_at, message.expires_at)
            ids, previous = named([message])
            if message.place == Place.IN_FLIGHT:
                self._ledger.append(Extend(message.queue, ids, previous, [self._held_until(message, retry_s)]))
            elif message.place in ALL_READY:
                self._ledger.append(Withhold(message.queue, ids, previous, [due_at]))
            else:
                self._ledger.append(Release(message.queue, ids, previous, [due_at]))
            if message.place == Place.UNPLACED:
                self._delivery.place(message)
            else:
                self._delivery.alarms.set(message.queue, message.due_at)
        self._ledger.answer_when_committed(call, done(request, Reply, msg_id=msg_id, count=round(retry_s)))
        return None

    def _held_until(self, message: Message, retry_s: float) -> float:
        at = max(message.due_at, self._ledger.now + retry_s)
        return min(at, message.expires_at) if is_buried(message.marks) else at

    def bury(self, call: Call) -> None:
        """Bury the messages, which nobody wants: they move to their dead letter queue; none, where a queue has none."""
        ids = self._named.ids_of(call)
        if ids is None:
            return None
        queues = self._ledger.state.queues
        for name in self._in_flight(Many(call, ids), ids):
            if queues[name].dead_letter is None:
                return self._ledger.refuse_field(call, "queue", f"{name!r} has no dead letter queue")
        return self._named.do(Many(call, ids), self._bury_some, self._buried)

    def _bury_some(self, many: Many, ids: list[int]) -> None:
        queues = self._ledger.state.queues
        for name, messages in self._in_flight(many, ids).items():
            if queues[name].dead_letter is None:  # since it was begun
                many.done -= len(messages)
                many.fault = f"{name!r} has no dead letter queue"
            else:
                self._delivery.bury(queues[name], messages, many.call.request.reason)

    def _buried(self, many: Many) -> None:
        if not many.done and many.fault is not None:
            self._ledger.refuse_field(many.call, "queue", many.fault)
        elif not self._was_none(many):
            request = many.call.request
            reply = done(request, Reply, msg_id=request.msg_id, buried=many.done)
            self._ledger.answer_when_committed(many.call, reply)


def nacks_of(message: Message) -> int:
    """How often a message was given back by who could not do it."""
    return 0 if message.marks is None else int(message.marks.get(NACKS, 0))


def _is_over(message: Message) -> bool:
    """Whether it is kept, and was delivered or withheld: it does not come again."""
    if message.retry_s or not is_kept(message.marks):
        return False
    return message.place == Place.IN_FLIGHT or message.due_at >= message.expires_at
