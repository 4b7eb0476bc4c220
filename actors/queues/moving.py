"""Messages that somebody moves to another queue: dead letters back to where they came from. A machine.

What is in somebody's hands stays there, and so does what would not be sound in the other queue: its key stands there
already, or it is full. Both are counted, and the first says why.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

from actors.messages.call import Call
from actors.messages.rights import not_allowed
from actors.queues.delivery import Delivery
from actors.queues.handing_out import expiry_of
from actors.queues.message_replies import READY_KEY, key_of, told
from actors.runtime.work import Steps
from actors.shard.machine import Machine, ShardContext
from quorate.actions import Right
from quorate.protocol import TIME_MAX_S, Action, ErrorWord, done
from quorate.queue_replies import MoveReply
from storage.live_messages import LiveMessages
from storage.message import Message, deliveries_in_all, is_of_all
from storage.message_ids import named
from storage.queue_state import ALL_READY, QueueState
from storage.records import DEAD, LASTS, STREAMS_LEVEL, Move, Place
from storage.split_dict import SplitDict

MOVE_SCAN: Final = 5000
"""Messages that are looked at for the `count` that may move: some 5 ms."""

MOVABLE: Final = (*ALL_READY, Place.DELAYED, Place.HELD)


class _Target:
    """A queue that messages are to go to, with those that go, and the room and the keys that are left there."""

    def __init__(self, name: str, queue: QueueState | None, max_size: int) -> None:
        self.name = name
        self.is_new = queue is None
        self.messages: list[Message] = []
        self._taken: set[str] = set()
        self._keys = SplitDict[int]() if queue is None else queue.keys
        self._room = max_size - (0 if queue is None else queue.size) if max_size else None

    def why_not(self, message: Message) -> str | None:
        """Why a message can't come here; None if it can."""
        if self._room is not None and len(self.messages) >= self._room:
            return f"{self.name!r} is full"
        key = _own_key(message)
        if key is not None and (key in self._keys or key in self._taken):
            return f"a message of {self.name!r} has the key {key!r}"
        return None

    def add(self, message: Message) -> None:
        self.messages.append(message)
        key = _own_key(message)
        if key is not None:
            self._taken.add(key)


def _own_key(message: Message) -> str | None:
    """Give the key that it has in its queue; one that is unique among all goes along anywhere."""
    return None if is_of_all(message) else message.key


