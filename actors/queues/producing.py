"""Produce: how messages are made, and what lets them in. A machine."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import astuple

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.queues.message_replies import marks_of, marks_of_job, told_again, told_ttr
from actors.queues.queue_admin import QueueAdmin
from actors.shard.machine import Machine, ShardContext
from quorate.actions import Right
from quorate.protocol import (
    BATCH_MAX,
    NO_DATA,
    RELATIVE_TIME_LIMIT_S,
    TIME_MAX_S,
    Action,
    ErrorWord,
    KeptReply,
    ProduceItem,
    Reply,
    Request,
    refusal,
)
from storage.message import Message, is_of_all, weight
from storage.message_ids import message_id, named
from storage.queue_state import NEVER, QueueState
from storage.records import GMQ_MARKS, STREAMS_LEVEL, Clear, Encoding

NOW_S: Final = 2.0
"""A `ttl` without a `delay` that lies this little in the past was now when it was sent: the message is due once."""

MESSAGE_OVERHEAD_BYTES: Final = 500
"""What a live message takes in memory beside its data (bench/memory.py measures it)."""


_fields_of: Final = astuple
"""All fields of a Struct at once cost compiled code as much as three or four one by one."""

_PRODUCE: Final = int(Action.PRODUCE)
_ABSENT: Final = NO_DATA
_Reply: Final = Reply
ITEM_FIELDS: Final = ("data", "delay", "ttl", "retry", "priority", "key")
"""What a message is asked for by; in one order in a request and in its items."""

FIRST_AT: Final = 2
ENCODING_AT: Final = Request.__struct_fields__.index("encoding")
assert Request.__struct_fields__[FIRST_AT : FIRST_AT + 6] == ITEM_FIELDS
HEADERS_AT: Final = Request.__struct_fields__.index("headers")
EXPIRE_AT: Final = Request.__struct_fields__.index("expire")
KEEP_AT: Final = Request.__struct_fields__.index("keep")
QUEUE_AT: Final = Request.__struct_fields__.index("queue")
REPLICATE_AT: Final = Request.__struct_fields__.index("replicate")
AS_JOB_AT: Final = Request.__struct_fields__.index("as_job")
MAX_READY_AT: Final = Request.__struct_fields__.index("max_ready")
MESSAGES_AT: Final = Request.__struct_fields__.index("messages")
SEQ_AT: Final = Request.__struct_fields__.index("seq")
SCOPE_AT: Final = Request.__struct_fields__.index("scope")
TTR_AT: Final = Request.__struct_fields__.index("ttr")
ASKED_DELAY_AT: Final = Request.__struct_fields__.index("asked_delay")
ON_DUPLICATE_AT: Final = Request.__struct_fields__.index("on_duplicate")
assert ProduceItem.__struct_fields__ == (
    *ITEM_FIELDS,
    "encoding",
    "headers",
    "expire",
    "keep",
    "scope",
    "on_duplicate",
    "attribute",
    "flag",
)

DEFAULT_NODES: Final = 3
"""A job is told to be on so many nodes, or on all that vote, where nothing else was asked for."""

NEARLY: Final = 20
"""Where less than this part of the memory is left, and what a batch takes, it is looked at whether there is enough."""

REFUSE: Final = "refuse"
KEEP: Final = "keep"
REPLACE: Final = "replace"

KEPT_AT_ONCE: Final = 100
"""So many of the messages that are kept go where there is no room for another."""

SHORT_LOOK_S: Final = 1.0
"""While memory is short, so often what nobody needs is let go of."""


class Producing(Machine):
    """Makes the messages of one shard. `to_topic` does a produce to what is a topic. Unless it `makes_room`, nothing
    goes for what is produced."""

    def __init__(self, context: ShardContext, delivery: Delivery, admin: QueueAdmin) -> None:
        self.limits = context.limits
        self.ledger = context.ledger
        self.delivery = delivery
        self.admin = admin
        self.view = context.view
        self.own_writes = context.own_writes
        self._context = context
        self._state = context.ledger.state
        self._looks_at = 0.0
        self.makes_room = True
        self.to_topic: Callable[[Call, str], None] = self._is_a_topic

    def _is_a_topic(self, call: Call, name: str) -> None:
        self.ledger.refuse(call, ErrorWord.IS_A_TOPIC, f"{name!r} is a topic")

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.PRODUCE: self.produce}

    def limits_changed(self) -> None:
        """All of them."""
        self.limits = self._context.limits

    @property
    def next_event_at(self) -> float:
        """When it is looked at again what may go, where memory is short."""
        return self._looks_at if self.is_short(0, 0) else NEVER

    def pass_time(self) -> None:
        """Where memory is short, lets go of what nobody needs, though nobody produces."""
        if self._looks_at <= self.ledger.now and self.is_short(0, 0):
            self._looks_at = self.ledger.now + SHORT_LOOK_S
            self._drop_unneeded(0, 0, times=10)

    def produce(self, call: Call) -> None:
        """Make the messages that a request asks for, all of them or none."""
        request = call.request
        asked = _fields_of(request)
        name, nodes = asked[QUEUE_AT], asked[REPLICATE_AT]
        if name is None:
            return self.ledger.refuse_field(call, "queue", "is missing")
        if nodes is not None and nodes > self.view.nodes and not (request.early and request.as_job):
            reason = f"replicate: {nodes} nodes were asked for, there are {self.view.nodes}"
            return self.ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)
        state = self._state
        if name in state.topics.by_name:
            return self.to_topic(call, name)
        if self.makes_room and self.is_short(BATCH_MAX, self.limits.memory_bytes_max // NEARLY):
            self._make_room(asked)  # before anything is looked at: it makes records, and queues may go
        queue = state.queues.get(name)
        is_full = queue is None and len(state.queues) >= self.limits.queues_max
        if is_full and not (self.makes_room and self.admin.make_room()):
            return self.ledger.refuse(call, ErrorWord.LIMIT, f"there are {self.limits.queues_max} queues already")
        is_job = bool(asked[AS_JOB_AT])
        items = asked[MESSAGES_AT]
        if items is not None:
            return self._produce_many(call, name, items, queue)
        if asked[ON_DUPLICATE_AT] is not None and asked[ON_DUPLICATE_AT] != REFUSE:
            return self._produce_many(call, name, [ProduceItem(request.data, encoding=request.encoding)], queue)
        if (is_job or asked[MAX_READY_AT] or (queue is not None and queue.paused_in_at)) and (
            not self._takes_in(call, queue)
        ):
            return None
        made = self._message(call, name, queue, asked, None, 0)
        if made is None or (made.key is not None and not self._has_free_key(call, made)):
            return None
        if not self._has_room(call, queue, 1, weight(made)):
            return None
        if queue is None:
            is_transient = _is_of_jobs(asked)
            self.ledger.make_queue(name, is_transient=is_transient)
            if is_transient:
                self.delivery.idle.made(state.queues[name], self.ledger.now)
        else:
            queue.life.used_at = self.ledger.now
        self.ledger.append(made)
        self.ledger.produced(made)
        reply = _Reply(action=_PRODUCE, code=0, queue=name, seq=asked[SEQ_AT], msg_id=made.msg_id)
        if is_job:
            reply.job = self.delivery.handing.job_facts(made)
        if nodes is None and not is_job:  # nearly always
            self.ledger.answer_when_committed(call, reply)
        else:
            self._park_produced(call, reply, made)
        return None

    def _takes_in(self, call: Call, queue: QueueState | None, added: int = 1) -> bool:
        """Whether what few requests ask for, and few queues are set to, lets messages in; refuses the call if not.

        `added`: by so many there are more of them then.
        """
        request, view, ledger = call.request, self.view, self.ledger
        wanted = 1 if request.early else request.replicate or view.voters // 2 + 1
        if request.as_job and wanted > view.heard:
            reason = f"{wanted} nodes are to have it, and {view.heard} were heard lately"
            ledger.refuse(call, ErrorWord.TOO_FEW_NODES, reason)
            return False
        most = request.max_ready
        if most is not None and added > 0 and queue is not None and self._ready_soon(queue, most) >= most:
            reason = f"{most} messages of the queue {queue.name!r} are ready, or more"
            ledger.refuse(call, ErrorWord.TOO_MANY_READY, reason)
            return False
        if queue is not None and queue.paused_in_at:
            ledger.refuse(call, ErrorWord.PAUSED, f"the queue {queue.name!r} takes nothing in: it is paused")
            return False
        return True

    def _ready_soon(self, queue: QueueState, most: int) -> int:
        """How many messages are ready, or will be as soon as they are committed; beyond `most` it does not matter."""
        ready = len(queue.ready)
        if ready >= most or ready + queue.unplaced < most:
            return ready
        return ready + self.ledger.uncommitted_due(queue.name, most - ready)

    def _park_produced(self, call: Call, reply: Reply, made: Message, *, may_go: bool = True) -> None:
        """Answer when it is on as many nodes as were asked for, or on a majority, in the time that was given.

        In which time is asked beside `replicate` alone, or by a job; for a job without any it takes as long as it
        takes. `may_go`: not on so many in time, it is refused, and goes; one that has replaced another stays.
        """
        request, majority = call.request, self.view.voters // 2 + 1
        nodes, wait_s = request.replicate or majority, request.wait
        if request.early and request.as_job:
            nodes = 1
        if request.as_job:
            wait_s = wait_s or 0.0
            if nodes == majority and (not wait_s or majority == 1):  # what every reply waits for
                return self.ledger.answer_when_committed(call, reply)
        elif not wait_s:
            wait_s = None
        if nodes < majority:
            self.own_writes.written(call.client, self._state.trans_id)
        return self.ledger.replicated.answer_when_stored(
            nodes, call, reply, wait_s, made if wait_s is not None and may_go else None
        )

    def _produce_many(self, call: Call, name: str, items: list[ProduceItem], queue: QueueState | None) -> None:
        """All of them or, at the first that can't be, none. `items` of a request without `messages`: that one message.

        `on_duplicate`: where a message of the queue has the key of an item already, "keep" makes no message of that
        item, and "replace" removes the message that was there, in the same entry.
        """
        request, ledger, state = call.request, self.ledger, self._state
        asked = _fields_of(request)
        messages: list[Message] = []
        kept: dict[int, int] = {}
        replaced: list[Message] = []
        keys: set[str] = set()
        size = 0
        for index, item in enumerate(items):
            made = self._message(call, name, queue, asked, item, index)
            if made is None:
                return None
            how = item.on_duplicate or request.on_duplicate
            if how is not None and not self._may_say(call, how, made.key, index):
                return None
            if made.key is not None:
                if made.key in keys:
                    return ledger.refuse_field(call, f"messages[{index}].key", f"{made.key!r} stands there twice")
                keys.add(made.key)
                holder = self._holder(made)
                if holder is not None and how == KEEP and holder.queue == name:
                    kept[index] = holder.msg_id
                    continue
                if holder is not None and how == REPLACE and holder.queue == name:
                    replaced.append(holder)
                    size -= weight(holder)
                elif holder is not None:
                    return self._refuse_key(call, made.key, holder, is_of_all=is_of_all(made))
            size += weight(made)
            messages.append(made)
        added = len(messages) - len(replaced)
        if messages and not self._takes_in(call, queue, added):
            return None
        if not self._has_room(call, queue, added, size):
            return None
        if messages:
            is_transient = queue is None and _is_of_jobs(asked)  # as each message's id reckons with
            ledger.make_queue(name, is_transient=is_transient)
            if kept or replaced:
                self._number(messages, begin=state.trans_id + (1 if replaced else 0))
            ledger.append_together([*([Clear(name, *named(replaced))] if replaced else ()), *messages])
            if is_transient:
                self.delivery.idle.made(state.queues[name], ledger.now)
        state.queues[name].life.used_at = ledger.now
        for made in messages:
            ledger.produced(made)
        return self._answer_many(call, messages, kept, has_replaced=bool(replaced))

    def _number(self, messages: list[Message], begin: int) -> None:
        """Give ids to messages that are made by the records behind number `begin`."""
        for at, made in enumerate(messages, begin + 1):
            made.msg_id = message_id(at, self._state.messages.shard)

    def _may_say(self, call: Call, how: str, key: str | None, index: int) -> bool:
        """Whether a message may be produced with that `on_duplicate`; refuses the call if not."""
        if self.ledger.level < STREAMS_LEVEL:
            reason = f"on_duplicate: it needs feature level {STREAMS_LEVEL}, and the cluster has {self.ledger.level}"
            self.ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)
            return False
        if key is None:
            field = "on_duplicate" if call.request.messages is None else f"messages[{index}].on_duplicate"
            self.ledger.refuse_field(call, field, f"is {how!r}, and there is no key")
            return False
        return True

    def _answer_many(self, call: Call, messages: list[Message], kept: dict[int, int], *, has_replaced: bool) -> None:
        """Answer with the ids of those that were made, and of those that were `kept` (by their places)."""
        request = call.request
        made = iter(messages)
        ids = [kept[at] if at in kept else next(made).msg_id for at in range(len(messages) + len(kept))]
        if request.messages is None:
            is_kept = True if kept else None
            reply: Reply = KeptReply(
                action=_PRODUCE, code=0, queue=request.queue, seq=request.seq, msg_id=ids[0], duplicate=is_kept
            )
            if messages and request.as_job:
                reply.job = self.delivery.handing.job_facts(messages[0])
            if messages and (request.replicate is not None or request.as_job):
                return self._park_produced(call, reply, messages[0], may_go=not has_replaced)
        else:
            reply = Reply(action=_PRODUCE, code=0, queue=request.queue, seq=request.seq, msg_ids=ids)
            if kept:
                reply = KeptReply(
                    action=_PRODUCE, code=0, queue=request.queue, seq=request.seq, msg_ids=ids, duplicates=[*kept]
                )
        if request.replicate is None:
            return self.ledger.answer_when_committed(call, reply)
        if request.replicate < self.view.voters // 2 + 1:
            self.own_writes.written(call.client, self._state.trans_id)
        return self.ledger.replicated.answer_when_stored(request.replicate, call, reply, None)

    def _message(
        self,
        call: Call,
        name: str,
        queue: QueueState | None,
        asked: tuple[Any, ...],
        item: ProduceItem | None,
        index: int,
    ) -> Message | None:
        """Make the message that a request with those fields, or its `index`th item, asks for; None if it was
        refused."""
        raw, delay, ttl = asked[FIRST_AT], asked[FIRST_AT + 1], asked[FIRST_AT + 2]
        retry, priority, key = asked[FIRST_AT + 3], asked[FIRST_AT + 4], asked[FIRST_AT + 5]
        encoding, headers, expire, keep = asked[ENCODING_AT], asked[HEADERS_AT], asked[EXPIRE_AT], asked[KEEP_AT]
        scope = asked[SCOPE_AT]
        if item is not None:
            raw, own_delay, own_ttl, own_retry, own_priority, own_key, encoding, *own_marks = _fields_of(item)
            own_headers, own_expire, own_keep, own_scope = own_marks[:4]
            delay = delay if own_delay is None else own_delay
            ttl = ttl if own_ttl is None else own_ttl
            retry = retry if own_retry is None else own_retry
            priority = priority if own_priority is None else own_priority
            key = key if own_key is None else own_key
            headers = headers if own_headers is None else own_headers
            expire = expire if own_expire is None else own_expire
            keep = keep if own_keep is None else own_keep
            scope = scope if own_scope is None else own_scope
        if raw is _ABSENT:
            self.ledger.refuse_field(call, "data" if item is None else f"messages[{index}].data", "is missing")
            return None
        now = self.ledger.now
        due_at = now if not delay else now + delay if delay < RELATIVE_TIME_LIMIT_S else delay
        if not ttl:
            expires_at = max(due_at, now) + (self.ledger.new_queue if queue is None else queue).default_ttl_s
            if expires_at > TIME_MAX_S:
                expires_at = TIME_MAX_S
        else:
            expires_at = now + ttl if ttl < RELATIVE_TIME_LIMIT_S or asked[AS_JOB_AT] else ttl
            is_in_time = expires_at >= due_at if delay else expires_at >= now - NOW_S
            if not is_in_time or expires_at > TIME_MAX_S:
                self.ledger.refuse(
                    call,
                    ErrorWord.TIME,
                    f"ttl: the message would expire at {expires_at:.3f}, "
                    f"but it is due at {due_at:.3f} and now is {now:.3f}",
                )
                return None
        if retry is None:
            retry = (self.ledger.new_queue if queue is None else queue).default_retry_s
        if scope is not None and key is None:
            self.ledger.refuse_field(call, "scope", "stands beside a key")
            return None
        data = bytes(raw)
        if len(data) > self.limits.data_bytes_max:
            self.ledger.refuse(
                call, ErrorWord.TOO_LARGE, f"data: {len(data)} bytes, and {self.limits.data_bytes_max} are allowed"
            )
            return None
        trans_id = self._state.trans_id + 1 + index
        if queue is None:
            trans_id += self.ledger.records_to_make(name, is_transient=_is_of_jobs(asked))
        msg_id = message_id(trans_id, self._state.messages.shard)
        made = Message(name, msg_id, data, now, due_at, expires_at, retry, priority or 0, key)
        if encoding is not None:
            made.encoding = Encoding.PLAIN
        if headers or expire is not None or keep or scope is not None:
            ttr, asked_delay = asked[TTR_AT], asked[ASKED_DELAY_AT]
            if ttr is not None and asked_delay is None and ttr == told_ttr(retry):  # nearly all jobs of gmq's
                made.marks = GMQ_MARKS
                return made
            made.marks = marks_of(headers, expire, keep=bool(keep) and not retry, is_of_all=scope is not None)
            if ttr is not None or asked_delay is not None:
                made.marks = told_again(made, asked_delay, ttr)
            elif asked[AS_JOB_AT] and scope is None:
                nodes = min(DEFAULT_NODES, self.view.voters)
                made.marks = marks_of_job(made, asked[REPLICATE_AT], nodes, due_at - now if delay else 0.0)
        return made

    def _refuse_key(self, call: Call, key: str, holder: Message, *, is_of_all: bool) -> None:
        """Refuse a key that a message has already. Which one is told to who may look at its queue."""
        may_look = call.principal.rights.may(Right.LOOK, holder.queue)
        who = f"message {holder.msg_id}" if may_look else "a message"
        of = "" if is_of_all else " of the queue"
        reply = refusal(call.request, ErrorWord.DUPLICATE_KEY, f"{who}{of} has the key {key!r}")
        if may_look:
            reply.msg_id = holder.msg_id
            if call.request.as_job:
                reply.job = self.delivery.handing.job_facts(holder)
        self.ledger.answer_when_committed(call, reply)

    def _has_free_key(self, call: Call, made: Message) -> bool:
        """Whether no message has the key of this one; refuses the call if one does."""
        holder = self._holder(made)
        if holder is not None:
            self._refuse_key(call, str(made.key), holder, is_of_all=is_of_all(made))
        return holder is None

    def _holder(self, made: Message) -> Message | None:
        """Find the message that has the key of this one already."""
        assert made.key is not None
        if is_of_all(made):
            return self._state.keys.get(made.key)
        queue = self._state.queues.get(made.queue)
        msg_id = None if queue is None else queue.keys.get(made.key)
        return None if msg_id is None else self._state.messages[msg_id]

    def _has_room(self, call: Call, queue: QueueState | None, count: int, size: int) -> bool:
        """Whether the queue and the node take so much more; refuses the call if not."""
        max_size = self.limits.new_queue.max_size if queue is None else queue.max_size
        if max_size and count > 0 and (0 if queue is None else queue.size) + count > max_size:
            self.ledger.refuse(
                call, ErrorWord.QUEUE_FULL, f"the queue holds {queue.size if queue else 0} of {max_size} messages"
            )
            return False
        if self.is_short(count, size):
            self.ledger.refuse(
                call,
                ErrorWord.LIMIT,
                f"the node's memory for messages is used up ({self.limits.memory_bytes_max} bytes)",
            )
            return False
        return True

    def is_short(self, count: int, size: int) -> bool:
        """Whether there is no memory for so many messages more, of so many bytes."""
        state = self._state
        tails = state.topics.tails
        used = (
            state.data_bytes
            + MESSAGE_OVERHEAD_BYTES * (len(state.messages) + count)
            + size
            + tails.weight
            + tails.closed_weight
        )
        return used > self.limits.memory_bytes_max

    def _make_room(self, asked: tuple[Any, ...]) -> None:
        """Where memory is short, queues nobody needs go, and the oldest messages that are kept though delivered."""
        items = asked[MESSAGES_AT]
        if items is None:
            count, size = 1, len(bytes(asked[FIRST_AT]))
        else:
            count, size = len(items), sum([len(bytes(item.data)) for item in items])
        if not self.is_short(count, size):
            return
        self._drop_unneeded(count, size, count + 1)

    def make_room_for(self, count: int, size: int, new_queues: int) -> None:
        """Let go of what nobody needs where there is no room for so many messages and queues more."""
        if size < self.limits.memory_bytes_max and self.is_short(count, size):
            self._drop_unneeded(count, size, count + 1)
        if new_queues and len(self._state.queues) + new_queues > self.limits.queues_max:
            self.admin.make_room()

    def _drop_unneeded(self, count: int, size: int, times: int) -> None:
        self.admin.make_room()
        for _ in range(times):
            if not self.delivery.handing.drop_kept(KEPT_AT_ONCE) or not self.is_short(count, size):
                return


def _is_of_jobs(asked: tuple[Any, ...]) -> bool:
    """Whether a queue that a request with those fields makes is one that goes when it is empty."""
    return bool(asked[AS_JOB_AT]) or asked[TTR_AT] is not None
