"""What is done to queues as a whole: configure, clear, remove. A machine, like the broker that it is a part of.

Clearing goes in pieces of `CLEAR_CHUNK` messages, so that a large queue holds nobody up; a small one is cleared before
the next request is looked at. It is about the messages that were there when it was asked.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, TypeVar

from msgspec import UnsetType

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.runtime.work import Steps
from actors.shard.machine import Machine, ShardContext
from quorate.protocol import Action, ErrorWord, Reply, Request, done
from quorate.queue_replies import SettingsReply
from storage.message import Message
from storage.message_ids import message_id, named
from storage.queue_state import QueueState
from storage.records import STREAMS_LEVEL, Clear, Configure, Remove

ValueT = TypeVar("ValueT")

CLEAR_CHUNK: Final = 2000
"""Messages that one piece of a clear removes: some 5 ms."""

IDLE_MAX: Final = 100
"""So many queues are looked at in one turn, whether somebody uses them: most of those go."""

SCAN_MAX: Final = 20_000
"""Messages that one piece looks at in each order, where most have come since it was asked for: some 2 ms each."""


class _Clearing:
    """A clear or remove that is under way: of the messages that were in the queue after record `begun`.

    `call` None: it goes since nobody uses it, as it did when it had these `settings`.

    Nothing is gathered beforehand: a queue of millions would take as long as an election. When the first that are
    looked at have all come since, the queue holds little else: its ids are noted then, in `rest`, and looked at in
    pieces. That is all of them: what was there before can move within the queue, but not come into it.
    """

    def __init__(self, call: Call | None, queue: str, begun: int, before: int, settings: Configure | None) -> None:
        self.call = call
        self.queue = queue
        self.settings = settings
        self.removed = 0
        self.rest: list[int] | None = None
        self._begun = begun
        self._before = before

    def is_meant(self, message: Message) -> bool:
        """Whether it goes. A message that was moved here since, whose dead letters these are, was not there."""
        return (
            message.msg_id < self._before
            and message.queue == self.queue
            and (message.deliveries > 0 or message.last <= self._begun)
        )


class QueueAdmin(Machine):
    """Does it for one shard."""

    def __init__(self, context: ShardContext, delivery: Delivery) -> None:
        self._context = context
        self._ledger = context.ledger
        self._delivery = delivery
        self._state = context.ledger.state

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.CONFIGURE: self.configure, Action.CLEAR: self.clear, Action.REMOVE: self.clear}

    @property
    def next_event_at(self) -> float:
        """When a queue may go that nobody uses."""
        return self._delivery.idle.next_event_at

    def pass_time(self) -> None:
        """Remove the queues that nobody has used for too long."""
        if self._delivery.idle.next_event_at <= self._ledger.now:
            for name in self._delivery.idle.due(self._ledger.now, IDLE_MAX):
                self._context.jobs.add(None, self._clear(self._clearing(None, name)))

    def configure(self, call: Call) -> None:
        """Change a queue's settings, and make it if it is not there."""
        request = call.request
        if request.queue is None:
            return self._ledger.refuse_field(call, "queue", "is missing")
        topics = self._state.topics.by_name
        if topics and (request.queue in topics or request.dead_letter in topics):
            name = request.queue if request.queue in topics else request.dead_letter
            return self._ledger.refuse(call, ErrorWord.IS_A_TOPIC, f"{name!r} is a topic")
        if request.dead_letter == request.queue:
            return self._ledger.refuse_field(call, "dead_letter", "is the queue itself")
        if request.system and self._ledger.level < STREAMS_LEVEL:
            reason = f"system: it needs feature level {STREAMS_LEVEL}, and the cluster has {self._ledger.level}"
            return self._ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)
        queue = self._state.queues.get(request.queue)
        if queue is None and len(self._state.queues) >= self._context.limits.queues_max:
            reason = f"there are {self._context.limits.queues_max} queues already"
            return self._ledger.refuse(call, ErrorWord.LIMIT, reason)
        wanted = (queue or QueueState(request.queue, self._ledger.new_queue)).settings()
        takes_in, gives_out = _paused(request.paused, wanted)
        asked = Configure(
            request.queue,
            _or(request.max_size, wanted.max_size),
            _or(request.default_ttl, wanted.default_ttl_s) or self._ledger.new_queue.default_ttl_s,
            _or(request.default_retry, wanted.default_retry_s),
            _or(request.max_deliveries, wanted.max_deliveries),
            wanted.dead_letter if isinstance(request.dead_letter, UnsetType) else request.dead_letter or None,
            not gives_out,
            _or(request.expires_after, wanted.expires_after_s),
            0.0 if takes_in else wanted.paused_in_at or self._ledger.now,
            (wanted.is_transient or (queue is None and bool(request.as_job))) and _only_pauses(request),
            self._has_own_ttl(request, wanted),
            _or(request.system, wanted.is_system),
        )
        if asked != wanted or queue is None:
            self._ledger.append(asked)
            queue = self._state.queues[request.queue]
            self._delivery.alarms.set(queue.name, self._ledger.now)  # what was held back comes in
            self._delivery.serve(queue)
        queue.life.used_at = self._ledger.now
        self._delivery.idle.configured(queue, self._ledger.now)
        self._ledger.answer_when_committed(
            call,
            done(
                request,
                SettingsReply,
                max_size=asked.max_size,
                default_ttl=asked.default_ttl_s,
                default_retry=asked.default_retry_s,
                max_deliveries=asked.max_deliveries,
                dead_letter=asked.dead_letter,
                paused=paused_word(queue),
                expires_after=asked.expires_after_s,
                system=asked.is_system,
            ),
        )
        return None

    def _has_own_ttl(self, request: Request, wanted: Configure) -> bool | None:
        """Whether the queue's default time to live is its own: it is set here, or 0 takes that away."""
        if self._ledger.level < STREAMS_LEVEL or request.default_ttl is None:
            return wanted.has_own_ttl
        return request.default_ttl > 0

    def clear(self, call: Call) -> None:
        """Clear, or remove: that is clear and then drop the queue."""
        request = call.request
        if request.queue is None:
            return self._ledger.refuse_field(call, "queue", "is missing")
        queue = self._state.queues.get(request.queue)
        if queue is None:
            return self._ledger.refuse(call, ErrorWord.NO_SUCH_QUEUE, f"there is no queue {request.queue!r}")
        self._begin(call, request.queue)
        return None

    def make_room(self) -> bool:
        """Memory is short: queues that are empty, and would go soon, go now; whether there were any."""
        names = self._delivery.idle.short(self._ledger.now, IDLE_MAX)
        for name in names:
            self._begin(None, name)
        return bool(names)

    def _clearing(self, call: Call | None, name: str) -> _Clearing:
        state = self._state
        queue = state.queues.get(name)
        before = message_id(state.trans_id + 1, state.messages.shard)
        return _Clearing(call, name, state.trans_id, before, None if queue is None else queue.settings())

    def _begin(self, call: Call | None, name: str) -> None:
        # a small queue is cleared before the next request is looked at
        self._context.jobs.begin(call, self._clear(self._clearing(call, name)))

    def _is_used(self, clearing: _Clearing) -> bool:
        """Whether a queue that was to go, since nobody used it, is used by now: then the rest of it stays."""
        queue = self._state.queues.get(clearing.queue)
        if queue is None or not (
            queue.in_flight or queue.name in self._delivery.lines or queue.settings() != clearing.settings
        ):
            return False
        self._delivery.idle.configured(queue, self._ledger.now)
        return True

    def _next(self, clearing: _Clearing) -> list[Message]:
        """Take some of the messages that are to go. None of them: `rest` says whether more is to be looked at."""
        queue, rest = self._state.queues.get(clearing.queue), clearing.rest
        if queue is None:
            clearing.rest = []
            return []
        if rest is None:
            orders = (queue.ready, queue.waiting, queue.in_hand)
            for keys in orders:
                ids = [key[-1] for key in islice(keys.unordered(), SCAN_MAX)]
                found = self._meant(clearing, ids)
                if found:
                    return found
            rest = clearing.rest = [key[-1] for keys in orders for key in keys.unordered()]
            if queue.unplaced:
                rest += self._ledger.uncommitted_ids
        return self._meant(clearing, [rest.pop() for _ in range(min(CLEAR_CHUNK, len(rest)))])

    def _meant(self, clearing: _Clearing, ids: list[int]) -> list[Message]:
        """Find the first of those messages that are to go."""
        live = self._state.messages
        found: list[Message] = []
        for msg_id in dict.fromkeys(ids):
            message = live.get(msg_id)
            if message is not None and clearing.is_meant(message):
                found.append(message)
                if len(found) == CLEAR_CHUNK:
                    break
        return found

    def _clear(self, clearing: _Clearing) -> Steps:
        """Remove its messages, answer, and drop the queue if that was asked."""
        while clearing.rest is None or clearing.rest:
            if clearing.call is None and self._is_used(clearing):
                return
            messages = self._next(clearing)
            if messages:
                clearing.removed += len(messages)
                self._ledger.append(Clear(clearing.queue, *named(messages)))
            queue = self._state.queues.get(clearing.queue)
            left = max(0 if queue is None else queue.size, len(clearing.rest or ()))
            if left > CLEAR_CHUNK or len(messages) == CLEAR_CHUNK:
                yield
        call = clearing.call
        queue = self._state.queues.get(clearing.queue)
        if (call is None or call.request.action == Action.REMOVE) and queue is not None:
            if queue.size:  # produced since: they are a new queue's, with nothing of the old one's settings
                self._ledger.append(QueueState(clearing.queue, self._ledger.new_queue).settings())
            else:
                self._ledger.append(Remove(clearing.queue))
                self._delivery.forget_queue(clearing.queue)
        if call is not None:
            self._ledger.answer_when_committed(call, done(call.request, Reply, count=clearing.removed))


