"""The messages that a request names, by their ids or by a key: those that there are, and that its client may have.

With `delivery` a request says which delivery of each message it is about: one that has been handed out again since is
in other hands, and what is asked about it is as if it were not in flight. A delivery that the log does not know yet
was given by a leader whose record of it was lost in a crash: nobody was given a later one, so a confirmation of it is
the newest consumer's.
"""

from collections.abc import Callable
from operator import eq
from typing import Any, Final

from actors.messages.call import Call
from actors.messages.naming import naming_fault
from actors.messages.rights import not_allowed
from actors.runtime.work import Steps
from actors.shard.jobs import Jobs
from actors.shard.ledger import Ledger
from quorate.actions import Right
from quorate.protocol import ErrorWord, Request
from storage.message import Message, deliveries_in_all, is_of_all
from storage.records import Place

NO_DELIVERY: Final = -1
"""Stands for the delivery of a message that the request says none of: no message was delivered so often."""


class Many:
    """What a call is about, which names messages: those `ids`, each of them once; and how far it is.

    So many were `found` that its client may have, the first of them `first_id`, in that place and delivered so often;
    were `flying`, if that was looked at; are `done`. `fault`: why some of it was left.
    """

    def __init__(self, call: Call, ids: list[int]) -> None:
        self.call = call
        self.ids = ids
        self.found = self.flying = self.done = 0
        self.first_id = self.first_deliveries = 0
        self.first_place = Place.UNPLACED
        self.deliveries: dict[int, int] | None = None
        self.fault: str | None = None


Some = Callable[[Many, list[int]], None]
End = Callable[[Many], None]


class NamedMessages:
    """Of one shard. What is asked of many of them is a job."""

    def __init__(self, ledger: Ledger, jobs: Jobs) -> None:
        self._ledger = ledger
        self._jobs = jobs

    def begin(self, call: Call, some: Some, end: End) -> None:
        """Do `some` to the messages that the request names, and then `end`."""
        ids = self.ids_of(call)
        if ids is not None:
            self.do(Many(call, ids), some, end)

    def do(self, many: Many, some: Some, end: End) -> None:
        """Do `some` to a piece of those messages after the other, and then `end`."""
        if len(many.ids) > self._jobs.piece:
            return self._jobs.begin(many.call, self._steps(many, some, end))
        before = self._ledger.state.trans_id
        some(many, many.ids)
        end(many)
        if self._ledger.state.trans_id > before:
            self._jobs.answered([many.call], before + 1)
        return None

    def _steps(self, many: Many, some: Some, end: End) -> Steps:
        piece = self._jobs.piece
        for at in range(0, len(many.ids), piece):
            if at:
                yield
            some(many, many.ids[at : at + piece])
        end(many)

    def ids_of(self, call: Call) -> list[int] | None:
        """Find the ids that the request names, each once: none, where no message has its key; None if it was
        refused."""
        request = call.request
        fault = naming_fault(request)
        if fault is not None:
            self._ledger.refuse_field(call, *fault)
            return None
        ids: list[int] | None = None
        if request.msg_ids is not None:
            ids = list(dict.fromkeys([*([] if request.msg_id is None else [request.msg_id]), *request.msg_ids]))
        elif request.msg_id is not None:
            ids = [request.msg_id]
        if ids is not None:
            return None if self.are_taken_away(call, ids) else ids
        message = self._ledger.state.keys.get(request.key or "")
        return [] if message is None else [message.msg_id]

    def are_taken_away(self, call: Call, ids: list[int]) -> bool:
        """Whether a client may have none of these any more, and could: it is told so, since it may hold one."""
        rights, queue = call.principal.rights, None
        if rights.before is None:  # nearly always
            return False
        for msg_id in ids:
            message = self._ledger.state.messages.get(msg_id)
            if message is None:
                continue
            if rights.is_unlimited or rights.may(Right.CONSUME, message.queue):
                return False
            if message.place == Place.IN_FLIGHT and rights.before.may(Right.CONSUME, message.queue):
                queue = message.queue
        if queue is not None:
            self._ledger.answer_when_committed(call, not_allowed(call.request, Right.CONSUME))
        return queue is not None

    def message(self, call: Call, msg_id: int) -> Message | None:
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

    def found(self, many: Many, ids: list[int], *, by_id: bool = True) -> dict[str, list[Message]]:
        """Those of the messages that there are, by queue; `by_id` False: but for those that are known by their keys
        alone."""
        found: dict[str, list[Message]] = {}
        for msg_id in ids:
            message = self.message(many.call, msg_id)
            if message is not None and (by_id or not is_of_all(message)):
                if not many.found:
                    many.first_id, many.first_place = msg_id, message.place
                    many.first_deliveries = deliveries_in_all(message)
                many.found += 1
                found.setdefault(message.queue, []).append(message)
        return found

    @staticmethod
    def meant(
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
            found = only(
                found, lambda message: fits(deliveries_in_all(message), counts.get(message.msg_id, NO_DELIVERY))
            )
        many.done += count_of(found)
        return found

    def refuse_missing(self, many: Many) -> None:
        """Refuse the call: none of its messages is there. The refusal names what the request did.

        Which message has a key is for those who may have it.
        """
        ids, call = many.ids, many.call
        is_by_key = call.request.msg_id is None and call.request.msg_ids is None
        named = f"message with the key {call.request.key!r}" if is_by_key else f"message {ids[0]}"
        self._ledger.refuse(call, ErrorWord.NO_SUCH_MESSAGE, f"there is no {named}")


def count_of(by_queue: dict[str, list[Message]]) -> int:
    """Count the messages of all queues."""
    return sum([len(messages) for messages in by_queue.values()])


def only(found: dict[str, list[Message]], wanted: Callable[[Message], bool]) -> dict[str, list[Message]]:
    """Those that are wanted, of the queues that have such."""
    by_queue = {name: [message for message in messages if wanted(message)] for name, messages in found.items()}
    return {name: messages for name, messages in by_queue.items() if messages}


def _deliveries_of(request: Request, delivery: int | list[int]) -> dict[int, int]:
    """Which delivery of each message the request is about; of an id that stands there twice the first counts."""
    if isinstance(delivery, int):
        return {} if request.msg_id is None else {request.msg_id: delivery}
    counts: dict[int, int] = {}
    for msg_id, count in zip(request.msg_ids or (), delivery, strict=False):
        counts.setdefault(msg_id, count)
    return counts
