"""The requests that only look: monitor, list, leader, peek, show, status. Their replies are parked like all others."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec

from actors.messages.call import Call
from actors.messages.calls import ClusterAsked, LogAsked, StatusAsked
from actors.queues.delivery import REPLY_OVERHEAD_BYTES, Delivery
from actors.queues.ledger import Ledger
from actors.queues.listing import Listings
from actors.queues.message_replies import state_of, view_of
from actors.queues.positions import READY_KEY, WAITING_KEY, key_of, told
from actors.queues.queue_admin import paused_word
from actors.queues.queue_rows import QueueRows, totals_of
from actors.queues.readers import Readers
from actors.queues.soonest import PLACES, Soonest
from actors.queues.summing import Summing, Sums
from actors.queues.surroundings import Surroundings
from quorate.actions import Right
from quorate.protocol import (
    Action,
    ErrorWord,
    LeaderReply,
    MessageView,
    MonitorReply,
    PeekReply,
    QueueSettings,
    Reply,
    ScanReply,
    ShowReply,
    done,
    refusal,
)
from storage.message import Message, weight
from storage.message_ids import SHARDS_MAX
from storage.name_buckets import BUCKETS
from storage.queue_state import QueueState
from storage.records import Place

KINDS: Final = 3
"""Of what is found in pieces: lists, sums, and what is soon."""

PEEK_DEFAULT: Final = 1
PEEK_SCAN: Final = 5000
"""Among so many messages that wait, those that expire while they are ready before them, delayed ones are looked for:
some 3 ms."""

LATER: Final = (Place.DELAYED, Place.HELD)

SCAN_DEFAULT: Final = 100
SCAN_MAX: Final = 2000
SCAN_TOLD_MAX: Final = 200
"""So many messages a reply to scan tells at most, of those that are due next."""

SCAN_PIECE: Final = 50
"""So many at most of all, or names, and those that share the last one's bucket: some 0.3 ms, which others wait, again
and again while somebody scans a million of them."""

STATES: Final = {"ready": Place.READY, "delayed": Place.DELAYED, "in_flight": Place.IN_FLIGHT}
"""What peek may be asked for; those ready again until they expire are ready."""


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
        self._summing = Summing(ledger, self._summed)
        self._rows = QueueRows(ledger, delivery, self._summing)
        self._listings = Listings(ledger, self._rows)
        self._soonest = Soonest(ledger, self._soon)
        self._asked = asked
        self._turn = 0
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
            wait_status=self._delivery.lines.length(queue.name),
            paused=paused_word(queue),
            leader_node_id=around.leader_node_id,
            node_id=around.node_id,
            trans_id=self._state.trans_id,
            log_size=self._state.trans_id - around.trimmed,
            max_log_size=around.max_log_size,
            settings=settings_of(queue),
        )
        if call.request.full:
            reply.row = self._rows.row(queue, call.principal.rights, is_full=True)
        self._ledger.park(call, reply)

    def list_queues(self, call: Call) -> None:
        """Some of the queues; with `sums` what all have together first, which tells rates, too."""
        if call.request.sums and Right.LOOK in call.principal.rights.everywhere:
            self._summing.ask(self._ledger.now, call)
        else:
            self._listings.ask(call)

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return self._listings.has_more or self._summing.has_more or self._soonest.has_more

    def go_on(self) -> None:
        """Look at some more names for a list of very many, for sums, or for what is soon: by turns."""
        for _ in range(KINDS):
            self._turn = (self._turn + 1) % KINDS
            if self._turn == 0:
                if self._summing.has_more:
                    return self._summing.go_on(self._ledger.now)
            elif self._turn == 1:
                if self._listings.has_more:
                    return self._listings.go_on()
            elif self._soonest.has_more:
                return self._soonest.go_on()
        return None

    def take_open(self) -> list[Call]:
        """The lists and sums that are not ready; they do not go on."""
        return self._listings.take_open() + self._summing.take_open() + self._soonest.take_open()

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
        later = (live[msg_id] for _, msg_id in waiting if live[msg_id].place in LATER)
        chosen = _fitting(islice(chain(next_ones, later), request.count or PEEK_DEFAULT), call.reply_bytes_max)
        messages = [self._view(call, message) for message in chosen]
        self._ledger.park(call, done(request, PeekReply, queue=queue.name, messages=messages))

    def _peek_page(self, call: Call, queue: QueueState) -> None:
        """As many of one state as are wanted, fit, and are among the first `PEEK_SCAN` behind `after`."""
        request = call.request
        place = STATES.get(request.state or "")
        if place is None:
            said = "is missing, and after is given" if request.state is None else f"is {request.state!r}"
            self._ledger.refuse_field(call, "state", f"{said}: one of {', '.join(STATES)}")
            return
        after = None if request.after is None else key_of(request.after)
        size = READY_KEY if place == Place.READY else WAITING_KEY
        if request.after is not None and (after is None or len(after) != size):
            self._ledger.refuse_field(call, "after", "is not what a reply to peek in that state called next")
            return
        order = queue.order_of(place)
        live = self._state.messages
        if request.descending and after is None:
            keys = islice(order.backwards(), PEEK_SCAN)
        else:
            keys = islice(order if after is None else order.behind(after), PEEK_SCAN)
        position, is_more, room = after, False, call.reply_bytes_max
        chosen: list[Message] = []
        for seen, key in enumerate(keys, 1):
            message = live[key[-1]]
            if place == Place.READY or message.place == place or (place == Place.DELAYED and message.place in LATER):
                room -= weight(message) + REPLY_OVERHEAD_BYTES
                if len(chosen) >= (request.count or PEEK_DEFAULT) or (chosen and room < 0):
                    is_more = True
                    break
                chosen.append(message)
            position = key
            is_more = seen == PEEK_SCAN
        reply = done(request, PeekReply, queue=queue.name, messages=[self._view(call, message) for message in chosen])
        if is_more and position is not None:
            reply.next = told(position)
        self._ledger.park(call, reply)

    def show(self, call: Call) -> None:
        """One message, by its id, by queue and key, or by a key that is unique among all."""
        request = call.request
        msg_id = request.msg_id
        if msg_id is None and request.scope is not None:
            keyed = None if request.key is None else self._state.keys.get(request.key)
            msg_id = None if keyed is None else keyed.msg_id
        elif msg_id is None:
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
        view, now = self._view(call, message), self._ledger.now if request.as_job else None
        reply = done(request, ShowReply, queue=message.queue, msg_id=message.msg_id, message=view, now=now)
        self._ledger.park(call, reply)

    def find(self, call: Call) -> None:
        """Whether a message has a key that is unique among all; nothing more, so that whoever produces may ask."""
        request = call.request
        if request.key is None or request.scope is None:
            self._ledger.park(call, refusal(request, ErrorWord.FIELD, "key is missing, or scope"))
        elif request.key in self._state.keys:
            self._ledger.park(call, done(request, Reply))
        else:
            reason = f"there is no message with the key {request.key!r}"
            self._ledger.park(call, refusal(request, ErrorWord.NO_SUCH_MESSAGE, reason))

    def _view(self, call: Call, message: Message) -> MessageView:
        """A message as it is told to who knows jobs, or not."""
        is_job = call.request.as_job
        return view_of(message, self._state.tenures.at(message.msg_id // SHARDS_MAX) if is_job else None)

    def scan(self, call: Call) -> None:
        """Some of the queues, or of the messages with `full`, behind a place that holds whatever comes and goes.

        Of messages only those of `queue` and `state`, where that is given. `after` is a bucket of names, or the record
        that produced the last message. Sorted by `due`: the first `count` of the delayed, or of those in flight, of all
        queues, in the order of their times.
        """
        request = call.request
        if request.sort is not None:
            return self._scan_soonest(call)
        after = request.after or 0
        if not isinstance(after, int):
            return self._ledger.refuse_field(call, "after", "is no number that a reply to scan called next")
        reply = done(request, ScanReply, shards=self.around.shards, now=self._ledger.now)
        count = request.count or SCAN_DEFAULT
        if request.full:
            reply.messages, reply.next = self._scan_messages(call, after, count)
        else:
            reply.names, reply.next = self._scan_names(call, after, count)
        self._ledger.park(call, reply)
        return None

    def _scan_soonest(self, call: Call) -> None:
        request = call.request
        place = PLACES.get(request.state or "")
        if request.sort != "due" or not request.full or place is None:
            reason = f"is {request.sort!r}: a scan is sorted by due, with full and one state, {' or '.join(PLACES)}"
            return self._ledger.refuse_field(call, "sort", reason)
        return self._soonest.ask(call, place, min(request.count or SCAN_DEFAULT, SCAN_TOLD_MAX))

    def _soon(self, call: Call, messages: list[Message]) -> None:
        reply = done(call.request, ScanReply, shards=self.around.shards, now=self._ledger.now)
        reply.messages = [self._view(call, message) for message in _fitting(iter(messages), call.reply_bytes_max)]
        self._ledger.park(call, reply)

    def _scan_names(self, call: Call, after: int, count: int) -> tuple[list[tuple[str, int]], int | None]:
        rights, queues = call.principal.rights, self._state.queues
        found: list[tuple[str, int]] = []
        count = min(count, SCAN_PIECE)
        for at in range(after, BUCKETS):
            if len(found) >= count:
                return found, at
            names = [name for name in self._state.buckets.at(at) if rights.may(Right.LOOK, name)]
            found += [(name, len(queues[name].ready)) for name in names]
        return found, None

    def _scan_messages(self, call: Call, after: int, count: int) -> tuple[list[MessageView], int | None]:
        request, rights = call.request, call.principal.rights
        wanted = None if request.state is None else set(request.state.split(","))
        room, end = call.reply_bytes_max, after
        found: list[MessageView] = []
        count = min(count, SCAN_PIECE)
        is_choosy = wanted is not None or request.queue is not None or Right.LOOK not in rights.everywhere
        looked, last = self._state.messages.behind(after, SCAN_MAX if is_choosy else count)
        for message in looked:
            is_meant = request.queue is None or message.queue == request.queue
            if is_meant and (wanted is None or state_of(message, is_job=bool(request.as_job)) in wanted):
                room -= weight(message) + REPLY_OVERHEAD_BYTES
                if len(found) >= count or (found and room < 0):
                    return found, end
                if rights.may(Right.LOOK, message.queue):
                    found.append(self._view(call, message))
            end = message.msg_id // SHARDS_MAX
        return found, last

    def status(self) -> dict[str, Any]:
        """The queues' part of a shard's row in its node's status."""
        state = self._state
        return {
            "shard": state.shard,
            "trans_id": state.trans_id,
            "queues": len(state.queues),
            "messages": len(state.messages),
            "data_bytes": state.data_bytes,
            "waiting_consumers": len(self._delivery.lines),
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
            "at": sums.at,
            "queues": len(state.queues),
            "data_bytes": state.data_bytes,
            "waiting_consumers": len(self._delivery.lines),
            "totals": msgspec.structs.asdict(totals_of(counting.begun, counting.all)),
            **sums.told,
        }
        if call.request.action == Action.NODE_METRICS:
            self._asked.append(StatusAsked(call, row))
        else:
            self._listings.ask(call, row)

    def _queue_of(self, call: Call) -> QueueState | None:
        """The queue that the request names; None if it was refused."""
        request = call.request
        if request.queue is None:
            self._ledger.park(call, refusal(request, ErrorWord.FIELD, "queue is missing"))
            return None
        queue = self._state.queues.get(request.queue)
        if queue is None:
            reply = refusal(request, ErrorWord.NO_SUCH_QUEUE, f"there is no queue {request.queue!r}")
            if request.as_job:
                reply.count = self._delivery.lines.length(request.queue)
            self._ledger.park(call, reply)
        return queue


def settings_of(queue: QueueState) -> QueueSettings:
    """A queue's settings, as replies say them."""
    return QueueSettings(
        max_size=queue.max_size,
        default_ttl=queue.default_ttl_s,
        default_retry=queue.default_retry_s,
        max_deliveries=queue.max_deliveries,
        dead_letter=queue.dead_letter,
        paused=paused_word(queue),
        expires_after=queue.life.expires_after_s,
    )


def _fitting(messages: Iterator[Message], bytes_max: int) -> Iterator[Message]:
    """As many of the messages as fit a reply; at least one."""
    room = bytes_max
    for index, message in enumerate(messages):
        room -= weight(message) + REPLY_OVERHEAD_BYTES
        if room < 0 and index:
            return
        yield message
