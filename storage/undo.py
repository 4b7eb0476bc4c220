"""What records that are not committed have changed, so that a lost lead takes back those records and nothing else.

A leader applies records as it makes them. Another leader's log may go on without the last of them (Raft drops what
conflicts: Ongaro's dissertation, 3.5), and then the state is to be what it was before them. While `is_on`, each record
notes, before it changes something, what that was: a *step*. Steps of committed records are forgotten, those of dropped
ones taken, the newest first. Places are no part of that: a message that comes back stands where the time says, as in a
follower's state, or in flight.

One request through it: a consume makes a `Deliver`, whose method notes a `_Changed` of its message; the entry is
closed, and its commit forgets the step. Or the entry is cut off the log: `undoing` lifts the message and gives it the
time and the count that it had.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from typing import Any, Final

from mypy_extensions import mypyc_attr

from storage.contents import Contents
from storage.message import Message
from storage.message_ids import produced_by
from storage.queue_state import QueueState
from storage.records import Configure, Place

STEPS_MAX: Final = 10_000
"""So many are undone; a state with more of them is better read again. Behind the last all that changed is put in order
at once, some 15 ms."""

PIECE_STEPS: Final = 1000
"""So many of them in one turn of the loop, some 10 ms."""


@mypyc_attr(acyclic=True)
class _Step:
    """What record `trans_id` has changed, or a part of that."""

    __slots__ = ("trans_id",)

    def __init__(self, trans_id: int) -> None:
        self.trans_id = trans_id

    def undo(self, state: Contents) -> None:
        """Make that as it was, where all that came later is undone; but messages that change are left unplaced."""
        raise NotImplementedError  # abstract: each kind of step says how


@mypyc_attr(acyclic=True)
class _Made(_Step):
    """A message came to a queue whose greatest id was `max_id`."""

    __slots__ = ("max_id", "message")

    def __init__(self, trans_id: int, message: Message, max_id: int) -> None:
        super().__init__(trans_id)
        self.message = message
        self.max_id = max_id

    def undo(self, state: Contents) -> None:
        """Take it away again."""
        message = self.message
        state.leave(message)
        state.messages.pop(message.msg_id)
        state.queues[message.queue].max_id = self.max_id


@mypyc_attr(acyclic=True)
class _Changed(_Step):
    """A message was something else, or there."""

    __slots__ = (
        "deliveries",
        "due_at",
        "expires_at",
        "in_flight",
        "key",
        "last",
        "marks",
        "message",
        "queue",
    )

    def __init__(self, trans_id: int, message: Message) -> None:
        super().__init__(trans_id)
        self.message = message
        self.queue = message.queue
        self.due_at = message.due_at
        self.expires_at = message.expires_at
        self.key = message.key
        self.deliveries = message.deliveries
        self.last = message.last
        self.marks = message.marks
        self.in_flight = message.place == Place.IN_FLIGHT

    def undo(self, state: Contents) -> None:
        """Make it that again."""
        message = self.message
        if state.messages.get(message.msg_id) is None:
            state.messages.add(message.msg_id, message)
        else:
            state.leave(message)
        message.queue = self.queue
        message.due_at = self.due_at
        message.expires_at = self.expires_at
        message.key = self.key
        message.deliveries = self.deliveries
        message.last = self.last
        message.marks = self.marks
        message.place = Place.UNPLACED
        state.enter(state.queues[self.queue], message)


class _Was(_Step):
    """A field of something had another value."""

    __slots__ = ("field", "thing", "value")

    def __init__(self, trans_id: int, thing: Any, field: str, value: Any) -> None:
        super().__init__(trans_id)
        self.thing = thing
        self.field = field
        self.value = value

    def undo(self, state: Contents) -> None:
        """Give it that value again."""
        setattr(self.thing, self.field, self.value)


class _Then(_Step):
    """Something is undone by a call."""

    __slots__ = ("action",)

    def __init__(self, trans_id: int, action: Callable[[], None]) -> None:
        super().__init__(trans_id)
        self.action = action

    def undo(self, state: Contents) -> None:
        """Call it."""
        self.action()


class _QueueMade(_Step):
    """A queue was not there."""

    __slots__ = ("name",)

    def __init__(self, trans_id: int, name: str) -> None:
        super().__init__(trans_id)
        self.name = name

    def undo(self, state: Contents) -> None:
        """Take it away again."""
        assert not state.queues[self.name].size
        del state.queues[self.name]
        state.unname_queue(self.name)


class _QueueChanged(_Step):
    """A queue had other settings, or was there."""

    __slots__ = ("queue", "settings")

    def __init__(self, trans_id: int, queue: QueueState) -> None:
        super().__init__(trans_id)
        self.queue = queue
        self.settings: Configure = queue.settings()

    @property
    def shuts(self) -> bool:
        """Whether to undo it would shut a queue that is open now: what came in meanwhile would have to go out again."""
        return 0.0 < self.settings.paused_in_at != self.queue.paused_in_at

    def undo(self, state: Contents) -> None:
        """Give it those again, and its place."""
        queue = self.queue
        if queue.name not in state.queues:
            state.queues[queue.name] = queue
            state.name_queue(queue.name)
        queue.configure(self.settings)


class Undo:
    """The steps of one state's records behind `since`, while `is_on`: for `made` and `changes`, the state looks."""

    __slots__ = ("_closed", "_open", "_time", "_until", "is_on", "since")

    def __init__(self) -> None:
        self.is_on = False
        self.since = 0
        self._until = 0
        self._time = 0.0
        self._open: list[_Step] = []
        self._closed: deque[tuple[int, float, list[_Step]]] = deque()

    def turn(self, state: Contents, *, is_on: bool) -> None:
        """Note the next records of the state from now on, or don't: what is noted is kept until it is committed.

        What was not noted can't be undone, nor what stands before it: of a follower it is committed.
        """
        if is_on and not self.is_on and self._until != state.trans_id:
            self.since, self._time = state.trans_id, state.time
            self._open = []
            self._closed.clear()
        elif self.is_on and not is_on:
            self._until = state.trans_id
        self.is_on = is_on

    def made(self, trans_id: int, message: Message, max_id: int) -> None:
        """Note that a message is new, in a queue whose greatest id was that."""
        self._open.append(_Made(trans_id, message, max_id))

    def changes(self, trans_id: int, message: Message) -> None:
        """Note that a message is about to change, or to go."""
        self._open.append(_Changed(trans_id, message))

    def was(self, trans_id: int, thing: Any, field: str, value: Any) -> None:
        """Note that a field of something is about to get another value than this."""
        if self.is_on:
            self._open.append(_Was(trans_id, thing, field, value))

    def then(self, trans_id: int, action: Callable[[], None]) -> None:
        """Note that `action` undoes what the record is about to do, or has done."""
        if self.is_on:
            self._open.append(_Then(trans_id, action))

    def queue_made(self, trans_id: int, name: str) -> None:
        """Note that a queue is new."""
        if self.is_on:
            self._open.append(_QueueMade(trans_id, name))

    def queue_changes(self, trans_id: int, queue: QueueState) -> None:
        """Note that a queue is about to get other settings, or to go."""
        if self.is_on:
            self._open.append(_QueueChanged(trans_id, queue))

    def mark(self) -> tuple[bool, int]:
        """Note steps from here on, whether or not any were noted before; see `take_behind` and `keep_behind`."""
        mark = self.is_on, len(self._open)
        self.is_on = True
        return mark

    def take_behind(self, mark: tuple[bool, int]) -> list[_Step]:
        """Give the steps since that mark, the newest first; they are the caller's now."""
        self.is_on, begin = mark
        found = self._open[begin:][::-1]
        del self._open[begin:]
        return found

    def keep_behind(self, mark: tuple[bool, int]) -> None:
        """Let what has changed since that mark stay."""
        self.is_on, begin = mark
        if not self.is_on:
            del self._open[begin:]

    def close(self, trans_id: int, time: float) -> None:
        """Note that the records up to `trans_id` are whole entries of the log, the last of them made at `time`."""
        if self.is_on:
            self._closed.append((trans_id, time, self._open))
            self._open = []

    def forget(self, committed: int) -> None:
        """Forget how to undo the entries up to record `committed`: they can't be dropped any more."""
        closed = self._closed
        while closed and closed[0][0] <= committed:
            self.since, self._time, _ = closed.popleft()

    def drop(self, count: int) -> bool:
        """Let go of the oldest, some `count` of them; whether there were any."""
        had_some = bool(self._closed)
        while self._closed and count > 0:
            count -= len(self._closed.popleft()[2]) + 1
        return had_some

    def take(self, after: int, trans_id: int) -> tuple[list[_Step], float] | None:
        """Give the steps behind record `after`, where an entry ends, up to `trans_id`, the last; and the time of what
        stays.

        The newest is first; they are the caller's now. None: they are not all known, too many, or not enough.
        """
        assert after <= trans_id
        if after < self.since or not (self.is_on or self._until == trans_id):
            return None
        beyond = [self._open, *[steps for last, _, steps in self._closed if last > after]]
        if sum([len(steps) for steps in beyond]) > STEPS_MAX:
            return None
        for steps in beyond:
            for step in steps:
                if isinstance(step, _QueueChanged) and step.trans_id > after and step.shuts:
                    return None
        found = self._open[::-1]
        self._open = []
        while self._closed and self._closed[-1][0] > after:
            _, time, steps = self._closed.pop()
            stay = [step for step in steps if step.trans_id <= after]
            found += steps[len(stay) :][::-1]
            if after > (self._closed[-1][0] if self._closed else self.since):  # some of its records stay
                self._closed.append((after, time, stay))
        self._until = after
        return found, self._closed[-1][1] if self._closed else self._time


