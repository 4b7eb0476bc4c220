"""How messages leave their line: they are handed out to somebody, or end. Machines, parts of the broker's delivery.

`HandingOut`: what is logged, and what its client is told, when messages go to somebody. A message that may come again
goes in flight, and its reply leaves at once; one that is delivered at most once is gone, or kept in flight until it
expires, and its reply waits until that is committed.

`Ending`: a message that may not be delivered any more is dropped, or goes to the dead letter queue, where it does not
expire unless a configure has set that queue's time to live. One that was
delivered before ends when it has expired, or was delivered as often as its queue lets it be; one that was not ends
only if it was produced to go when it expires: to be dropped, and then it is in no dead letter queue, or to be buried.
"""

from itertools import islice
from typing import Final

from actors.messages.call import Call
from actors.queues.idle_queues import QueueAlarms
from actors.queues.message_replies import delivered_reply, facts_of
from actors.shard.ledger import Ledger
from actors.shard.node_view import KEPT_MAX
from quorate.protocol import TIME_MAX_S, JobFacts, Request
from storage.message import Message, deliveries_in_all, is_buried, is_dropped, is_endless, is_kept, lasts
from storage.message_ids import SHARDS_MAX, named, newest_record
from storage.queue_state import ORIGINAL, QueueState
from storage.records import STREAMS_LEVEL, Bury, Deliver, Expire, Take

_Deliver: Final = Deliver
_Take: Final = Take

DROPPED_MAX: Final = 100
"""So many more than have come go at once, where there are too many."""


class HandingOut:
    """Of one shard. `alarms` are set to when a message's retry time is over. `kept_max`: so many messages that
    are delivered at most once are kept until they expire; beyond that the oldest go.

    `leases_are_committed`: replies of at-least-once deliveries wait for their commit, too.
    """

    def __init__(self, ledger: Ledger, alarms: QueueAlarms, *, leases_are_committed: bool) -> None:
        self.kept_max = KEPT_MAX
        self._ledger = ledger
        self._alarms = alarms
        self._leases_are_committed = leases_are_committed

    def hand_out(self, call: Call, name: str, messages: list[Message], count: int | None) -> None:
        """Log the delivery of messages of a queue and answer it: at once if it may be repeated, else when committed."""
        self.tell(call, name, messages, count, must_be_logged=self.log(call.request, name, messages))

    def log(self, request: Request, name: str, messages: list[Message]) -> bool:
        """Log that messages of a queue were handed out; whether that may never be repeated."""
        once = [message for message in messages if not message.retry_s]
        lasting = messages
        if once:
            gone = [message for message in once if not is_kept(message.marks)]
            lasting = [message for message in messages if message.retry_s or is_kept(message.marks)]
            if gone:
                self._ledger.append(_Take(name, *named(gone)))
                for message in gone:
                    message.deliveries += 1
        if lasting:
            self._log_delivery(name, lasting, request.consumer)
            if once and len(self._ledger.state.kept) > self.kept_max:
                excess = len(self._ledger.state.kept) - self.kept_max
                self.drop_kept(min(excess, 2 * len(once) + DROPPED_MAX))
        return bool(once)

    def tell(self, call: Call, name: str, messages: list[Message], count: int | None, *, must_be_logged: bool) -> None:
        facts = [self.job_facts(message) for message in messages] if call.request.as_job else None
        reply = delivered_reply(call.request, name, messages, count, facts)
        if must_be_logged or self._leases_are_committed or not self._ledger.lease.is_held:
            self._ledger.answer_when_committed(call, reply)
        else:
            self._ledger.answer(call, reply)

    def job_facts(self, message: Message) -> JobFacts:
        """Make what who knows jobs is told of one beside the message."""
        return facts_of(message, self._ledger.state.facts.tenures.at(message.msg_id // SHARDS_MAX))

    def drop_kept(self, count: int) -> int:
        """Let go of the oldest messages that are kept though they are delivered; how many there were."""
        by_queue: dict[str, list[Message]] = {}
        oldest = list(islice(self._ledger.state.kept, count))
        for msg_id in oldest:
            message = self._ledger.state.messages[msg_id]
            by_queue.setdefault(message.queue, []).append(message)
        for name, messages in by_queue.items():
            self._ledger.append(Expire(name, *named(messages)))
        return len(oldest)

    def _log_delivery(self, name: str, messages: list[Message], consumer: str | None) -> None:
        """Messages go in flight."""
        if len(messages) == 1:
            message = messages[0]
            due_at = self._retry_at(message, message.retry_s)
            ids, previous = [message.msg_id], [newest_record(message)]
            self._ledger.append(_Deliver(name, ids, previous, [due_at], [message.deliveries + 1], consumer))
            self._alarms.set(name, due_at)
            return
        due_ats = [self._retry_at(message, message.retry_s) for message in messages]
        self._ledger.append(
            _Deliver(
                name,
                *named(messages),
                due_ats,
                [m.deliveries + 1 for m in messages],
                consumer,
            )
        )
        earliest = due_ats[0]
        for due_at in due_ats:
            earliest = min(earliest, due_at)
        self._alarms.set(name, earliest)

    def _retry_at(self, message: Message, retry_s: float) -> float:
        """Until when a message delivered now is in flight: not beyond its expiry, unless that is extended."""
        now, expires_at = self._ledger.now, message.expires_at
        if not retry_s:
            return max(expires_at, now)  # it is kept
        at = now + retry_s
        return expires_at if now < expires_at <= at else at


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
        counts = [message.deliveries for message in messages]
        target = ledger.state.queues.get(to)
        if ledger.level < STREAMS_LEVEL:
            ttl_s = (ledger.new_queue if target is None else target).default_ttl_s
            times = [now] * len(ids), [expiry_of(message, min(now + ttl_s, TIME_MAX_S)) for message in messages]
            ledger.append(Bury(queue.name, to, ids, previous, *times, counts, reason))
            return
        own_ttl_s = self._own_ttl_s(target)
        expires_at = TIME_MAX_S if own_ttl_s is None else min(now + own_ttl_s, TIME_MAX_S)
        times = [now] * len(ids), [expiry_of(message, expires_at) for message in messages]
        totals = [deliveries_in_all(message) for message in messages]
        ledger.append(
            Bury(queue.name, to, ids, previous, *times, counts, reason, totals, [lasts(one) for one in messages])
        )

    def _own_ttl_s(self, queue: QueueState | None) -> float | None:
        """Give the time to live that a configure has set for the messages of a queue (s); None: none has.

        Of queues that a version before made nobody has noted that: it is so where theirs is not what new queues get.
        """
        if queue is None or queue.life.has_own_ttl is False:
            return None
        usual = (self._ledger.new_queue.default_ttl_s, ORIGINAL.default_ttl_s)
        is_usual = queue.life.has_own_ttl is None and queue.default_ttl_s in usual
        return None if is_usual else queue.default_ttl_s


def expiry_of(message: Message, expires_at: float) -> float:
    """When it expires in another queue, where others do so then (Unix s)."""
    return message.expires_at if is_endless(message) else expires_at
