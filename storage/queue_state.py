"""One queue: its settings, its counts, and the two orders its messages stand in.

`ready` orders what may be delivered now: higher priority, then earlier due, then earlier produced; its keys are
(-priority, due_at, msg_id). `waiting` orders by time, as (at, msg_id), what something will happen to: delayed messages
at their due time, those in flight at their retry time, those ready again, or to be dropped, at their expiry. The
messages themselves are in `ShardState.messages`.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from storage.message import Message, is_dropped
from storage.order import Order
from storage.records import Configure, Place

DEFAULT_TTL_S: Final = 3600.0


class NewQueue(NamedTuple):
    """The settings of a queue that is not configured (`max_size` 0: no limit; times in seconds)."""

    max_size: int = 0
    default_ttl_s: float = DEFAULT_TTL_S
    default_retry_s: float = 0.0


ORIGINAL: Final = NewQueue()
"""What holds where no record says otherwise, as in the original."""

NEVER: Final = math.inf
PIECE_KEYS: Final = 2000
"""So many keys are made and sorted in some 2 ms."""


def _ready_key(message: Message) -> tuple[int, float, int]:
    return -message.priority, message.due_at, message.msg_id


def _due_key(message: Message) -> tuple[float, int]:
    return message.due_at, message.msg_id


def expiry_key(message: Message) -> tuple[float, int]:
    """Where a message that is ready until it expires stands in `waiting`."""
    return message.expires_at, message.msg_id


class QueueState:
    """One queue of a shard. Its counts are of live messages, uncommitted ones included in `size` alone.

    `max_size` and `max_deliveries` of 0 mean no limit, `expires_after_s` of 0 never. `keys` maps the keys
    of live messages to their ids.
    """

    __slots__ = (
        "dead_letter",
        "default_retry_s",
        "default_ttl_s",
        "expires_after_s",
        "in_flight",
        "keys",
        "max_deliveries",
        "max_id",
        "max_size",
        "name",
        "paused",
        "ready",
        "size",
        "unplaced",
        "waiting",
    )

    def __init__(self, name: str, new: NewQueue = ORIGINAL) -> None:
        self.name = name
        self.max_size = new.max_size
        self.default_ttl_s = new.default_ttl_s
        self.default_retry_s = new.default_retry_s
        self.max_deliveries = 0
        self.dead_letter: str | None = None
        self.paused = False
        self.expires_after_s = 0.0
        self.size = 0
        self.unplaced = 0
        self.in_flight = 0
        self.max_id = 0
        self.keys: dict[str, int] = {}
        self.ready = Order()
        self.waiting = Order()

    @property
    def delayed(self) -> int:
        """How many messages are not due yet."""
        return self.size - self.unplaced - len(self.ready) - self.in_flight

    @property
    def next_event_at(self) -> float:
        """When time next changes something here; `NEVER` if it does not."""
        return float(self.waiting.first[0]) if self.waiting else NEVER

    def settings(self) -> Configure:
        """The settings as the record that would set them."""
        return Configure(
            self.name,
            self.max_size,
            self.default_ttl_s,
            self.default_retry_s,
            self.max_deliveries,
            self.dead_letter,
            self.paused,
            self.expires_after_s,
        )

    def configure(self, record: Configure) -> None:
        """Take over the settings."""
        self.max_size = record.max_size
        self.default_ttl_s = record.default_ttl_s
        self.default_retry_s = record.default_retry_s
        self.max_deliveries = record.max_deliveries
        self.dead_letter = record.dead_letter
        self.paused = record.paused
        self.expires_after_s = record.expires_after_s

    def place(self, message: Message, now: float) -> int:
        """Put an unplaced message where the time says it belongs; its place now."""
        assert message.place == Place.UNPLACED
        self.unplaced -= 1
        if message.due_at > now:
            message.place = Place.DELAYED
            self.waiting.add(_due_key(message))
            return Place.DELAYED
        self.ready.add(_ready_key(message))
        if message.deliveries or is_dropped(message.marks):
            message.place = Place.READY_EXPIRING
            self.waiting.add(expiry_key(message))
            return Place.READY_EXPIRING
        message.place = Place.READY
        return Place.READY

    def place_in_flight(self, message: Message) -> None:
        """Put an unplaced message in flight until its `due_at`."""
        self.unplaced -= 1
        self.in_flight += 1
        message.place = Place.IN_FLIGHT
        self.waiting.add(_due_key(message))

    def lift(self, message: Message) -> None:
        """Take a message out of the indexes; it is unplaced then."""
        place = message.place
        if place == Place.UNPLACED:
            return
        if place == Place.IN_FLIGHT:
            self.in_flight -= 1
            self.waiting.remove(_due_key(message))
        elif place == Place.DELAYED:
            self.waiting.remove(_due_key(message))
        else:
            self.ready.remove(_ready_key(message))
            if place == Place.READY_EXPIRING:
                self.waiting.remove(expiry_key(message))
        message.place = Place.UNPLACED
        self.unplaced += 1

    def place_all(self, messages: Iterable[Message], now: float, rest: Callable[[], None] | None = None) -> None:
        """Build the indexes of an emptied queue in one go: a million messages take a second, not five.

        With `rest`, which is called now and then, nothing takes long in between: this is done beside a loop.
        """
        ready: list[Any] = []
        waiting: list[Any] = []
        pieces: tuple[list[list[Any]], list[list[Any]]] = ([], [])
        self.in_flight = 0
        for message in messages:
            if message.place == Place.IN_FLIGHT:
                self.in_flight += 1
                waiting.append(_due_key(message))
            elif message.due_at > now:
                message.place = Place.DELAYED
                waiting.append(_due_key(message))
            else:
                ready.append(_ready_key(message))
                message.place = Place.READY
                if message.deliveries or is_dropped(message.marks):
                    message.place = Place.READY_EXPIRING
                    waiting.append(expiry_key(message))
            if rest is not None and len(ready) + len(waiting) >= PIECE_KEYS:
                for keys, its in ((ready, pieces[0]), (waiting, pieces[1])):
                    if keys:
                        its.append(sorted(keys))
                        keys.clear()
                rest()
        self.unplaced = 0
        if rest is None:
            self.ready, self.waiting = Order(ready), Order(waiting)
            return
        self.ready = Order.of_pieces([*pieces[0], sorted(ready)] if ready else pieces[0], rest)
        self.waiting = Order.of_pieces([*pieces[1], sorted(waiting)] if waiting else pieces[1], rest)

    def check(self, messages: Iterable[Message]) -> None:
        """Assert every invariant against the messages that are this queue's; for tests."""
        mine = list(messages)
        assert self.size == len(mine)
        ready = {(-m.priority, m.due_at, m.msg_id) for m in mine if m.place in (Place.READY, Place.READY_EXPIRING)}
        waiting = {(m.due_at, m.msg_id) for m in mine if m.place in (Place.DELAYED, Place.IN_FLIGHT)}
        waiting |= {(m.expires_at, m.msg_id) for m in mine if m.place == Place.READY_EXPIRING}
        self.ready.check()
        self.waiting.check()
        assert set(self.ready) == ready
        assert set(self.waiting) == waiting
        assert self.in_flight == sum(m.place == Place.IN_FLIGHT for m in mine)
        assert self.unplaced == sum(m.place == Place.UNPLACED for m in mine)
        assert self.keys == {m.key: m.msg_id for m in mine if m.key is not None}
        assert all(
            (m.deliveries > 0 or is_dropped(m.marks)) == (m.place == Place.READY_EXPIRING)
            for m in mine
            if m.place in (Place.READY, Place.READY_EXPIRING)
        )
        assert self.delayed == sum(m.place == Place.DELAYED for m in mine)