def undoing(state: Contents, after: int, steps: list[_Step], time: float, piece: int) -> Generator[None, None, None]:
    """Make a state what it was behind record `after`, whose entry was made at `time`, by taking these steps back.

    It yields behind so many of them, or places given; nothing else may be asked of the state meanwhile.
    """
    state.time = time
    touched: dict[int, _Changed] = {}
    for at, step in enumerate(steps, 1):
        step.undo(state)
        if isinstance(step, _Changed):
            touched[step.message.msg_id] = step
        if not at % piece:
            yield
    state.cut(after)
    placing = _in_order(state, touched)
    held: list[int] = []
    for begin in range(0, len(placing), piece):
        if begin:
            yield
        some = placing[begin : begin + piece]
        held += _placed_again(state, some, state.time)
        state.stretches.revive([one.message.msg_id for one in some])
    for msg_id in reversed(held):  # they were kept before all others, though they were delivered
        state.kept[msg_id] = None
        state.kept.move_to_end(msg_id, last=False)


def take_back(state: Contents, after: int, steps: list[_Step], now: float, committed: int) -> None:
    """Make a leader's state what it was behind record `after`, of which it has made others since in one turn.

    None of those has left for the log. Messages stand where they do at `now`, but those that were produced behind
    record `committed`: nowhere.
    """
    touched: dict[int, _Changed] = {}
    for step in steps:
        step.undo(state)
        if isinstance(step, _Changed):
            touched[step.message.msg_id] = step
    state.trans_id = after
    there = [one for one in _in_order(state, touched) if produced_by(one.message.msg_id) <= committed]
    held = _placed_again(state, there, now)
    if held:  # each was kept since a record of its own: in their order
        every = sorted([*state.kept, *held], key=lambda msg_id: state.messages[msg_id].last)
        state.kept = OrderedDict.fromkeys(every)


def _in_order(state: Contents, touched: dict[int, _Changed]) -> list[_Changed]:
    """Give those that are there in the order in which they were in their queues: in that they go there at once."""
    there = [one for msg_id, one in touched.items() if state.messages.get(msg_id) is one.message]
    return sorted(there, key=lambda one: (one.due_at, one.message.msg_id))


def _placed_again(state: Contents, some: list[_Changed], now: float) -> list[int]:
    """Place messages that came back; gives those that are in flight, or would be gone."""
    held: list[int] = []
    for one in some:
        message = one.message
        if not one.in_flight:
            state.queues[message.queue].place(message, now)
            continue
        state.queues[message.queue].place_in_flight(message)
        if not message.retry_s:
            held.append(message.msg_id)
    return held
