"""The requests that only look: monitor, list, leader, peek, scan, status. Their replies are parked like all others."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from actors.messages.call import Call
from actors.messages.calls import StatusAsked
from actors.queues.delivery import REPLY_OVERHEAD_BYTES, Delivery
from actors.queues.listing import Listings, QueueRows, totals_of
from actors.queues.message_replies import READY_KEY, WAITING_KEY, key_of, told
from actors.queues.queue_admin import paused_word
from actors.queues.readers import Readers
from actors.queues.scanning import Scanning, Summing, Sums, fitting, view_for
from actors.shard.machine import Machine, ShardContext
from quorate.actions import Right
from quorate.protocol import Action, ErrorWord, LeaderReply, PeekReply, done, refusal
from quorate.queue_replies import MonitorReply, QueueSettings
from storage.message import Message, weight
from storage.queue_state import QueueState
from storage.records import Place

PEEK_DEFAULT: Final = 1
PEEK_SCAN: Final = 5000
"""Among so many messages that wait, those that expire while they are ready before them, delayed ones are looked for:
some 3 ms."""

LATER: Final = (Place.DELAYED, Place.HELD)

STATES: Final = {"ready": Place.READY, "delayed": Place.DELAYED, "in_flight": Place.IN_FLIGHT}
"""What peek may be asked for; those ready again until they expire are ready."""


class Queries(Machine):
    """Answers from the state in memory, and from what the owner was told of its surroundings.

    Its part of what tells how the node is gathers in the context, for the Replicator, which knows the rest.
    """

    def __init__(self, context: ShardContext, delivery: Delivery, readers: Readers) -> None:
        self._ledger = ledger = context.ledger
        self._delivery = delivery
        self._readers = readers
        self._state = ledger.state
        self._summing = Summing(ledger, context.jobs, self._summed)
        self._rows = QueueRows(ledger, delivery, self._summing)
        self._listings = Listings(ledger, context.jobs, self._rows)
        self._scanning = Scanning(context)
        self._asked = context.asked
        self.view = context.view

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {
            Action.SCAN: self.scan,
            Action.MONITOR: self.monitor,
            Action.NODE_MONITOR: self.monitor,
            Action.LIST: self.list_queues,
            Action.NODE_LIST: self.list_queues,
            Action.LEADER: self.leader,
            Action.PEEK: self.peek,
            Action.NODE_METRICS: self.measure,
            Action.NODE_STATUS: self.status,
        }

    def monitor(self, call: Call) -> None:
        """One queue's counts."""
        view, rights, name = self.view, call.principal.rights, call.request.queue
        queue = self._state.queues.get(name or "")
        is_there = queue is not None
        if queue is None and name and not call.request.as_job:
            queue = QueueState(name, self._ledger.new_queue)
        elif queue is None:
            self._queue_of(call)
            return
        sees_node = rights.is_unlimited or rights.has(Right.OPERATE)  # how much others do can be read off these
        reply = done(
            call.request,
            MonitorReply,
            queue=queue.name,
            size=queue.size,
            ready=len(queue.ready),
            delayed=queue.delayed,
            in_flight=queue.in_flight,
            max_size=queue.max_size,
            max_id=queue.max_id if sees_node else 0,
            wait_status=self._delivery.lines.length(queue.name),
            paused=paused_word(queue),
            leader_node_id=view.leader_node_id,
            node_id=view.node_id,
            trans_id=self._state.trans_id if sees_node else 0,
            log_size=self._state.trans_id - view.trimmed if sees_node else 0,
            max_log_size=view.max_log_size,
            settings=settings_of(queue) if is_there else None,
            exists=None if is_there else False,
        )
        if is_there and call.request.full:
            reply.row = self._rows.row(queue, call.principal.rights, is_full=True)
        self._ledger.answer_when_committed(call, reply)

    def list_queues(self, call: Call) -> None:
        """List some of the queues; with `sums` what all have together first, which tells rates, too."""
        if call.request.sums and Right.LOOK in call.principal.rights.everywhere:
            self._summing.ask(call)
        else:
            self._listings.ask(call)

    def leader(self, call: Call) -> None:
        """Who leads."""
        request, view = call.request, self.view
        if not view.leader_node_id:
            self._ledger.answer_when_committed(
                call, refusal(request, ErrorWord.NO_LEADER, "no node leads at the moment")
            )
            return
        reply = done(
            request,
            LeaderReply,
            leader_node_id=view.leader_node_id,
            leader_host=view.leader_host,
            leader_port=view.leader_port,
            vote_id=view.leader_vote_id,
            level=self._ledger.level,
        )
        self._ledger.answer_when_committed(call, reply)

    def peek(self, call: Call) -> None:
        """Show the next messages to be delivered, and after them the delayed ones, as far as they are soon found.

        With `state` those in that state alone, in the order of what happens to them by time, a page at a time.
        """
        request = call.request
        queue = self._queue_of(call)
        if queue is None:
            return
        if request.state is not None or request.after is not None:
            self._peek_page(call, queue)
            return
        chosen = fitting(islice(self._next_ones(queue), request.count or PEEK_DEFAULT), call.reply_bytes_max)
        messages = [view_for(call, self._state, message) for message in chosen]
        self._ledger.answer_when_committed(call, done(request, PeekReply, queue=queue.name, messages=messages))

    def _next_ones(self, queue: QueueState) -> Iterator[Message]:
        """Go through what is ready, and the delayed ones behind it.

        With `yield`: of a generator expression compiled code makes the whole list at once.
        """
        live = self._state.messages
        for _, _, msg_id in queue.ready:
            yield live[msg_id]
        for _, msg_id in islice(queue.waiting, PEEK_SCAN if queue.delayed else 0):
            message = live[msg_id]
            if message.place in LATER:
                yield message

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
        reply = done(
            request, PeekReply, queue=queue.name, messages=[view_for(call, self._state, message) for message in chosen]
        )
        if is_more and position is not None:
            reply.next = told(position)
        self._ledger.answer_when_committed(call, reply)

    def scan(self, call: Call) -> None:
        """Scan some of the queues, or of the messages, or those whose time comes first: when others have had their
        turn."""
        if call.request.shard not in (None, self._state.messages.shard):
            return self._ledger.refuse_field(call, "shard", f"there is no shard {call.request.shard}")
        return self._scanning.ask(call)

    def status(self, call: Call) -> None:
        """Make the queues' part of a shard's row in its node's status."""
        state = self._state
        row = {
            "shard": state.messages.shard,
            "trans_id": state.trans_id,
            "queues": len(state.queues),
            "messages": len(state.messages),
            "data_bytes": state.data_bytes,
            "waiting_consumers": len(self._delivery.lines),
            "readers": [msgspec.structs.asdict(reader) for reader in self._readers.rows()],
        }
        self._asked.append(StatusAsked(call, row))

    def measure(self, call: Call) -> None:
        """Make the queues' part of a node's numbers: of a shard that another node leads, nothing."""
        if self.view.leader_node_id == self.view.node_id:
            self._summing.ask(call)
        else:
            self._asked.append(StatusAsked(call, {"shard": self._state.messages.shard}))

    def _summed(self, call: Call, sums: Sums) -> None:
        if call.request.action == Action.LIST and Right.LOOK not in call.principal.rights.everywhere:
            return self._listings.ask(call)  # it may not look at all of them any more
        state, counting = self._state, self._ledger.counting
        prepared = state.topics.prepared
        row = {
            "shard": state.messages.shard,
            "at": sums.at,
            "prepared": len(prepared),
            "prepared_s": max(sums.at - prepared.oldest_at, 0.0) if len(prepared) else 0.0,
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
        return None

    def _queue_of(self, call: Call) -> QueueState | None:
        """Find the queue that the request names; None if it was refused."""
        request = call.request
        if request.queue is None:
            self._ledger.answer_when_committed(call, refusal(request, ErrorWord.FIELD, "queue is missing"))
            return None
        queue = self._state.queues.get(request.queue)
        if queue is None:
            reply = refusal(request, ErrorWord.NO_SUCH_QUEUE, f"there is no queue {request.queue!r}")
            if request.as_job:
                reply.count = self._delivery.lines.length(request.queue)
            self._ledger.answer_when_committed(call, reply)
        return queue


def settings_of(queue: QueueState) -> QueueSettings:
    """Give a queue's settings, as replies say them."""
    return QueueSettings(
        max_size=queue.max_size,
        default_ttl=queue.default_ttl_s,
        default_retry=queue.default_retry_s,
        max_deliveries=queue.max_deliveries,
        dead_letter=queue.dead_letter,
        paused=paused_word(queue),
        expires_after=queue.life.expires_after_s,
        system=queue.life.is_system,
    )
