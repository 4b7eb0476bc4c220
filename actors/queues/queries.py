"""The requests that only look: monitor, list, leader, peek, show, status. Their replies are parked like all others."""

import re
from collections.abc import Iterator
from fnmatch import translate
from itertools import chain, islice
from typing import Final

import msgspec

from actors.messages.calls import Call
from actors.messages.node_view import NodeView
from actors.queues.delivery import REPLY_OVERHEAD_BYTES, Delivery
from actors.queues.ledger import Ledger
from quorate.protocol import (
    Code,
    ErrorWord,
    LeaderReply,
    ListReply,
    MessageView,
    MonitorReply,
    Reply,
    ShowReply,
    StatusReply,
    refusal,
)
from storage.queue_state import QueueState
from storage.records import Message, Place

PEEK_DEFAULT: Final = 1
NAME_REPLY_BYTES: Final = 260
"""The longest name in a reply; a list is cut off where it might not fit (`queue_count` tells how many there are)."""
STATE_NAMES: Final = {
    Place.UNPLACED: "ready",
    Place.DELAYED: "delayed",
    Place.READY: "ready",
    Place.READY_AGAIN: "ready",
    Place.IN_FLIGHT: "in_flight",
}


class Queries:
    """Answers from the state in memory."""

    def __init__(self, ledger: Ledger, delivery: Delivery, view: NodeView) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._state = ledger.state
        self.view = view

    def monitor(self, call: Call) -> None:
        """One queue's counts."""
        request = call.request
        queue = self._queue_of(call)
        if queue is None:
            return
        view = self.view
        self._ledger.park(
            call,
            MonitorReply(
                action=request.action,
                code=Code.OK,
                queue=queue.name,
                seq=request.seq,
                size=queue.size,
                ready=len(queue.ready),
                delayed=queue.delayed,
                in_flight=queue.in_flight,
                max_size=queue.max_size,
                max_id=queue.max_id,
                wait_status=self._delivery.waiting_for(queue.name),
                paused=queue.paused,
                leader_node_id=view.leader_node_id,
                node_id=view.node_id,
                trans_id=self._state.trans_id,
                log_size=self._state.trans_id - view.trimmed,
                max_log_size=view.max_log_size,
            ),
        )

    def list_queues(self, call: Call) -> None:
        """The names that match the pattern: shell wildcards if it has any, else a part of the name; all without one."""
        request = call.request
        pattern = request.pattern
        names = sorted(self._state.queues)
        if pattern is not None and any(character in pattern for character in "*?["):
            matches = re.compile(translate(pattern)).match
            names = [name for name in names if matches(name)]
        elif pattern is not None:
            names = [name for name in names if pattern in name]
        names_max = request.count or call.reply_bytes_max // NAME_REPLY_BYTES
        self._ledger.park(
            call,
            ListReply(
                action=request.action,
                code=Code.OK,
                queue=request.queue,
                seq=request.seq,
                queue_list=names[:names_max],
                queue_count=len(names),
            ),
        )

    def leader(self, call: Call) -> None:
        """Who leads."""
        request = call.request
        view = self.view
        if not view.leader_node_id:
            self._ledger.park(call, refusal(request, ErrorWord.NO_LEADER, "no node leads at the moment"))
            return
        self._ledger.park(
            call,
            LeaderReply(
                action=request.action,
                code=Code.OK,
                queue=request.queue,
                seq=request.seq,
                leader_node_id=view.leader_node_id,
                leader_host=view.leader_host,
                leader_port=view.leader_port,
            ),
        )

    def peek(self, call: Call) -> None:
        """The next messages to be delivered, and after them the delayed ones."""
        request = call.request
        queue = self._queue_of(call)
        if queue is None:
            return
        live = self._state.messages
        next_ones: Iterator[Message] = (live[msg_id] for _, _, msg_id in queue.ready)
        later = (live[msg_id] for _, msg_id in queue.waiting if live[msg_id].place == Place.DELAYED)
        chosen = _fitting(islice(chain(next_ones, later), request.count or PEEK_DEFAULT), call.reply_bytes_max)
        self._ledger.park(
            call,
            Reply(
                action=request.action,
                code=Code.OK,
                queue=queue.name,
                seq=request.seq,
                messages=[view_of(message) for message in chosen],
            ),
        )

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
        if message is None:
            named = f"message {msg_id}" if request.key is None else f"message with the key {request.key!r}"
            self._ledger.park(call, refusal(request, ErrorWord.NO_SUCH_MESSAGE, f"there is no {named}"))
            return
        self._ledger.park(
            call,
            ShowReply(
                action=request.action,
                code=Code.OK,
                queue=message.queue,
                seq=request.seq,
                msg_id=message.msg_id,
                message=view_of(message),
            ),
        )

    def status(self, call: Call) -> None:
        """This node and its shard; the listener adds what it knows."""
        view = self.view
        state = self._state
        shard = {
            "shard": state.shard,
            "leader_node_id": view.leader_node_id,
            "role": view.role,
            "cluster_id": f"{view.cluster_id:x}",
            "vote_id": view.vote_id,
            "trans_id": state.trans_id,
            "committed": view.committed,
            "stored": view.stored,
            "first_trans_id": view.trimmed + 1,
            "log_size": state.trans_id - view.trimmed,
            "max_log_size": view.max_log_size,
            "queues": len(state.queues),
            "messages": len(state.messages),
            "data_bytes": state.data_bytes,
            "waiting_consumers": self._delivery.waiter_count,
            "recovery": view.recovery,
            "followers": view.followers(),
            "members": view.members(),
        }
        self._ledger.park(
            call,
            StatusReply(
                action=call.request.action,
                code=Code.OK,
                seq=call.request.seq,
                node_id=view.node_id,
                node_type=view.node_type,
                version=view.version,
                pid=0,
                uptime_s=0.0,
                resident_bytes=0,
                connections=0,
                requests=0,
                shards=[shard],
            ),
        )

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


def _fitting(messages: Iterator[Message], bytes_max: int) -> Iterator[Message]:
    """As many of the messages as fit a reply; at least one."""
    room = bytes_max
    for index, message in enumerate(messages):
        room -= len(message.data) + REPLY_OVERHEAD_BYTES
        if room < 0 and index:
            return
        yield message


def view_of(message: Message) -> MessageView:
    """A message as peek and show give it."""
    return MessageView(
        msg_id=message.msg_id,
        queue=message.queue,
        data=msgspec.Raw(message.data),
        state=STATE_NAMES[message.place],
        produced_at=message.produced_at,
        due_at=message.due_at,
        expires_at=message.expires_at,
        retry=message.retry_s,
        priority=message.priority,
        deliveries=message.deliveries,
        trans_id=message.previous,
        key=message.key,
    )
