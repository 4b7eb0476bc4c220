"""A shard's state as its log describes it: live messages by id, and the queues.

`apply` is the one way a record changes the state: the leader applies its own records as it makes them, recovery
applies the log's, followers and the pipeline apply what they are sent. Rules: a record about a message
that is not live changes nothing (it was trimmed after the message was gone); applying the records from any kept
point on to a state that already holds them ends in the same state.

While `loading`, messages keep their place mark but stand in no index; `finish_loading` builds all indexes at once.
A message that was produced, released or buried stays unplaced until the caller places it: the leader places a
produced one when its record is committed.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import Any, Final, cast

from msgspec.structs import astuple
from sortedcontainers import SortedList

from storage.contents import Contents
from storage.entry import Entry
from storage.facts import Facts
from storage.kinds import KINDS, Kind, messages_of
from storage.live_messages import LiveMessages
from storage.message import Made, Message, is_kept, is_of_all, marks_with, message_of, weight
from storage.name_buckets import NameBuckets
from storage.queue_state import QueueState
from storage.records import (
    BEFORE,
    CONSUMER,
    DEAD,
    EXPIRE,
    LASTS,
    NACKED,
    NACKS,
    TIME_MAX_S,
    Bury,
    Configure,
    Confirm,
    Deliver,
    Extend,
    Move,
    Moving,
    Place,
    Produce,
    Record,
    Release,
    Removal,
    Remove,
    Withhold,
)
from storage.stretches import STRETCH_RECORDS
from storage.topics import Topics
from storage.undo import PIECE_STEPS, Undo, undoing

MESSAGES_UNTIL_REST: Final = 2000

_Deliver: Final = Deliver
_Confirm: Final = Confirm
_UNPLACED_BY: Final = frozenset(kind.record for kind in KINDS if kind.unplaces)
_fields_of: Final = astuple
assert Deliver.__struct_fields__ == ("queue", "msg_ids", "previous", "due_ats", "deliveries", "consumer")


class ShardState(Contents):
    """The live messages, queues and topics of one shard, and the `facts` about it. `undo` takes back what is not
    committed."""

    def __init__(self, shard: int = 0, stretch_records: int = STRETCH_RECORDS) -> None:
        super().__init__(shard, stretch_records)
        self.facts = Facts()
        self.topics = Topics(shard)
        self.undo = Undo()

    def apply(self, trans_id: int, record: Record) -> None:
        """Let record `trans_id`, the next one, change the state."""
        self.trans_id = trans_id
        _APPLY[type(record)](self, trans_id, record)

    def apply_entry(self, entry: Entry) -> None:
        """Apply an entry's records, the next ones."""
        trans_id = entry.first_trans_id
        for record in entry.records:
            if type(record) is Produce:  # as `apply` does, but at once: a restart brings a million of them
                self.trans_id = trans_id
                self._produce(trans_id, record)
            else:
                self.apply(trans_id, record)
            trans_id += 1
        self.time = entry.time
        self.stretches.note(entry.vote_id, entry.last_trans_id, entry.records)

    def apply_next(self, record: Made) -> None:
        """As `apply`, for the record that the leader makes next; a message is the record that produces it."""
        self.trans_id = trans_id = self.trans_id + 1
        if isinstance(record, Message):
            self._take_in(record)
            return
        kind: Any = type(record)
        if kind is _Deliver:
            self._deliver(trans_id, cast("Deliver", record))
        elif kind is _Confirm:
            self._remove_messages(trans_id, cast("Confirm", record))
        else:
            _APPLY[kind](self, trans_id, record)

    def follow(self, trans_id: int, record: Record, time: float) -> None:
        """As `apply`, for a committed record of another leader, made at `time`: its messages are placed at once."""
        self.trans_id = trans_id
        kind = type(record)
        _APPLY[kind](self, trans_id, record)
        if isinstance(record, Produce):
            self._place(record.msg_id, time)
        elif kind in _UNPLACED_BY:
            for msg_id in messages_of(record)[0]:
                self._place(msg_id, time)

    def close_entry(self, entry: Entry) -> None:
        """Note that all records of an entry are applied (`follow`)."""
        self.time = entry.time
        self.stretches.note(entry.vote_id, entry.last_trans_id, entry.records)
        self.undo.close(entry.last_trans_id, entry.time)

    def _place(self, msg_id: int, time: float) -> None:
        message = self.messages.get(msg_id)
        if message is not None and not message.place and not self.loading:
            self.queues[message.queue].place(message, time)

    def queue(self, name: str) -> QueueState:
        """Find the queue of that name, made if it is not there."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QueueState(name, made_at=self.time)
            self.undo.queue_made(self.trans_id, name)
            if not self.loading:
                self.name_queue(name)
        return queue

    def restore_message(self, row: Produce) -> None:
        """Add a message as a row of the backlog holds it; only while loading."""
        assert self.loading
        self._take_in(message_of(row))

    def restore_queue(self, settings: Configure, max_id: int) -> None:
        """Add a queue as its row holds it."""
        queue = self.queue(settings.queue)
        queue.configure(settings)
        self.has_system = self.has_system or settings.is_system
        queue.max_id = max(queue.max_id, max_id)

    def finish_loading(self, now: float, rest: Callable[[], None] | None = None) -> None:
        """Build all indexes, with messages due by `now` (Unix seconds) ready. `rest`: see `QueueState.place_all`."""
        self.loading = False
        self.topics.finish_loading()
        self.placed_at = now
        self.names = SortedList(self.queues)
        self.buckets = NameBuckets(self.queues)
        if len(self.queues) == 1:
            for queue in self.queues.values():
                queue.place_all(self.messages.values(), now, rest)
            self.kept = _kept_of(self.messages, rest)
            return
        by_queue: dict[str, list[Message]] = {}
        for index, message in enumerate(self.messages.values()):
            by_queue.setdefault(message.queue, []).append(message)
            if rest is not None and index % MESSAGES_UNTIL_REST == 0:
                rest()
        for name, messages in by_queue.items():
            self.queues[name].place_all(messages, now, rest)
        self.kept = _kept_of(self.messages, rest)

    def cut(self, after: int) -> None:
        """End the log behind record `after`: of topics, too."""
        super().cut(after)
        self.topics.tails.cut(after)

    def take_apart(self, count: int) -> bool:
        """Let go of so many messages and keys; whether that was all. A state of a million would hold up a turn.

        Nothing else is asked of it any more.
        """
        if self.undo.drop(count) or self.messages.drop(count):
            return False
        if self.keys.drop(count):
            return False
        while self.queues:
            name = next(reversed(self.queues))  # what is gone at a dict's head is passed over each time
            queue = self.queues[name]
            for order in (queue.ready, queue.waiting, queue.in_hand, queue.held):
                if order.drop(count):
                    return False
            if queue.keys.drop(count):
                return False
            del self.queues[name]
            count -= 1
            if count <= 0:
                return False
        self.names.clear()
        return True

    def undoing(self, after: int, piece: int = PIECE_STEPS) -> Generator[None, None, None] | None:
        """Find what makes it what it was behind record `after`, the end of an entry, in pieces. None: nothing can."""
        taken = self.undo.take(after, self.trans_id)
        return None if taken is None else undoing(self, after, *taken, piece)

    def check(self) -> None:
        """Assert every invariant; for tests."""
        by_queue: dict[str, list[Message]] = {name: [] for name in self.queues}
        self.messages.check()
        for message in self.messages.values():
            assert self.messages[message.msg_id] is message
            by_queue[message.queue].append(message)
        for name, messages in by_queue.items():
            self.queues[name].check(messages)
        assert list(self.names) == sorted(self.queues)
        assert sorted(self.buckets) == list(self.names)
        of_all = {m.key: m for m in self.messages.values() if m.key is not None and is_of_all(m)}
        assert dict(self.keys.items()) == of_all
        in_hand = {m.msg_id for m in self.messages.values() if m.place == Place.IN_FLIGHT and not m.retry_s}
        assert set(self.kept) == in_hand
        self.topics.check()

    def _produce(self, trans_id: int, record: Produce) -> None:
        self._take_in(message_of(record))

    def _take_in(self, message: Message) -> None:
        name, msg_id = message.queue, message.msg_id
        if not self.messages.add(msg_id, message):
            return
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queue(name)
        message.queue = queue.name  # one string for all: a decoded message brings its own copy
        if self.undo.is_on:
            self.undo.made(self.trans_id, message, queue.max_id)
        queue.max_id = max(queue.max_id, msg_id)
        self.enter(queue, message)

    def _deliver(self, trans_id: int, record: Deliver) -> None:
        live, loading = self.messages, self.loading
        undo = self.undo
        _, msg_ids, _, due_ats, counts, consumer = _fields_of(record)
        assert len(msg_ids) == len(due_ats) == len(counts)
        for index, msg_id in enumerate(msg_ids):
            message = live.get(msg_id)
            if message is None:
                continue
            if undo.is_on:
                undo.changes(trans_id, message)
            message.last = trans_id
            if consumer is not None:
                self._mark_consumer(message, consumer)
            if loading:
                message.due_at = due_ats[index]
                message.deliveries = counts[index]
                message.place = Place.IN_FLIGHT
                continue
            queue = self.queues[message.queue]
            if message.place:
                queue.lift(message)
            message.due_at = due_ats[index]
            message.deliveries = counts[index]
            queue.place_in_flight(message)
            if not message.retry_s:  # or it would be gone
                self.kept[msg_id] = None

    @staticmethod
    def _mark_consumer(message: Message, consumer: str) -> None:
        message.marks = {**(message.marks or {}), CONSUMER: consumer}

    def _remove_messages(self, trans_id: int, record: Removal) -> None:
        live, undo = self.messages, self.undo
        for msg_id in record.msg_ids:
            message = live.pop(msg_id)
            if message is None:
                continue
            if undo.is_on:
                undo.changes(trans_id, message)
            self.leave(message)

    def _release(self, trans_id: int, record: Release | Withhold) -> None:
        counts, deliveries = (record.nacks, record.deliveries) if isinstance(record, Release) else (None, None)
        for index, (msg_id, due_at) in enumerate(zip(record.msg_ids, record.due_ats, strict=True)):
            message = self._lifted(trans_id, msg_id)
            if message is None:
                continue
            message.due_at = due_at
            if counts is not None and deliveries is not None and counts[index]:
                message.marks = {**(message.marks or {}), NACKS: counts[index], NACKED: deliveries[index]}

    def _extend(self, trans_id: int, record: Extend) -> None:
        for msg_id, due_at in zip(record.msg_ids, record.due_ats, strict=True):
            message = self._lifted(trans_id, msg_id)
            if message is None:
                continue
            message.due_at = due_at
            if self.loading:
                message.place = Place.IN_FLIGHT
            else:
                self.queues[message.queue].place_in_flight(message)

    def _bury(self, trans_id: int, record: Bury) -> None:
        counts = record.deliveries
        for index, message in self._moved(trans_id, record):
            if not is_of_all(message):
                message.key = None  # it belongs to its queue; the dead letter queue may know it already
            if record.lasts is not None:
                message.marks = marks_with(message.marks, LASTS, record.lasts[index])
            if counts is not None:
                self._mark_dead(message, record, message.due_at, counts[index])

    def _move(self, trans_id: int, record: Move) -> None:
        keys = self.queue(record.to).keys
        for index, message in self._moved(trans_id, record):
            if record.totals is not None:
                lasts = record.expires_ats[index] - record.due_ats[index]
                is_endless = record.expires_ats[index] >= TIME_MAX_S
                message.marks = marks_with(message.marks, LASTS, TIME_MAX_S if is_endless else lasts)
            if message.key is not None and not is_of_all(message):
                keys[message.key] = message.msg_id
            if message.marks is not None and DEAD in message.marks:
                self.data_bytes -= weight(message)
                message.marks = {name: mark for name, mark in message.marks.items() if name != DEAD} or None
                self.data_bytes += weight(message)

    def _moved(self, trans_id: int, record: Moving) -> list[tuple[int, Message]]:
        """Those of its messages that live, by their place in the record: in the other queue, without a key there."""
        to = self.queue(record.to)
        self.undo.was(trans_id, to, "max_id", to.max_id)
        found: list[tuple[int, Message]] = []
        for index, (msg_id, due_at) in enumerate(zip(record.msg_ids, record.due_ats, strict=True)):
            to.max_id = max(to.max_id, msg_id)  # also where the message is gone by then: a restart shows the same
            message = self._lifted(trans_id, msg_id)
            if message is None:
                continue
            origin = self.queues[message.queue]
            origin.unplaced -= 1
            origin.size -= 1
            key = message.key
            if key is not None and origin.keys.get(key) == msg_id:  # in a replay another may have it here already
                del origin.keys[key]
            message.queue = to.name
            message.due_at = due_at
            message.expires_at = record.expires_ats[index]
            message.deliveries = 0
            if record.totals is not None:
                message.marks = marks_with(message.marks, BEFORE, record.totals[index] or None)
            if self.kept and not message.retry_s:
                self.kept.pop(msg_id, None)
            if message.marks is not None and NACKS in message.marks:  # they were counted there, as its deliveries
                message.marks = {name: mark for name, mark in message.marks.items() if name not in (NACKS, NACKED)}
            to.unplaced += 1
            to.size += 1
            found.append((index, message))
        return found

    def _mark_dead(self, message: Message, record: Bury, at: float, deliveries: int) -> None:
        """Where it was; and that it was to be dropped there counts here no more."""
        dead: dict[str, Any] = {"queue": record.queue, "at": at, "deliveries": deliveries}
        if record.reason is not None:
            dead["reason"] = record.reason
        kept = {name: mark for name, mark in (message.marks or {}).items() if name != EXPIRE}
        self.data_bytes -= weight(message)
        message.marks = {**kept, DEAD: dead}
        self.data_bytes += weight(message)

    def _lifted(self, trans_id: int, msg_id: int) -> Message | None:
        """Take the live message out of the indexes, with its newest record noted."""
        message = self.messages.get(msg_id)
        if message is None:
            return None
        if self.undo.is_on:
            self.undo.changes(trans_id, message)
        message.last = trans_id
        if self.loading:
            message.place = Place.UNPLACED
        elif message.place:
            self.queues[message.queue].lift(message)
        return message

    def _configure(self, trans_id: int, record: Configure) -> None:
        queue = self.queue(record.queue)
        self.undo.queue_changes(trans_id, queue)
        queue.configure(record)
        self.has_system = self.has_system or record.is_system

    def _remove_queue(self, trans_id: int, record: Remove) -> None:
        queue = self.queues.get(record.queue)
        if queue is None:
            return
        self.undo.queue_changes(trans_id, queue)
        if queue.size:  # only in a replay: messages that a later record moves here are here already
            queue.configure(QueueState(record.queue).settings())
            queue.max_id = 0  # those that come later say theirs
        else:
            del self.queues[record.queue]
            if not self.loading:
                self.unname_queue(record.queue)


def _kept_of(messages: LiveMessages, rest: Callable[[], None] | None) -> OrderedDict[int, None]:
    """Those that are kept, where it is not known any more in which order they were delivered: the oldest first."""
    kept: OrderedDict[int, None] = OrderedDict()
    for index, message in enumerate(messages.values()):
        if message.place == Place.IN_FLIGHT and not message.retry_s and is_kept(message.marks):
            kept[message.msg_id] = None
        if rest is not None and index % MESSAGES_UNTIL_REST == 0:
            rest()
    return kept


def _applies(kind: Kind) -> Callable[[ShardState, int, Any], None]:
    """Find what a kind's records do: a method of the state, or of a part of it, which is given the state's `Undo`.

    Of the class, and not of each state: a state that refers to itself outlives its use.
    """
    if kind.part is None:
        return cast("Callable[[ShardState, int, Any], None]", getattr(ShardState, f"_{kind.apply}"))
    part, apply = kind.part, kind.apply

    def of_part(state: ShardState, trans_id: int, record: Any) -> None:
        getattr(getattr(state, part), apply)(state.undo, trans_id, record)

    return of_part


_APPLY: Final[dict[type, Callable[[ShardState, int, Any], None]]] = {kind.record: _applies(kind) for kind in KINDS}
