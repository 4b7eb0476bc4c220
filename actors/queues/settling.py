"""What consumers say of the messages that they hold: done, given back, worked on for longer. A part of the broker."""

from collections.abc import Callable
from operator import eq, le
from typing import Any, Final

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.queues.in_pieces import InPieces, Many
from actors.queues.ledger import Ledger
from actors.queues.message_replies import STATE_NAMES
from quorate.actions import Right
from quorate.protocol import RELATIVE_TIME_LIMIT_S, Action, ErrorWord, Reply, Request, done, refusal
from quorate.request_faults import delivery_fault
from storage.message import Message, is_buried, is_dropped, is_kept, is_of_all
from storage.message_ids import named, newest_record
from storage.queue_state import ALL_READY
from storage.records import DEAD, JOBS_LEVEL, NACKS, WORKERS_LEVEL, Clear, Confirm, Extend, Place, Release, Withhold

_Confirm: Final = Confirm
_Reply: Final = Reply
_CONFIRM: Final = int(Action.CONFIRM)

LATER: Final = (Place.IN_FLIGHT, Place.DELAYED, Place.HELD)
"""Where what is asked for may stand."""


class Settling:
    """Confirm, release, extend, withhold and bury, by the ids that a request names.

    With `delivery` a request says which delivery of each message it is about: one that has been handed out again since
    is in other hands, and what is asked about it is as if it were not in flight. A delivery that the log does not know
    yet was given by a leader whose record of it was lost in a crash: nobody was given a later one, so a confirmation
    of it is the newest consumer's.
    """

    def __init__(self, ledger: Ledger, delivery: Delivery, piece: int) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self.pieces = InPieces(ledger, piece)

    def _begin(self, call: Call, some: Callable[[Many, list[int]], None], end: Callable[[Many], None]) -> None:
        """Do `some` to the messages that the request names, and then `end`."""
        ids = self._named(call)
        if ids is not None:
            self.pieces.begin(Many(call, ids, some, end))

    def _named(self, call: Call) -> list[int] | None:
        """Find the ids that the request names, each once: none, where no message has its key; None if it was
        refused."""
        request = call.request
        if request.delivery is not None and (fault := delivery_fault(request)) is not None:
            self._ledger.refuse_field(call, "delivery", fault)
            return None
        if request.msg_ids is not None:
            ids = request.msg_ids if request.msg_id is None else [request.msg_id, *request.msg_ids]
            return list(dict.fromkeys(ids))
        if request.msg_id is not None:
            return [request.msg_id]
        if request.scope is not None and request.key is not None:
            message = self._ledger.state.keys.get(request.key)
            return [] if message is None else [message.msg_id]
        self._ledger.refuse_field(call, "msg_id", "is missing, and so is msg_ids")
        return None

    def _message(self, call: Call, msg_id: int) -> Message | None:
        """Find a live message, in the queue if the request names one, that its client may have: others are not
        there."""
        message = self._ledger.state.messages.get(msg_id)
        if message is None:
            return None
        asked, rights = call.request.queue, call.principal.rights
        if asked is None and rights.is_unlimited:
            return message
        queue = message.queue
        if asked is not None and queue != asked:
            return None
        return message if rights.is_unlimited or rights.may(Right.CONSUME, queue) else None

    def _found(self, many: Many, ids: list[int], *, by_id: bool = True) -> dict[str, list[Message]]:
        """Those of the messages that there are, by queue; `by_id` False: but for those that are known by their keys
        alone."""
        found: dict[str, list[Message]] = {}
        for msg_id in ids:
            message = self._message(many.call, msg_id)
            if message is not None and (by_id or not is_of_all(message)):
                many.found += 1
                if many.first is None:
                    many.first = msg_id
                found.setdefault(message.queue, []).append(message)
        return found

    @staticmethod
    def _meant(
        many: Many, found: dict[str, list[Message]], fits: Callable[[int, Any], bool] = eq
    ) -> dict[str, list[Message]]:
        """Those of the messages whose deliveries fit the one that the request means; all, if it says none. They are
        counted as done.

        `eq`: it is the newest; `le`: nobody was given a later one, also where the log has lost that one.
        """
        delivery = many.call.request.delivery
        if delivery is not None:
            counts = many.deliveries
            if counts is None:
                counts = many.deliveries = _deliveries_of(many.call.request, delivery)
            found = _only(found, lambda message: fits(message.deliveries, counts[message.msg_id]))
        many.done += _count(found)
        return found

    def confirm(self, call: Call) -> None:
        """Remove the messages for good: they are done."""
        request = call.request
        if request.held:
            return self._confirm_held(call)
        msg_id: Any = request.msg_id
        confirmed = 0
        elsewhere: int | None = None
        if msg_id is not None and request.msg_ids is None and not isinstance(request.delivery, list):
            message = self._message(call, msg_id)
            if message is not None:
                if request.delivery is None or message.deliveries <= request.delivery:
                    confirmed = 1
                    kind = Clear if request.discard else _Confirm
                    self._ledger.append(kind(message.queue, [msg_id], [newest_record(message)]))
                else:
                    elsewhere = 1
        else:
            return self._begin(call, self._confirm_some, self._confirmed)
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
        for name, messages in self._meant(many, self._found(many, ids), le).items():
            self._ledger.append(kind(name, *named(messages)))

    def _confirmed(self, many: Many) -> None:
        self._answer_confirmed(many.call, many.done, many.found - many.done or None)

    def _confirm_held(self, call: Call) -> None:
        """Confirm those of the messages that are in flight, or say where the first of them stands."""
        request = call.request
        if self._ledger.level < JOBS_LEVEL:
            return self._refuse_level(call)
        ids = self._named(call)
        if ids is None:
            return None
        if len(ids) == 1 and request.delivery is None and (request.key is not None or request.scope is None):
            message = self._message(call, ids[0])
            if message is not None and message.place == Place.IN_FLIGHT:  # nearly always
                kind = Clear if request.discard else _Confirm
                self._ledger.append(kind(message.queue, ids, [newest_record(message)]))
                reply = _Reply(action=_CONFIRM, code=0, queue=request.queue, seq=request.seq, confirmed=1)
                reply.msg_id = request.msg_id
                return self._ledger.answer_when_committed(call, reply)
        return self.pieces.begin(Many(call, ids, self._confirm_some_held, self._held_confirmed))

    def _confirm_some_held(self, many: Many, ids: list[int]) -> None:
        request = many.call.request
        found = self._found(many, ids, by_id=request.scope is None or request.key is not None)
        held = self._meant(many, _only(found, lambda message: message.place == Place.IN_FLIGHT), le)
        kind = Clear if request.discard else _Confirm
        for name, messages in held.items():
            self._ledger.append(kind(name, *named(messages)))

    def _held_confirmed(self, many: Many) -> None:
        call, request = many.call, many.call.request
        if many.done:
            reply = done(request, Reply, msg_id=request.msg_id, confirmed=many.done)
            return self._ledger.answer_when_committed(call, reply)
        one = None if many.first is None else self._message(call, many.first)
        if one is None:
            return self._refuse_missing(many)
        reply = refusal(request, ErrorWord.NOT_IN_FLIGHT, f"message {one.msg_id} is not in flight for who asks")
        reply.msg_id, reply.state, reply.deliveries = one.msg_id, STATE_NAMES[one.place], one.deliveries
        return self._ledger.answer_when_committed(call, reply)

    def _in_flight(self, many: Many, ids: list[int], *, or_delayed: bool = False) -> dict[str, list[Message]]:
        """Find those in flight that the request means; they are counted as done.

        `or_delayed`: those that are delayed, too, unless the request is about a delivery; and of those that are
        delivered at most once, and kept, only these.
        """
        places = LATER if or_delayed and many.call.request.delivery is None else (Place.IN_FLIGHT,)
        found = self._found(many, ids)
        flying = _only(found, lambda message: message.place in places and not _is_over(message))
        many.flying += _count(flying)
        return self._meant(many, flying)

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
            self._refuse_missing(many)
        return True

    def _refuse_missing(self, many: Many) -> None:
        ids, call = many.ids, many.call
        named = f"message {ids[0]}" if ids else f"message with the key {call.request.key!r}"
        self._ledger.refuse(call, ErrorWord.NO_SUCH_MESSAGE, f"there is no {named}")

    def release(self, call: Call) -> None:
        """Give the messages back, or end their delay: they are due at once, or after `delay`."""
        self._begin(call, self._release_some, self._released)

    def _release_some(self, many: Many, ids: list[int]) -> None:
        request, now = many.call.request, self._ledger.now
        delay = request.delay
        due_at = now if not delay else now + delay if delay < RELATIVE_TIME_LIMIT_S else delay
        for name, messages in self._in_flight(many, ids, or_delayed=True).items():
            # what was delivered before may not go out after it expires: then is when it is dropped
            due_ats = [self._back_at(message, due_at) for message in messages]
            counts: list[int] | None = None
            if self._ledger.level >= JOBS_LEVEL and request.nack is not False:
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
        if self._ledger.level < JOBS_LEVEL:
            return self._refuse_level(call)
        return self._begin(call, self._withhold_some, self._withheld)

    def _withhold_some(self, many: Many, ids: list[int]) -> None:
        delay = many.call.request.delay
        by_queue = _only(self._found(many, ids), lambda message: message.place in ALL_READY)
        many.done += _count(by_queue)
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
        return self._refuse_missing(many)

    def _withheld_until(self, message: Message, delay: float | None) -> float:
        now, expires_at = self._ledger.now, message.expires_at
        if delay:
            at = now + delay if delay < RELATIVE_TIME_LIMIT_S else delay
        elif not message.retry_s and is_kept(message.marks):
            return expires_at
        else:
            at = now + message.retry_s
        return min(at, expires_at) if message.deliveries or is_dropped(message.marks) else at

    def _refuse_level(self, call: Call) -> None:
        reason = f"the cluster is at feature level {self._ledger.level}: see qctl cluster upgrade"
        self._ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)

    def extend(self, call: Call) -> None:
        """Give the messages longer to be worked on: `retry` seconds from now, also beyond their expiry.

        Those that are to be buried when they expire are so in any case.
        """
        request = call.request
        if request.as_job:
            return self._postpone(call)
        if not request.retry:
            return self._ledger.refuse_field(call, "retry", "is missing or 0: for how many seconds from now?")
        return self._begin(call, self._extend_some, self._extended)

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
        message = None if msg_id is None else self._message(call, msg_id)
        if message is None:
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
        if self._ledger.level < WORKERS_LEVEL:
            return self._refuse_level(call)
        ids = self._named(call)
        if ids is None:
            return None
        queues = self._ledger.state.queues
        for name in self._in_flight(Many(call, ids, self._bury_some, self._buried), ids):
            if queues[name].dead_letter is None:
                return self._ledger.refuse_field(call, "queue", f"{name!r} has no dead letter queue")
        return self.pieces.begin(Many(call, ids, self._bury_some, self._buried))

    def _bury_some(self, many: Many, ids: list[int]) -> None:
        queues = self._ledger.state.queues
        for name, messages in self._in_flight(many, ids).items():
            if queues[name].dead_letter is None:  # since it was begun
                many.done -= len(messages)
            else:
                self._delivery.bury(queues[name], messages, many.call.request.reason)

    def _buried(self, many: Many) -> None:
        if not self._was_none(many):
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


def _count(by_queue: dict[str, list[Message]]) -> int:
    return sum([len(messages) for messages in by_queue.values()])


def _only(found: dict[str, list[Message]], wanted: Callable[[Message], bool]) -> dict[str, list[Message]]:
    by_queue = {name: [message for message in messages if wanted(message)] for name, messages in found.items()}
    return {name: messages for name, messages in by_queue.items() if messages}


def _deliveries_of(request: Request, delivery: int | list[int]) -> dict[int, int]:
    """Which delivery of each message the request is about; of an id that stands there twice the first counts."""
    if isinstance(delivery, int):
        assert request.msg_id is not None
        return {request.msg_id: delivery}
    assert request.msg_ids is not None
    counts: dict[int, int] = {}
    for msg_id, count in zip(request.msg_ids, delivery, strict=True):
        counts.setdefault(msg_id, count)
    return counts
