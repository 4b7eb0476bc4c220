"""The requests that only look: monitor, list, leader, peek, show, status. Their replies are parked like all others."""

import re
from collections import deque
from collections.abc import Iterator
from fnmatch import translate
from itertools import chain, islice
from typing import Any, Final

import msgspec

from actors.messages.call import Call, rows_in_reply
from actors.messages.calls import ClusterAsked, LogAsked, StatusAsked
from actors.queues.delivery import REPLY_OVERHEAD_BYTES, Delivery
from actors.queues.ledger import Ledger
from actors.queues.message_replies import view_of
from actors.queues.readers import Readers
from actors.queues.summing import Summing, Sums, oldest_ready
from actors.queues.surroundings import Surroundings
from actors.queues.totals import Totals
from quorate.actions import Right
from quorate.protocol import (
    ErrorWord,
    LeaderReply,
    ListReply,
    MonitorReply,
    PeekReply,
    QueueRow,
    QueueSettings,
    QueueTotals,
    ShowReply,
    done,
    refusal,
)
from storage.message import Message, weight
from storage.queue_state import QueueState
from storage.records import Configure, Place

PEEK_DEFAULT: Final = 1
PEEK_SCAN: Final = 5000
"""Among so many messages that wait, those in flight before them, delayed ones are looked for: some 3 ms."""

STATES: Final = {"ready": Place.READY, "delayed": Place.DELAYED, "in_flight": Place.IN_FLIGHT}
"""What peek may be asked for; those ready again until they expire are ready."""

LIST_NAMES: Final = 5000
"""Queues that one piece of a list looks at: some 3 ms."""

MATCH_STEPS: Final = 1_500_000
"""Characters of the pattern times those of the name, of all that one piece compares: some 2 ms at the worst."""

AT_ONCE_NAMES: Final = 200
"""With so few queues a list is made at once; else when others have had their turn."""


class _Listing:
    """A list that is being made: of the queues whose names match, those behind `after`; `seen`: how far it is."""

    def __init__(self, call: Call, after: str) -> None:
        self.call = call
        self.after = after
        self.seen: str | None = None
        self.chosen: list[str] = []
        self.count = 0
        self.is_more = False
        pattern = call.request.pattern
        self.is_of_all = pattern is None
        self._part = pattern or ""
        has_wildcards = any(character in self._part for character in "*?[")
        self._expression = re.compile(translate(self._part)) if has_wildcards else None
        self.cost = len(self._part) if has_wildcards else 0

    def matches(self, name: str) -> bool:
        """By shell wildcards if the pattern has any, else as a part of the name."""
        return self._part in name if self._expression is None else self._expression.match(name) is not None