def paused_word(queue: QueueState) -> bool | str:
    """How replies say what of a queue is paused: true, that nothing is given out, "in", "all", or false."""
    if not queue.paused_in_at:
        return queue.paused
    return "all" if queue.paused else "in"


PAUSES: Final[dict[bool | str, tuple[bool, bool]]] = {
    True: (True, False),
    "out": (True, False),
    "in": (False, True),
    "all": (False, False),
    False: (True, True),
    "none": (True, True),
}
"""Whether the queue takes something in, and gives something out."""


def _paused(asked: bool | str | None, held: Configure) -> tuple[bool, bool]:
    """Say what holds from here on. True and false, which an older client says, are about giving out alone."""
    takes_in = not held.paused_in_at
    if asked is None:
        return takes_in, not held.paused
    if isinstance(asked, bool):
        return (takes_in, False) if asked else PAUSES[False]
    return PAUSES[asked]


def _only_pauses(request: Request) -> bool:
    """Whether nothing else is set: a queue that is paused counts as nobody's still."""
    others = (request.max_size, request.default_ttl, request.default_retry, request.max_deliveries)
    return all(one is None for one in (*others, request.expires_after, request.system)) and isinstance(
        request.dead_letter, UnsetType
    )


def _or(asked: ValueT | None, held: ValueT) -> ValueT:
    return held if asked is None else asked
