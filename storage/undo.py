"""What records that are not committed have changed, so that a lost lead takes back those records and nothing else.

A leader applies records as it makes them. Another leader's log may go on without the last of them (Raft drops what
conflicts: Ongaro's dissertation, 3.5), and then the state is to be what it was before them. While `is_on`, each record
notes, before it changes something, what that was: a *step*. Steps of committed records are forgotten, those of dropped
ones taken, the newest first. Places are no part of that: a message that comes back stands where the time says, as in a
follower's state, or in flight.

One request through it: a consume makes a `Deliver`, whose method notes a `_Changed` of its message; the entry is
closed, and its commit forgets the step. Or the entry is cut off the log: `undo_to` lifts the message and gives it the
time and the count that it had.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from storage.belonging import enter, leave
from storage.message import Message
from storage.queue_state import QueueState
from storage.records import Configure, Members, Place, ReaderPosition
from storage.tenures import Tenure, Tenures

if TYPE_CHECKING:
    from storage.state import ShardState

STEPS_MAX: Final = 5000
"""So many are undone in one turn of the loop, some 15 ms; a state with more of them is better read again."""


@mypyc_attr(acyclic=True)
class _Step:
    """What record `trans_id` has changed, or a part of that."""

    __slots__ = ("trans_id",)

    def __init__(self, trans_id: int) -> None:
        self.trans_id = trans_id

    def undo(self, state: "ShardState") -> None:
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

    def undo(self, state: "ShardState") -> None:
        """It is gone."""
        message = self.message
        leave(state, message)
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

    def undo(self, state: "ShardState") -> None:
        """It is that again."""
        message = self.message
        if state.messages.get(message.msg_id) is None:
            state.messages.add(message.msg_id, message)
        else:
            leave(state, message)
        message.queue = self.queue
        message.due_at = self.due_at
        message.expires_at = self.expires_at
        message.key = self.key
        message.deliveries = self.deliveries
        message.last = self.last
        message.marks = self.marks
        message.place = Place.UNPLACED
        enter(state, state.queues[self.queue], message)


class _Greatest(_Step):
    """A queue's greatest id was another."""

    __slots__ = ("max_id", "queue")

    def __init__(self, trans_id: int, queue: QueueState) -> None:
        super().__init__(trans_id)
        self.queue = queue
        self.max_id = queue.max_id

    def undo(self, state: "ShardState") -> None:
        """It is that again."""
        self.queue.max_id = self.max_id


class _QueueMade(_Step):
    """A queue was not there."""

    __slots__ = ("name",)

    def __init__(self, trans_id: int, name: str) -> None:
        super().__init__(trans_id)
        self.name = name

    def undo(self, state: "ShardState") -> None:
        """It is gone."""
        assert not state.queues[self.name].size
        del state.queues[self.name]
        state.names.remove(self.name)
        state.buckets.discard(self.name)


class _QueueChanged(_Step):
    """A queue had other settings, or was there."""

    __slots__ = ("queue", "settings")

    def __init__(self, trans_id: int, queue: QueueState) -> None:
        super().__init__(trans_id)
        self.queue = queue
        self.settings: Configure = queue.settings()

    def undo(self, state: "ShardState") -> None:
        """It has those, and is there."""
        queue = self.queue
        if queue.name not in state.queues:
            state.queues[queue.name] = queue
            state.names.add(queue.name)
            state.buckets.add(queue.name)
        queue.configure(self.settings)


class _FactsChanged(_Step):
    """What the state knows beside messages and queues was something else."""

    __slots__ = ("led_by", "members", "readers", "tenures")

    def __init__(self, trans_id: int, state: "ShardState") -> None:
        super().__init__(trans_id)
        self.members: Members | None = state.members
        self.readers: dict[str, ReaderPosition] = state.readers
        self.tenures: list[Tenure] = [*state.tenures.rows]
        self.led_by = state.tenures.led_by

    def undo(self, state: "ShardState") -> None:
        """It is that again."""
        state.members = self.members
        state.readers = self.readers
        state.tenures = Tenures(self.tenures)
        state.tenures.led_by = self.led_by


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

    def turn(self, state: "ShardState", *, is_on: bool) -> None:
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
        """A message is new, in a queue whose greatest id was that."""
        self._open.append(_Made(trans_id, message, max_id))

    def changes(self, trans_id: int, message: Message) -> None:
        """A message is about to change, or to go."""
        self._open.append(_Changed(trans_id, message))

    def raises(self, trans_id: int, queue: QueueState) -> None:
        """A queue's greatest id is about to become another."""
        if self.is_on:
            self._open.append(_Greatest(trans_id, queue))

    def queue_made(self, trans_id: int, name: str) -> None:
        """A queue is new."""
        if self.is_on:
            self._open.append(_QueueMade(trans_id, name))

    def queue_changes(self, trans_id: int, queue: QueueState) -> None:
        """A queue is about to get other settings, or to go."""
        if self.is_on:
            self._open.append(_QueueChanged(trans_id, queue))

    def facts_change(self, trans_id: int, state: "ShardState") -> None:
        """Something else is about to change."""
        if self.is_on:
            self._open.append(_FactsChanged(trans_id, state))

    def close(self, trans_id: int, time: float) -> None:
        """The records up to `trans_id` are whole entries of the log, the last of them made at `time`."""
        if self.is_on:
            self._closed.append((trans_id, time, self._open))
            self._open = []

    def forget(self, committed: int) -> None:
        """The entries up to record `committed` can't be dropped any more."""
        closed = self._closed
        while closed and closed[0][0] <= committed:
            self.since, self._time, _ = closed.popleft()

    def take(self, after: int, trans_id: int) -> tuple[list[_Step], float] | None:
        """The steps behind record `after`, where an entry ends, up to `trans_id`, the last; and the time of what stays.

        The newest is first; they are the caller's now. None: they are not all known, or too many.
        """
        if after < self.since or not (self.is_on or self._until == trans_id):
            return None
        if len(self._open) + sum([len(steps) for last, _, steps in self._closed if last > after]) > STEPS_MAX:
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


def undo_to(state: "ShardState", after: int) -> bool:
    """Make the state what it was behind record `after`, the end of an entry. False: it can't be, and is as it was."""
    if after == state.trans_id:
        return True
    taken = state.undo.take(after, state.trans_id)
    if taken is None:
        return False
    steps, state.time = taken
    touched: dict[int, _Changed] = {}
    for step in steps:
        step.undo(state)
        if isinstance(step, _Changed):
            touched[step.message.msg_id] = step
    state.trans_id = after
    there = [one for msg_id, one in touched.items() if state.messages.get(msg_id) is one.message]
    there.sort(key=_time)
    held: list[int] = []
    for one in there:
        message = one.message
        if not one.in_flight:
            state.queues[message.queue].place(message, state.time)
            continue
        state.queues[message.queue].place_in_flight(message)
        if not message.retry_s:  # or it would be gone
            held.append(message.msg_id)
    for msg_id in reversed(held):
        state.kept[msg_id] = None
        state.kept.move_to_end(msg_id, last=False)
    state.stretches.cut(after, list(touched))
    return True


def _time(step: _Changed) -> tuple[float, int]:
    """In which order they were in their queues: in that they go there at once."""
    return step.due_at, step.message.msg_id