class Queries:
    """Answers from the state in memory, and from what the owner was told of its surroundings.

    What tells how the node is gathers in `asked`, for the Replicator, which knows the rest.
    """

    def __init__(
        self,
        ledger: Ledger,
        delivery: Delivery,
        around: Surroundings,
        readers: Readers,
        asked: list[LogAsked | ClusterAsked | StatusAsked],
    ) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._readers = readers
        self._state = ledger.state
        self._listings: deque[_Listing] = deque()
        self._summing = Summing(ledger.state, self._summed)
        self._asked = asked
        self.around = around

    def monitor(self, call: Call) -> None:
        """One queue's counts."""
        queue = self._queue_of(call)
        if queue is None:
            return
        around = self.around
        reply = done(
            call.request,
            MonitorReply,
            queue=queue.name,
            size=queue.size,
            ready=len(queue.ready),
            delayed=queue.delayed,
            in_flight=queue.in_flight,
            max_size=queue.max_size,
            max_id=queue.max_id,
            wait_status=self._delivery.waiting_for(queue.name),
            paused=queue.paused,
            leader_node_id=around.leader_node_id,
            node_id=around.node_id,
            trans_id=self._state.trans_id,
            log_size=self._state.trans_id - around.trimmed,
            max_log_size=around.max_log_size,
            settings=settings_of(queue.settings()),
        )
        self._ledger.park(call, reply)

    def list_queues(self, call: Call) -> None:
        """The queues whose names match: shell wildcards if the pattern has any, else a part of the name; or all.

        As many as fit behind the name `after`; the reply says whether there are more.
        """
        request = call.request
        if request.after is not None and not isinstance(request.after, str):
            reason = "after: the name of a queue is wanted, the last of the list before"
            self._ledger.park(call, refusal(request, ErrorWord.FIELD, reason))
            return
        listing = _Listing(call, request.after or "")
        is_quick = len(self._state.names) <= AT_ONCE_NAMES or self._is_plain(listing)
        if self._listings or not is_quick or not self._list_some(listing):
            self._listings.append(listing)  # it goes on when others have had their turn

    def _is_plain(self, listing: "_Listing") -> bool:
        """Whether it is of all queues, for one who may look at all: then only those that it names are looked at."""
        return listing.is_of_all and Right.LOOK in listing.call.principal.rights.everywhere

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._listings) or self._summing.has_more

    def go_on(self) -> None:
        """Look at some more names for a list of very many, or for sums."""
        if self._listings and self._list_some(self._listings[0]):
            self._listings.popleft()
        self._summing.go_on(self._ledger.now)

    def take_open(self) -> list[Call]:
        """The lists and sums that are not ready; they do not go on."""
        calls = [listing.call for listing in self._listings]
        self._listings.clear()
        return calls + self._summing.take_open()

    def _list_some(self, listing: "_Listing") -> bool:
        """Look at the next `LIST_NAMES` names; at the last of them answer. Whether that is done."""
        call, names = listing.call, self._state.names
        rights = call.principal.rights
        may_all = Right.LOOK in rights.everywhere
        rows_max = rows_in_reply(call)
        if self._is_plain(listing):
            first = names.bisect_right(listing.after)
            listing.chosen = list(names.islice(first, first + rows_max))
            listing.count = len(names)
            is_last = first + rows_max >= len(names)
            self._answer_list(listing, is_last=is_last)
            return True
        at = names.bisect_right(listing.seen) if listing.seen is not None else 0
        some = list(names.islice(at, at + LIST_NAMES))
        left = MATCH_STEPS
        for looked, name in enumerate(some, 1):
            if not may_all and not rights.may(Right.LOOK, name):
                continue
            left -= listing.cost * len(name)
            if listing.matches(name):
                listing.count += 1
                if name > listing.after:
                    if len(listing.chosen) < rows_max:
                        listing.chosen.append(name)
                    else:
                        listing.is_more = True
            if left < 0 and looked < len(some):
                listing.seen = name
                return False
        if len(some) == LIST_NAMES:
            listing.seen = some[-1]
            return False
        self._answer_list(listing, is_last=not listing.is_more)
        return True

    def _answer_list(self, listing: "_Listing", *, is_last: bool) -> None:
        chosen = listing.chosen
        queues = self._state.queues
        is_full = bool(listing.call.request.full)
        reply = done(
            listing.call.request,
            ListReply,
            queue_list=[self._row(queues[name], is_full=is_full) for name in chosen if name in queues],
            queue_count=listing.count,
            next=None if is_last or not chosen else chosen[-1],
        )
        self._ledger.park(listing.call, reply)

    def _row(self, queue: QueueState, *, is_full: bool) -> QueueRow:
        row = QueueRow(
            queue.name,
            queue.size,
            len(queue.ready),
            queue.delayed,
            queue.in_flight,
            queue.max_size,
            queue.max_id,
            self._delivery.waiting_for(queue.name),
            queue.paused,
        )
        if is_full:
            row.oldest = oldest_ready(queue)
            row.totals = self._totals(queue.name)
            row.dead_letter = queue.dead_letter
            if queue.dead_letter is not None:
                letters = self._state.queues.get(queue.dead_letter)
                row.dead_letters = 0 if letters is None else letters.size
        return row

    def _totals(self, name: str) -> QueueTotals:
        counting = self._ledger.counting
        found = counting.of(name)
        return QueueTotals(counting.begun) if found is None else _totals_of(counting.begun, found)

    def leader(self, call: Call) -> None:
        """Who leads."""
        request, around = call.request, self.around
        if not around.leader_node_id:
            self._ledger.park(call, refusal(request, ErrorWord.NO_LEADER, "no node leads at the moment"))
            return
        reply = done(
            request,
            LeaderReply,
            leader_node_id=around.leader_node_id,
            leader_host=around.leader_host,
            leader_port=around.leader_port,
            vote_id=around.leader_vote_id,
        )
        self._ledger.park(call, reply)

    def peek(self, call: Call) -> None:
        """The next messages to be delivered, and after them the delayed ones, as far as they are soon found.

        With `state` those in that state alone, in the order of what happens to them by time, a page at a time.
        """
        request = call.request
        queue = self._queue_of(call)
        if queue is None:
            return
        if request.state is not None or request.after is not None:
            self._peek_page(call, queue)
            return
        live = self._state.messages
        next_ones: Iterator[Message] = (live[msg_id] for _, _, msg_id in queue.ready)
        waiting = islice(queue.waiting, PEEK_SCAN if queue.delayed else 0)
        later = (live[msg_id] for _, msg_id in waiting if live[msg_id].place == Place.DELAYED)
        chosen = _fitting(islice(chain(next_ones, later), request.count or PEEK_DEFAULT), call.reply_bytes_max)
        messages = [view_of(message) for message in chosen]
        self._ledger.park(call, done(request, PeekReply, queue=queue.name, messages=messages))

    def _peek_page(self, call: Call, queue: QueueState) -> None:
        """As many of one state as are wanted, fit, and are among the first `PEEK_SCAN` behind `after`."""
        request = call.request
        place = STATES.get(request.state or "")
        if place is None:
            said = "is missing, and after is given" if request.state is None else f"is {request.state!r}"
            self._ledger.refuse_field(call, "state", f"{said}: one of {', '.join(STATES)}")
            return
        try:
            after = None if request.after is None else _position(request.after, is_ready=place == Place.READY)
        except ValueError:
            self._ledger.refuse_field(call, "after", "is not what a reply to peek in that state called next")
            return
        order = queue.ready if place == Place.READY else queue.waiting
        live = self._state.messages
        keys = islice(order if after is None else order.behind(after), PEEK_SCAN)
        position, is_more, room = after, False, call.reply_bytes_max
        chosen: list[Message] = []
        for seen, key in enumerate(keys, 1):
            message = live[key[-1]]
            if place == Place.READY or message.place == place:
                room -= weight(message) + REPLY_OVERHEAD_BYTES
                if len(chosen) >= (request.count or PEEK_DEFAULT) or (chosen and room < 0):
                    is_more = True
                    break
                chosen.append(message)
            position = key
            is_more = seen == PEEK_SCAN
        reply = done(request, PeekReply, queue=queue.name, messages=[view_of(message) for message in chosen])
        if is_more and position is not None:
            reply.next = ":".join(map(repr, position))
        self._ledger.park(call, reply)

    def show(self, call: Call) -> None:
        """One message, by its id or by queue and key."""
        request = call.request
        msg_id = request.msg_id
        if msg_id is None:
            if request.queue is None or request.key is None:
                self._ledger.park(
                    call, refusal(request, ErrorWord.FIELD, "msg_id is missing, and so are queue and key")
                )
                return
            queue = self._state.queues.get(request.queue)
            msg_id = None if queue is None else queue.keys.get(request.key)
        message = None if msg_id is None else self._state.messages.get(msg_id)
        if message is None or not call.principal.rights.may(Right.LOOK, message.queue):
            named = f"message {msg_id}" if request.key is None else f"message with the key {request.key!r}"
            self._ledger.park(call, refusal(request, ErrorWord.NO_SUCH_MESSAGE, f"there is no {named}"))
            return
        reply = done(request, ShowReply, queue=message.queue, msg_id=message.msg_id, message=view_of(message))
        self._ledger.park(call, reply)

    def status(self) -> dict[str, Any]:
        """The queues' part of a shard's row in its node's status."""
        state = self._state
        return {
            "shard": state.shard,
            "trans_id": state.trans_id,
            "queues": len(state.queues),
            "messages": len(state.messages),
            "data_bytes": state.data_bytes,
            "waiting_consumers": self._delivery.waiter_count,
            "readers": [msgspec.structs.asdict(row) for row in self._readers.rows()],
        }

    def measure(self, call: Call) -> None:
        """The queues' part of a node's numbers: of a shard that another node leads, nothing."""
        if self.around.leader_node_id == self.around.node_id:
            self._summing.ask(self._ledger.now, call)
        else:
            self._asked.append(StatusAsked(call, {"shard": self._state.shard}))

    def _summed(self, call: Call, sums: Sums) -> None:
        state, counting = self._state, self._ledger.counting
        row = {
            "shard": state.shard,
            "queues": len(state.queues),
            "data_bytes": state.data_bytes,
            "waiting_consumers": self._delivery.waiter_count,
            "totals": msgspec.structs.asdict(_totals_of(counting.begun, counting.all)),
            **sums.told,
        }
        self._asked.append(StatusAsked(call, row))

    def _queue_of(self, call: Call) -> QueueState | None:
        """The queue that the request names; None if it was refused."""
        request = call.request
        if request.queue is None:
            self._ledger.park(call, refusal(request, ErrorWord.FIELD, "queue is missing"))
            return None
        queue = self._state.queues.get(request.queue)
        if queue is None:
            self._ledger.park(call, refusal(request, ErrorWord.NO_SUCH_QUEUE, f"there is no queue {request.queue!r}"))
        return queue


