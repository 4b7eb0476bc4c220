"""One queue: its settings, its counts, and the orders its messages stand in.

`ready` orders what may be delivered now: higher priority, then earlier due, then earlier produced; its keys are
(-priority, due_at, msg_id). The others order by time, as (at, msg_id), what something will happen to. `in_hand`:
those in flight, at their retry time. `waiting`: the rest, so delayed messages at their due time, and those that are
ready again, or to be dropped, at their expiry, when that is near (`storage.far_expiries`). `held` orders those that
have come due since the queue takes nothing in, by the same keys; in `waiting` they stand at their expiry, or behind
all others. The messages themselves are in `ShardState.messages`.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from storage.far_expiries import FarExpiries
from storage.live_messages import LiveMessages
from storage.message import Message, is_dropped, is_of_all
from storage.order import Order
from storage.records import Configure, Place
from storage.split_dict import SplitDict

DEFAULT_TTL_S: Final = 3600.0


class NewQueue(NamedTuple):
    """The settings of a queue that is not configured (`max_size` 0: no limit; times in seconds)."""

    max_size: int = 0
    default_ttl_s: float = DEFAULT_TTL_S
    default_retry_s: float = 0.0


ORIGINAL: Final = NewQueue()
"""What holds where no record says otherwise, as in the original."""

ALL_READY: Final = (Place.READY, Place.READY_EXPIRING, Place.READY_FAR)
"""Where messages stand that may be delivered now."""

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


class Gate:
    """Of a queue that takes nothing in since `shut_at` (Unix seconds; 0: it does now), and what that holds back."""

    __slots__ = ("held", "shut_at")

    def __init__(self) -> None:
        self.shut_at = 0.0
        self.held = Order()

    def hold(self, message: Message) -> None:
        """Hold back a message that is in no index."""
        message.place = Place.HELD
        self.held.add(_due_key(message))


class Life:
    """When a queue goes, and its messages do that expire far from now, and how it was used. Times are Unix seconds.

    `has_own_ttl`: whether a configure has set its default time to live; None: nobody has noted that. `is_system`: lists
    leave it out unless asked.

    `expires_after_s`: unused for so long it goes; 0: never. `is_transient`: it goes when it is empty and unused for a
    while. In no record stands when it was made, and last used, how often a message of it became ready (`was_ready`) and
    was handed out (`given_out`): that is of the time since this node knows it.
    """

    __slots__ = (
        *("expires_after_s", "far", "given_out", "has_own_ttl", "is_system", "is_transient"),
        *("made_at", "used_at"),
        "was_ready",
    )

    def __init__(self, made_at: float) -> None:
        self.expires_after_s = 0.0
        self.is_transient = False
        self.is_system = False
        self.has_own_ttl: bool | None = None
        self.far: FarExpiries | None = None
        self.made_at = made_at
        self.used_at = made_at
        self.was_ready = 0
        self.given_out = 0


_NOTHING_HELD: Final = Order()


def _held_key(message: Message) -> tuple[float, int]:
    """Where one that is held back stands in `waiting`: at its expiry, if it goes then, else behind all others."""
    return message.expires_at if message.deliveries or is_dropped(message.marks) else NEVER, message.msg_id


class QueueState:
    """One queue of a shard. Its counts are of live messages, uncommitted ones included in `size` alone.

    `max_size` and `max_deliveries` of 0 mean no limit. `keys` maps the keys of live messages to their ids. `gate` is
    there since the queue took nothing in for the first time.
    """

    __slots__ = (
        "dead_letter",
        "default_retry_s",
        "default_ttl_s",
        "gate",
        "in_hand",
        "keys",
        "life",
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

    def __init__(self, name: str, new: NewQueue = ORIGINAL, made_at: float = 0.0) -> None:
        self.name = name
        self.max_size = new.max_size
        self.default_ttl_s = new.default_ttl_s
        self.default_retry_s = new.default_retry_s
        self.max_deliveries = 0
        self.dead_letter: str | None = None
        self.paused = False
        self.size = 0
        self.unplaced = 0
        self.max_id = 0
        self.keys: SplitDict[int] = SplitDict()
        self.ready = Order()
        self.waiting = Order()
        self.in_hand = Order()
        self.gate: Gate | None = None
        self.life = Life(made_at)

    @property
    def paused_in_at(self) -> float:
        """Since when (Unix seconds) nothing comes in; 0: it does."""
        return 0.0 if self.gate is None else self.gate.shut_at

    @property
    def held(self) -> Order:
        """What is held back, by due time; nothing is to be added here."""
        return _NOTHING_HELD if self.gate is None else self.gate.held

    @property
    def in_flight(self) -> int:
        """How many messages are with consumers."""
        return len(self.in_hand)

    @property
    def delayed(self) -> int:
        """How many messages are not due yet, or may not come in yet."""
        return self.size - self.unplaced - len(self.ready) - len(self.in_hand)

    @property
    def next_event_at(self) -> float:
        """When time next changes something here; `NEVER` if it does not."""
        at = float(self.waiting.first[0]) if self.waiting else NEVER
        if self.in_hand:
            at = min(at, float(self.in_hand.first[0]))
        far = self.far
        return at if far is None or far.next_at is None else min(at, far.next_at)

    def order_of(self, place: int) -> Order:
        """Where those stand that are in that place; others may stand there, too."""
        return self.ready if place in ALL_READY else self.in_hand if place == Place.IN_FLIGHT else self.waiting

    def first_due(self, now: float) -> int | None:
        """Find the message that something was to happen to first, among those that are late or just in time."""
        waiting, in_hand = self.waiting, self.in_hand
        if in_hand and (not waiting or in_hand.first < waiting.first):
            waiting = in_hand
        if waiting and waiting.first[0] <= now:
            return int(waiting.first[1])
        return None

    @property
    def far(self) -> FarExpiries | None:
        """The ready messages that expire far from now."""
        return self.life.far

    def settings(self) -> Configure:
        """Make the settings the record that would set them."""
        return Configure(
            self.name,
            self.max_size,
            self.default_ttl_s,
            self.default_retry_s,
            self.max_deliveries,
            self.dead_letter,
            self.paused,
            self.life.expires_after_s,
            self.paused_in_at,
            self.life.is_transient,
            self.life.has_own_ttl,
            self.life.is_system,
        )

    def configure(self, record: Configure) -> None:
        """Take over the settings."""
        self.max_size = record.max_size
        self.default_ttl_s = record.default_ttl_s
        self.default_retry_s = record.default_retry_s
        self.max_deliveries = record.max_deliveries
        self.dead_letter = record.dead_letter
        self.paused = record.paused
        self.life.expires_after_s = record.expires_after_s
        self.life.is_transient = record.is_transient
        self.life.has_own_ttl = record.has_own_ttl
        self.life.is_system = record.is_system
        if record.paused_in_at and self.gate is None:
            self.gate = Gate()
        if self.gate is not None:
            self.gate.shut_at = record.paused_in_at

    def holds_back(self, message: Message) -> bool:
        """Whether a message that is due is not to be ready before the queue takes something in again.

        What was due before that began is ready, and what is delivered at most once comes in any case.
        """
        gate = self.gate
        return gate is not None and 0.0 < gate.shut_at < message.due_at and message.retry_s > 0

    def place(self, message: Message, now: float) -> int:
        """Put an unplaced message where the time says it belongs; its place now."""
        assert message.place == Place.UNPLACED
        self.unplaced -= 1
        if message.due_at > now:
            message.place = Place.DELAYED
            self.waiting.add(_due_key(message))
            return Place.DELAYED
        if self.gate is not None and self.holds_back(message):
            self.gate.hold(message)
            self.waiting.add(_held_key(message))
            return Place.HELD
        self.ready.add(_ready_key(message))
        self.life.was_ready += 1
        if message.deliveries or is_dropped(message.marks):
            return self.place_expiring(message, now)
        message.place = Place.READY
        return Place.READY

    def place_expiring(self, message: Message, now: float) -> int:
        """Of a message that is ready: let it be found when it expires."""
        life = self.life
        if life.far is None:
            life.far = FarExpiries()
        if life.far.add(message, now):
            message.place = Place.READY_FAR
            return Place.READY_FAR
        message.place = Place.READY_EXPIRING
        self.waiting.add(expiry_key(message))
        return Place.READY_EXPIRING

    def leave_expiring(self, message: Message) -> None:
        """Take it out of what is ready: it is so no more, or about to be placed anew."""
        if message.place == Place.READY_EXPIRING:
            self.waiting.remove(expiry_key(message))
        elif message.place == Place.READY_FAR and (far := self.life.far) is not None:
            far.remove(message)

    def ripen(self, messages: LiveMessages, now: float, count: int) -> int:
        """Make ready what was delayed until `now` or before, at most `count`; how many were.

        Not what stands behind one that expires first: of that a record has to say what becomes of it.
        """
        waiting, done = self.waiting, 0
        while done < count and waiting and waiting.first[0] <= now:
            message = messages[waiting.first[1]]
            if message.place != Place.DELAYED:
                break
            self.lift(message)
            self.place(message, now)
            done += 1
        return done

    def place_in_flight(self, message: Message) -> None:
        """Put an unplaced message in flight until its `due_at`."""
        self.unplaced -= 1
        message.place = Place.IN_FLIGHT
        self.in_hand.add(_due_key(message))

    def lift(self, message: Message) -> None:
        """Take a message out of the indexes; it is unplaced then."""
        place = message.place
        if place == Place.UNPLACED:
            return
        if place == Place.IN_FLIGHT:
            self.in_hand.remove(_due_key(message))
        elif place == Place.DELAYED:
            self.waiting.remove(_due_key(message))
        elif place == Place.HELD:
            self.held.remove(_due_key(message))
            self.waiting.remove(_held_key(message))
        else:
            self.ready.remove(_ready_key(message))
            self.leave_expiring(message)
        message.place = Place.UNPLACED
        self.unplaced += 1

    def place_all(self, messages: Iterable[Message], now: float, rest: Callable[[], None] | None = None) -> None:
        """Build the indexes of an emptied queue in one go: a million messages take a second, not five.

        With `rest`, which is called now and then, nothing takes long in between: this is done beside a loop.
        """
        ready: list[Any] = []
        waiting: list[Any] = []
        in_hand: list[Any] = []
        held: list[Any] = []
        far = FarExpiries()
        pieces: tuple[list[list[Any]], ...] = ([], [], [])
        for message in messages:
            if message.place == Place.IN_FLIGHT:
                in_hand.append(_due_key(message))
            elif message.due_at > now:
                message.place = Place.DELAYED
                waiting.append(_due_key(message))
            elif self.gate is not None and self.holds_back(message):
                message.place = Place.HELD
                held.append(_due_key(message))
                waiting.append(_held_key(message))
            else:
                ready.append(_ready_key(message))
                message.place = Place.READY
                if message.deliveries or is_dropped(message.marks):
                    if far.add(message, now):
                        message.place = Place.READY_FAR
                    else:
                        message.place = Place.READY_EXPIRING
                        waiting.append(expiry_key(message))
            if rest is not None and len(ready) + len(waiting) + len(in_hand) >= PIECE_KEYS:
                for keys, its in zip((ready, waiting, in_hand), pieces, strict=True):
                    if keys:
                        its.append(sorted(keys))
                        keys.clear()
                rest()
        self.unplaced = 0
        self.life.far = far if len(far) else None
        if self.gate is not None:
            self.gate.held = Order(held)
        if rest is None:
            self.ready, self.waiting, self.in_hand = Order(ready), Order(waiting), Order(in_hand)
            return
        self.ready = Order.of_pieces([*pieces[0], sorted(ready)] if ready else pieces[0], rest)
        self.waiting = Order.of_pieces([*pieces[1], sorted(waiting)] if waiting else pieces[1], rest)
        self.in_hand = Order.of_pieces([*pieces[2], sorted(in_hand)] if in_hand else pieces[2], rest)

    def check(self, messages: Iterable[Message]) -> None:
        """Assert every invariant against the messages that are this queue's; for tests."""
        mine = list(messages)
        assert self.size == len(mine)
        ready = {(-m.priority, m.due_at, m.msg_id) for m in mine if m.place in ALL_READY}
        waiting = {(m.due_at, m.msg_id) for m in mine if m.place == Place.DELAYED}
        in_hand = {(m.due_at, m.msg_id) for m in mine if m.place == Place.IN_FLIGHT}
        waiting |= {(m.expires_at, m.msg_id) for m in mine if m.place == Place.READY_EXPIRING}
        held = [m for m in mine if m.place == Place.HELD]
        waiting |= {_held_key(m) for m in held}
        assert list(self.held) == sorted((m.due_at, m.msg_id) for m in held)
        self.held.check()
        self.ready.check()
        self.waiting.check()
        self.in_hand.check()
        assert set(self.ready) == ready
        assert set(self.waiting) == waiting
        assert set(self.in_hand) == in_hand
        assert self.unplaced == sum(m.place == Place.UNPLACED for m in mine)
        own = {m.key: m.msg_id for m in mine if m.key is not None and not is_of_all(m)}
        assert dict(self.keys.items()) == own
        assert all(
            (m.deliveries > 0 or is_dropped(m.marks)) == (m.place != Place.READY) for m in mine if m.place in ALL_READY
        )
        (self.life.far or FarExpiries()).check([m for m in mine if m.place == Place.READY_FAR])
        assert self.delayed == sum(m.place in (Place.DELAYED, Place.HELD) for m in mine)
