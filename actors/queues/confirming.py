"""Confirm: consumers say that messages are done, which are gone for good. A part of the broker."""

from operator import le
from typing import Any, Final

from actors.messages.call import Call
from actors.queues.in_pieces import Many
from actors.queues.ledger import Ledger
from actors.queues.message_replies import STATE_NAMES
from actors.queues.named_messages import NamedMessages, only
from quorate.protocol import Action, ErrorWord, Reply, done, refusal
from storage.message_ids import named, newest_record
from storage.records import JOBS_LEVEL, Clear, Confirm, Place

_Confirm: Final = Confirm
_Reply: Final = Reply
_CONFIRM: Final = int(Action.CONFIRM)


class Confirming:
    """Of one shard. With `held` only what is in flight is confirmed."""

    def __init__(self, ledger: Ledger, named_messages: NamedMessages) -> None:
        self._ledger = ledger
        self._named = named_messages

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
                if request.delivery is None or message.deliveries <= request.delivery:
                    confirmed = 1
                    kind = Clear if request.discard else _Confirm
                    self._ledger.append(kind(message.queue, [msg_id], [newest_record(message)]))
                else:
                    elsewhere = 1
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
        if self._ledger.level < JOBS_LEVEL:
            return self._named.refuse_level(call)
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
        return self._named.pieces.begin(Many(call, ids, self._confirm_some_held, self._held_confirmed))

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