def _position(after: int | str, *, is_ready: bool) -> tuple[float, ...]:
    """A key of `ready` or of `waiting`. Raises ValueError."""
    parts = str(after).split(":")
    if len(parts) != (3 if is_ready else 2):
        raise ValueError(after)
    numbers = [int(parts[0])] if is_ready else []
    return (*numbers, float(parts[-2]), int(parts[-1]))


def _totals_of(begun: float, found: Totals) -> QueueTotals:
    return QueueTotals(
        begun,
        found.produced,
        found.delivered,
        found.redelivered,
        found.confirmed,
        found.released,
        found.expired,
        found.buried,
        found.moved,
    )


def settings_of(record: Configure) -> QueueSettings:
    """The settings that a record sets."""
    return QueueSettings(
        max_size=record.max_size,
        default_ttl=record.default_ttl_s,
        default_retry=record.default_retry_s,
        max_deliveries=record.max_deliveries,
        dead_letter=record.dead_letter,
        paused=record.paused,
        expires_after=record.expires_after_s,
    )


def _fitting(messages: Iterator[Message], bytes_max: int) -> Iterator[Message]:
    """As many of the messages as fit a reply; at least one."""
    room = bytes_max
    for index, message in enumerate(messages):
        room -= weight(message) + REPLY_OVERHEAD_BYTES
        if room < 0 and index:
            return
        yield message
