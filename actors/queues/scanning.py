"""Scans of all queues or messages of a shard, and what is due next: some of it at a time, and others have their turn.

A machine; part of `Queries`. Who scans a million messages asks thousands of times for the next few, as soon as it has
those before. So each such request waits for the next turn of its host: whoever else has come meanwhile goes first.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from actors.messages.call import Call
from actors.queues.delivery import REPLY_OVERHEAD_BYTES
from actors.queues.ledger import Ledger
from actors.queues.message_replies import state_of, view_of
from actors.queues.node_view import NodeView
from actors.queues.soonest import PLACES, Soonest
from quorate.actions import Right
from quorate.protocol import MessageView, Reply, ScanReply, done
from storage.message import Message, weight
from storage.message_ids import SHARDS_MAX
from storage.name_buckets import BUCKETS
from storage.state import ShardState

SCAN_DEFAULT: Final = 100
SCAN_MAX: Final = 2000
"""Messages that one piece looks at for those that are meant: some 0.3 ms."""

SCAN_PIECE: Final = 100
"""So many at most of all, or names, and those that share the last one's bucket: some 0.5 ms, which others wait."""

SOONEST_MAX: Final = 200
"""So many messages a reply tells at most of those that are due next."""


def view_for(call: Call, state: ShardState, message: Message) -> MessageView:
    """Show a message as it is told to who knows jobs, or not."""
    return view_of(message, state.tenures.at(message.msg_id // SHARDS_MAX) if call.request.as_job else None)


def fitting(messages: Iterator[Message], bytes_max: int) -> Iterator[Message]:
    """As many of the messages as fit a reply; at least one."""
    room = bytes_max
    for index, message in enumerate(messages):
        room -= weight(message) + REPLY_OVERHEAD_BYTES
        if room < 0 and index:
            return
        yield message


class Scanning:
    """Of one shard. Its replies are parked like all others."""

    def __init__(self, ledger: Ledger, view: NodeView) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._view = view
        self._soonest = Soonest(ledger, self._soon)
        self._open: deque[Call] = deque()

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._open) or self._soonest.has_more

    def ask(self, call: Call) -> None:
        """Scan some of the queues, or of the messages with `full`, behind a place that holds whatever comes and goes.

        Of messages only those of `queue` and `state`, where that is given. `after` is a bucket of names, or the record
        that produced the last message. Sorted by `due`: the first `count` of the delayed, or of those in flight, of all
        queues, in the order of their times.
        """
        request = call.request
        if request.sort is not None:
            place = PLACES.get(request.state or "")
            if request.sort != "due" or not request.full or place is None:
                reason = f"is {request.sort!r}: a scan is sorted by due, with full and one state, {' or '.join(PLACES)}"
                return self._ledger.refuse_field(call, "sort", reason)
            return self._soonest.ask(call, place, min(request.count or SCAN_DEFAULT, SOONEST_MAX))
        if not isinstance(request.after or 0, int):
            return self._ledger.refuse_field(call, "after", "is no number that a reply to scan called next")
        return self._open.append(call)

    def go_on(self) -> None:
        """Answer whoever has waited longest, and look at some more of what is due next."""
        if self._open:
            call = self._open.popleft()
            self._ledger.answer_when_committed(call, self._found(call))
        if self._soonest.has_more:
            self._soonest.go_on()

    def take_open(self) -> list[Call]:
        """Hand over the calls that are not answered; they do not go on."""
        calls = [*self._open, *self._soonest.take_open()]
        self._open.clear()
        return calls

    def _found(self, call: Call) -> Reply:
        request, after = call.request, call.request.after
        reply = done(request, ScanReply, shards=self._view.shards, now=self._ledger.now)
        if call.client.is_gone:  # nobody reads it
            reply.messages = [] if request.full else None
            return reply
        begun = after if isinstance(after, int) else 0
        count = min(request.count or SCAN_DEFAULT, SCAN_PIECE)
        if request.full:
            reply.messages, reply.next = self._messages(call, begun, count)
        else:
            reply.names, reply.next = self._names(call, begun, count)
        return reply

    def _names(self, call: Call, after: int, count: int) -> tuple[list[tuple[str, int]], int | None]:
        rights, queues = call.principal.rights, self._state.queues
        found: list[tuple[str, int]] = []
        for at in range(after, BUCKETS):
            if len(found) >= count:
                return found, at
            names = [name for name in self._state.buckets.at(at) if rights.may(Right.LOOK, name)]
            found += [(name, len(queues[name].ready)) for name in names]
        return found, None

    def _messages(self, call: Call, after: int, count: int) -> tuple[list[MessageView], int | None]:
        request, rights = call.request, call.principal.rights
        wanted = None if request.state is None else set(request.state.split(","))
        room, end = call.reply_bytes_max, after
        found: list[MessageView] = []
        is_choosy = wanted is not None or request.queue is not None or Right.LOOK not in rights.everywhere
        looked, last = self._state.messages.behind(after, SCAN_MAX if is_choosy else count)
        for message in looked:
            is_meant = request.queue is None or message.queue == request.queue
            if is_meant and (wanted is None or state_of(message, is_job=bool(request.as_job)) in wanted):
                room -= weight(message) + REPLY_OVERHEAD_BYTES
                if len(found) >= count or (found and room < 0):
                    return found, end
                if rights.may(Right.LOOK, message.queue):
                    found.append(view_for(call, self._state, message))
            end = message.msg_id // SHARDS_MAX
        return found, last

    def _soon(self, call: Call, messages: list[Message]) -> None:
        reply = done(call.request, ScanReply, shards=self._view.shards, now=self._ledger.now)
        reply.messages = [
            view_for(call, self._state, message) for message in fitting(iter(messages), call.reply_bytes_max)
        ]
        self._ledger.answer_when_committed(call, reply)
