"""What is done to queues as a whole: configure, clear, remove. A machine, like the broker that it is a part of.

Clearing goes in pieces of `CLEAR_CHUNK` messages, so that a large queue holds nobody up; a small one is cleared before
the next request is looked at. It is about the messages that were there when it was asked.
"""

from itertools import islice
from typing import Final, TypeVar

from msgspec import UnsetType

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.queues.ledger import Ledger
from quorate.protocol import Action, ErrorWord, Reply, SettingsReply, done
from storage.message import Message
from storage.message_ids import message_id, named
from storage.queue_state import DEFAULT_TTL_S, QueueState
from storage.records import Clear, Configure, Remove

ValueT = TypeVar("ValueT")

CLEAR_CHUNK: Final = 2000
"""Messages that one piece of a clear removes: some 5 ms."""

SCAN_MAX: Final = 20_000
"""Messages that one piece looks at, where most of them have come since it was asked for: some 2 ms."""


class _Clearing:
    """A clear or remove that is under way: of the messages that were in the queue after record `begun`.

    Nothing is gathered beforehand: a queue of millions would take as long as an election.
    """

    def __init__(self, call: Call, queue: str, begun: int, before: int) -> None:
        self.call = call
        self.queue = queue
        self.begun = begun
        self.before = before
        self.removed = 0


class QueueAdmin:
    """Does it for one shard. `queue_size` is a new queue's `max_size`; there may be `queues_max` queues."""

    def __init__(self, ledger: Ledger, delivery: Delivery, queue_size: int, queues_max: int) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._state = ledger.state
        self._clearings: list[_Clearing] = []
        self.set_limits(queue_size, queues_max)

    def set_limits(self, queue_size: int, queues_max: int) -> None:
        """Take over new limits; what is there already stays."""
        self._queue_size = queue_size
        self._queues_max = queues_max
        self._ledger.queue_size = queue_size

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._clearings)

    def take_open(self) -> list[Call]:
        """The clears that are under way; they do not go on."""
        calls = [clearing.call for clearing in self._clearings]
        self._clearings.clear()
        return calls

    def go_on(self) -> None:
        """Clear one more piece."""
        if self._clearings:
            self._clear_piece(self._clearings[0])

    def configure(self, call: Call) -> None:
        """Change a queue's settings, and make it if it is not there."""
        request = call.request
        if request.queue is None:
            return self._ledger.refuse_field(call, "queue", "is missing")
        if request.dead_letter == request.queue:
            return self._ledger.refuse_field(call, "dead_letter", "is the queue itself")
        queue = self._state.queues.get(request.queue)
        if queue is None and len(self._state.queues) >= self._queues_max:
            return self._ledger.refuse(call, ErrorWord.LIMIT, f"there are {self._queues_max} queues already")
        wanted = (queue or QueueState(request.queue, self._queue_size)).settings()
        asked = Configure(
            request.queue,
            _or(request.max_size, wanted.max_size),
            _or(request.default_ttl, wanted.default_ttl_s) or DEFAULT_TTL_S,
            _or(request.default_retry, wanted.default_retry_s),
            _or(request.max_deliveries, wanted.max_deliveries),
            wanted.dead_letter if isinstance(request.dead_letter, UnsetType) else request.dead_letter or None,
            _or(request.paused, wanted.paused),
        )
        if asked != wanted or queue is None:
            self._ledger.append(asked)
            queue = self._state.queues[request.queue]
            self._delivery.serve(queue)
        self._ledger.park(
            call,
            done(
                request,
                SettingsReply,
                max_size=asked.max_size,
                default_ttl=asked.default_ttl_s,
                default_retry=asked.default_retry_s,
                max_deliveries=asked.max_deliveries,
                dead_letter=asked.dead_letter,
                paused=asked.paused,
            ),
        )
        return None

    def clear(self, call: Call) -> None:
        """Clear, or remove: that is clear and then drop the queue."""
        request = call.request
        if request.queue is None:
            return self._ledger.refuse_field(call, "queue", "is missing")
        queue = self._state.queues.get(request.queue)
        if queue is None:
            return self._ledger.refuse(call, ErrorWord.NO_SUCH_QUEUE, f"there is no queue {request.queue!r}")
        state = self._state
        before = message_id(state.trans_id + 1, state.shard)
        self._clearings.append(_Clearing(call, request.queue, state.trans_id, before))
        if len(self._clearings) == 1:
            self._clear_piece(self._clearings[0])  # a small queue is cleared before the next request is looked at
        return None

    def _next(self, clearing: _Clearing) -> list[Message]:
        """Some of the messages that are to go; none is left if it is empty.

        A message that was moved here since, from a queue whose dead letters these are, was not there when it was asked.
        """
        queue = self._state.queues.get(clearing.queue)
        if queue is None:
            return []
        live, before, begun = self._state.messages, clearing.before, clearing.begun
        for keys in (queue.ready, queue.waiting):
            for scanned in (SCAN_MAX, len(keys)):
                ids = dict.fromkeys([key[-1] for key in islice(keys.unordered(), scanned) if key[-1] < before])
                found = [live[msg_id] for msg_id in islice(ids, CLEAR_CHUNK)]
                found = [message for message in found if message.deliveries or message.last <= begun]
                if found:
                    return found
        if not queue.unplaced:
            return []
        unplaced = [live.get(msg_id) for msg_id in self._ledger.uncommitted_ids if msg_id < before]
        return [one for one in unplaced if one is not None and one.queue == clearing.queue][:CLEAR_CHUNK]

    def _clear_piece(self, clearing: _Clearing) -> None:
        """Remove the next messages; at the end answer, and drop the queue if that was asked."""
        messages = self._next(clearing)
        if messages:
            clearing.removed += len(messages)
            self._ledger.append(Clear(clearing.queue, *named(messages)))
            if len(messages) >= CLEAR_CHUNK or self._next(clearing):
                return
        request = clearing.call.request
        queue = self._state.queues.get(clearing.queue)
        if request.action == Action.REMOVE and queue is not None:
            if queue.size:  # produced since: they are a new queue's, with nothing of the old one's settings
                self._ledger.append(QueueState(clearing.queue, self._queue_size).settings())
            else:
                self._ledger.append(Remove(clearing.queue))
                self._delivery.forget_queue(clearing.queue)
        self._clearings.remove(clearing)
        self._ledger.park(clearing.call, done(request, Reply, count=clearing.removed))


def _or(asked: ValueT | None, held: ValueT) -> ValueT:
    return held if asked is None else asked
