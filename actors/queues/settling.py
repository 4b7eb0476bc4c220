"""What consumers say of the messages that they hold: done, given back, worked on for longer. A part of the broker."""

from typing import Any, Final

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.queues.ledger import Ledger
from quorate.actions import Right
from quorate.protocol import RELATIVE_TIME_LIMIT_S, Action, ErrorWord, Reply, done
from storage.message import Message
from storage.message_ids import named, newest_record
from storage.records import Confirm, Extend, Place, Release

_Confirm: Final = Confirm
_Reply: Final = Reply
_CONFIRM: Final = int(Action.CONFIRM)


class Settling:
    """Confirm, release and extend, by the ids that a request names."""

    def __init__(self, ledger: Ledger, delivery: Delivery) -> None:
        self._ledger = ledger
        self._delivery = delivery

    def _named(self, call: Call) -> list[int] | None:
        """The ids that the request names, each once; None if it was refused."""
        request = call.request
        if request.msg_ids is not None:
            ids = request.msg_ids if request.msg_id is None else [request.msg_id, *request.msg_ids]
            return list(dict.fromkeys(ids))
        if request.msg_id is None:
            self._ledger.refuse_field(call, "msg_id", "is missing, and so is msg_ids")
            return None
        return [request.msg_id]

    def _message(self, call: Call, msg_id: int) -> Message | None:
        """A live message, in the queue if the request names one, that its client may have: others are not there."""
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

    def _found(self, call: Call, ids: list[int]) -> dict[str, list[Message]]:
        """Those of the messages that there are, by queue."""
        found: dict[str, list[Message]] = {}
        for msg_id in ids:
            message = self._message(call, msg_id)
            if message is not None:
                found.setdefault(message.queue, []).append(message)
        return found

    def confirm(self, call: Call) -> None:
        """The messages are done: they go away for good."""
        request = call.request
        msg_id: Any = request.msg_id
        confirmed = 0
        if msg_id is not None and request.msg_ids is None:
            message = self._message(call, msg_id)
            if message is not None:
                confirmed = 1
                self._ledger.append(_Confirm(message.queue, [msg_id], [newest_record(message)]))
        else:
            ids = self._named(call)
            if ids is None:
                return
            for name, messages in self._found(call, ids).items():
                confirmed += len(messages)
                self._ledger.append(_Confirm(name, *named(messages)))
        queue, seq = request.queue, request.seq
        self._ledger.park(
            call, _Reply(action=_CONFIRM, code=0, queue=queue, seq=seq, msg_id=msg_id, confirmed=confirmed)
        )

    def _in_flight(self, call: Call) -> dict[str, list[Message]] | None:
        """The messages in flight that the request names; None if it was refused: none of them is."""
        ids = self._named(call)
        if ids is None:
            return None
        found = self._found(call, ids)
        flying = {
            name: chosen
            for name, messages in found.items()
            if (chosen := [message for message in messages if message.place == Place.IN_FLIGHT])
        }
        if flying:
            return flying
        if found:
            self._ledger.refuse(call, ErrorWord.NOT_IN_FLIGHT, f"message {ids[0]} is not in flight")
        else:
            self._ledger.refuse(call, ErrorWord.NO_SUCH_MESSAGE, f"there is no message {ids[0]}")
        return None

    def release(self, call: Call) -> None:
        """The messages are given back: they are due again, at once or after `delay`."""
        request = call.request
        by_queue = self._in_flight(call)
        if by_queue is None:
            return
        now = self._ledger.now
        delay = request.delay
        due_at = now if not delay else now + delay if delay < RELATIVE_TIME_LIMIT_S else delay
        for name, messages in by_queue.items():
            # what was delivered before may not go out after it expires: then is when it is dropped
            due_ats = [min(due_at, message.expires_at) for message in messages]
            self._ledger.append(Release(name, *named(messages), due_ats))
            for message in messages:
                self._delivery.place(message)
        self._ledger.park(call, done(request, Reply, msg_id=request.msg_id, released=sum(map(len, by_queue.values()))))

    def extend(self, call: Call) -> None:
        """The messages are worked on for longer: `retry` seconds from now."""
        request = call.request
        if not request.retry:
            return self._ledger.refuse_field(call, "retry", "is missing or 0: for how many seconds from now?")
        by_queue = self._in_flight(call)
        if by_queue is None:
            return None
        for name, messages in by_queue.items():
            due_ats = [max(m.due_at, self._delivery.retry_at(m, request.retry)) for m in messages]
            self._ledger.append(Extend(name, *named(messages), due_ats))
            self._delivery.watch(name, min(due_ats))
        self._ledger.park(call, done(request, Reply, msg_id=request.msg_id, extended=sum(map(len, by_queue.values()))))
        return None
