"""The messages that a request names, by their ids or by a key: those that there are, and that its client may have.

With `delivery` a request says which delivery of each message it is about: one that has been handed out again since
is in other hands, and what is asked about it is as if it were not in flight. A delivery that the log does not know
yet was given by a leader whose record of it was lost in a crash: nobody was given a later one, so a confirmation
of it is the newest consumer's.
"""

from collections.abc import Callable
from operator import eq
from typing import Any

from actors.messages.call import Call
from actors.queues.in_pieces import InPieces, Many
from actors.queues.ledger import Ledger
from quorate.actions import Right
from quorate.protocol import ErrorWord, Request
from quorate.request_faults import delivery_fault
from storage.message import Message, is_of_all


class NamedMessages:
    """Of one shard. What is asked of many of them goes in `pieces`."""

    def __init__(self, ledger: Ledger, pieces: InPieces) -> None:
        self._ledger = ledger
        self.pieces = pieces

    def begin(self, call: Call, some: Callable[[Many, list[int]], None], end: Callable[[Many], None]) -> None:
        """Do `some` to the messages that the request names, and then `end`."""
        ids = self.ids_of(call)
        if ids is not None:
            self.pieces.begin(Many(call, ids, some, end))

    def ids_of(self, call: Call) -> list[int] | None:
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
                    many.first_deliveries = message.deliveries
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
            found = only(found, lambda message: fits(message.deliveries, counts[message.msg_id]))
        many.done += count_of(found)
        return found

    def refuse_missing(self, many: Many) -> None:
        """Refuse the call: none of its messages is there."""
        ids, call = many.ids, many.call
        named = f"message {ids[0]}" if ids else f"message with the key {call.request.key!r}"
        self._ledger.refuse(call, ErrorWord.NO_SUCH_MESSAGE, f"there is no {named}")

    def refuse_level(self, call: Call) -> None:
        """Refuse the call: nodes of the cluster may not know such a record yet."""
        reason = f"the cluster is at feature level {self._ledger.level}: see qctl cluster upgrade"
        self._ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)


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
        assert request.msg_id is not None
        return {request.msg_id: delivery}
    assert request.msg_ids is not None
    counts: dict[int, int] = {}
    for msg_id, count in zip(request.msg_ids, delivery, strict=True):
        counts.setdefault(msg_id, count)
    return counts