class _Moves:
    """A move that is under way: so many messages are `done` and `stayed`, the first of these for the reason `why`.

    Of one of the first `count`, whichever they are, so many were `looked` at, the last of them stood at `seen`.
    `is_over`: no more are.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.done = self.stayed = self.looked = 0
        self.why: str | None = None
        self.seen = None if call.request.after is None else key_of(call.request.after)
        self.is_over = False


class _Looked:
    """The first messages of the queue, behind those that were seen, that nobody has in hand."""

    def __init__(self, moves: _Moves, origin: QueueState, live: LiveMessages) -> None:
        self._moves = moves
        self._origin = origin
        self._live = live

    def __iter__(self) -> Iterator[Message]:
        """Those that are ready, and then those that wait. Whoever has enough asks for no more."""
        moves, origin, begun = self._moves, self._origin, self._moves.seen
        orders: list[Iterable[Any]] = []
        if begun is None or len(begun) == READY_KEY:
            orders = [origin.ready if begun is None else origin.ready.behind(begun), origin.waiting]
        else:
            orders = [origin.waiting.behind(begun)]
        for key in chain(*orders):
            if moves.looked == MOVE_SCAN:
                moves.is_over = True
                return
            moves.looked += 1
            moves.seen = key
            message = self._live[key[-1]]
            is_seen = len(key) != READY_KEY and message.place == Place.READY_EXPIRING  # it stands in both orders
            if message.place in MOVABLE and not is_seen:
                yield message
        moves.seen = None
        moves.is_over = True


class Moving(Machine):
    """Does it for one shard, which has both queues."""

    def __init__(self, context: ShardContext, delivery: Delivery) -> None:
        self._context = context
        self._ledger = context.ledger
        self._delivery = delivery
        self._jobs = context.jobs

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.MOVE: self.move}

    def move(self, call: Call) -> None:
        """Move those that the request names, or the first `count` that may be."""
        request, ledger = call.request, self._ledger
        state = ledger.state
        if request.queue is None:
            return ledger.refuse_field(call, "queue", "is missing")
        if request.to in state.topics.by_name:
            return ledger.refuse(call, ErrorWord.IS_A_TOPIC, f"{request.to!r} is a topic")
        if request.to == request.queue:
            return ledger.refuse_field(call, "to", "is the queue itself")
        if request.count is None and request.msg_id is None and request.msg_ids is None:
            return ledger.refuse_field(call, "msg_ids", "is missing, and so is count")
        if request.queue not in state.queues:
            return ledger.refuse(call, ErrorWord.NO_SUCH_QUEUE, f"there is no queue {request.queue!r}")
        if request.to is not None and request.to not in state.queues and not request.create:
            reason = f"there is no queue {request.to!r}, and nothing says to create it"
            return ledger.refuse(call, ErrorWord.NO_SUCH_QUEUE, reason)
        if request.after is not None and key_of(request.after) is None:
            return ledger.refuse_field(call, "after", "is not what a reply to move called next")
        if request.msg_id is None and request.msg_ids is None:
            return self._jobs.begin(call, self._move_first(_Moves(call), request.queue))
        ids = [*([] if request.msg_id is None else [request.msg_id]), *(request.msg_ids or ())]
        return self._jobs.begin(call, self._move_named(_Moves(call), request.queue, list(dict.fromkeys(ids))))

    def _move_first(self, moves: _Moves, name: str) -> Steps:
        """Move the first `count` that nobody has in hand, whichever they are."""
        state, count = self._ledger.state, moves.call.request.count
        while not moves.is_over:
            origin = state.queues.get(name)
            if origin is None:  # it went between two pieces
                moves.seen = None
                break
            self._move(moves, islice(_Looked(moves, origin, state.messages), self._jobs.piece))
            if moves.done == count:
                break
            if not moves.is_over:
                yield
        self._moved(moves, None if moves.seen is None else told(moves.seen))

    def _move_named(self, moves: _Moves, name: str, ids: list[int]) -> Steps:
        """Move those that are in the queue, and in nobody's hands."""
        live, piece = self._ledger.state.messages, self._jobs.piece
        for at in range(0, len(ids), piece):
            if at:
                yield
            found = [live.get(msg_id) for msg_id in ids[at : at + piece]]
            self._move(moves, [one for one in found if one is not None and one.queue == name and one.place in MOVABLE])
        self._moved(moves, None)

    def _move(self, moves: _Moves, messages: Iterable[Message]) -> None:
        """Move these, until there are so many as were asked for."""
        call, count = moves.call, moves.call.request.count
        targets: dict[str, _Target | str] = {}
        for message in messages if moves.done != count else ():
            target = self._target(call, message, targets)
            fault = target if isinstance(target, str) else target.why_not(message)
            if fault is not None:
                moves.stayed += 1
                moves.why = moves.why or f"message {message.msg_id}: {fault}"
            elif isinstance(target, _Target):
                target.add(message)
                moves.done += 1
                if moves.done == count:
                    break
        for one in targets.values():
            if isinstance(one, _Target) and one.messages:
                self._append(call.request.queue or "", one, is_back=call.request.to is None)

    def _moved(self, moves: _Moves, position: str | None) -> None:
        reply = done(moves.call.request, MoveReply, moved=moves.done, stayed=moves.stayed)
        reply.reason, reply.next = moves.why, position
        self._ledger.answer_when_committed(moves.call, reply)

    def _target(self, call: Call, message: Message, targets: dict[str, _Target | str]) -> _Target | str:
        """Where the message is to go, or why nowhere."""
        request, queues = call.request, self._ledger.state.queues
        name = request.to
        if name is None:
            dead: Any = (message.marks or {}).get(DEAD)
            if dead is None:
                return "it is no dead letter, so `to` has to say where it goes"
            name = str(dead["queue"])
        found = targets.get(name)
        if found is None:
            found = targets[name] = self._judged(call, name, queues.get(name), len(queues) + _new(targets))
        return found

    def _judged(self, call: Call, name: str, queue: QueueState | None, there: int) -> _Target | str:
        if not call.principal.rights.may(Right.PRODUCE, name):
            return str(not_allowed(call.request, Right.PRODUCE).reason)
        if name == call.request.queue:
            return "it came from this queue"
        if queue is None and not call.request.create:
            return f"there is no queue {name!r}, and nothing says to create it"
        if queue is None and there >= self._context.limits.queues_max:
            return f"there are {self._context.limits.queues_max} queues already"
        return _Target(name, queue, (self._ledger.new_queue if queue is None else queue).max_size)

    def _append(self, origin: str, target: _Target, *, is_back: bool) -> None:
        """Move those that go there; `is_back`: they come from there, and live as long again as they were to."""
        ledger, now = self._ledger, self._ledger.now
        ledger.make_queue(target.name)
        queue_ttl_s = ledger.state.queues.get(target.name, ledger.new_queue).default_ttl_s
        due_ats = [max(now, message.due_at) for message in target.messages]
        expires_ats = [
            expiry_of(message, min(due_at + _ttl_s(message, queue_ttl_s, is_back=is_back), TIME_MAX_S))
            for message, due_at in zip(target.messages, due_ats, strict=True)
        ]
        ids, previous = named(target.messages)
        totals = [deliveries_in_all(one) for one in target.messages] if ledger.level >= STREAMS_LEVEL else None
        ledger.append(Move(origin, target.name, ids, previous, due_ats, expires_ats, totals))
        for message in target.messages:
            self._delivery.place(message)
        if len(self._delivery.key_lines):
            self._delivery.on_keyed(target.messages)


def _ttl_s(message: Message, queue_ttl_s: float, *, is_back: bool) -> float:
    """For how long a message that is moved is to live (s): as its queue says, or as it was to before it was buried."""
    known: Any = (message.marks or {}).get(LASTS) if is_back else None
    return queue_ttl_s if known is None else float(known)


def _new(targets: dict[str, _Target | str]) -> int:
    """How many of them would be made."""
    count = 0
    for target in targets.values():
        if isinstance(target, _Target) and target.is_new:
            count += 1
    return count
