"""How a message ends that may not be delivered any more: it is dropped, or goes to the dead letter queue. A machine.

One that was delivered before ends when it has expired, or was delivered as often as its queue lets it be; one that was
not ends only if it was produced to go when it expires: to be dropped, and then it is in no dead letter queue, or to be
buried.
"""

from actors.queues.ledger import Ledger
from quorate.protocol import TIME_MAX_S
from storage.message import Message, is_buried, is_dropped, is_endless, is_kept
from storage.message_ids import named
from storage.queue_state import QueueState
from storage.records import WORKERS_LEVEL, Bury, Expire


class Ending:
    """Of one shard. The messages that it is given are in no index."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def is_due(self, queue: QueueState, message: Message) -> bool:
        """Whether a message may not be delivered any more."""
        if message.deliveries:
            return self._ledger.now >= message.expires_at or 0 < queue.max_deliveries <= message.deliveries
        return self._ledger.now >= message.expires_at and is_dropped(message.marks)

    def _is_dropped(self, message: Message) -> bool:
        if message.deliveries and is_kept(message.marks) and not message.retry_s:
            return True  # it was given to somebody, and is given to nobody again, whatever queue it would be in
        if self._ledger.now < message.expires_at or not is_dropped(message.marks):
            return False
        return not is_buried(message.marks)

    def end(self, queue: QueueState, messages: list[Message]) -> list[Message]:
        """Drop them, or move them to the dead letter queue; returns those that are there now, to be placed."""
        is_kept = queue.dead_letter is not None
        buried = [message for message in messages if not self._is_dropped(message)] if is_kept else []
        if len(buried) < len(messages):
            dropped = [message for message in messages if self._is_dropped(message)] if buried else messages
            self._ledger.append(Expire(queue.name, *named(dropped)))
        if buried:
            self.bury(queue, buried, None)
        return buried

    def bury(self, queue: QueueState, messages: list[Message], reason: str | None) -> None:
        """Move them to the dead letter queue, which there is; they are to be placed."""
        ledger, to = self._ledger, queue.dead_letter
        assert to is not None
        ids, previous = named(messages)
        now = ledger.now
        ledger.make_queue(to)
        default_ttl_s = ledger.state.queues.get(to, ledger.new_queue).default_ttl_s
        expires_at = min(now + default_ttl_s, TIME_MAX_S)
        counts = None if ledger.level < WORKERS_LEVEL else [message.deliveries for message in messages]
        times = [now] * len(ids), [expiry_of(message, expires_at) for message in messages]
        ledger.append(Bury(queue.name, to, ids, previous, *times, counts, reason))


def expiry_of(message: Message, expires_at: float) -> float:
    """When it expires in another queue, where others do so then (Unix s)."""
    return message.expires_at if is_endless(message) else expires_at
