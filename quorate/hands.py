"""What a worker holds, and when it has to say so again. A machine: no clock, no thread, no socket.

A message that is worked on is extended at a third of its lease, together with all others that are due about then; one
that is done is confirmed together with those that were done while the confirmation before was under way.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from quorate.messages import Message

MessageT = TypeVar("MessageT", bound=Message)

TOGETHER: Final = 0.2
"""What is due within this part of a third of its lease is extended with what is due now."""

EXTENDED_MAX: Final = 1000
"""In one request."""


@dataclass
class Held(Generic[MessageT]):
    """A message in work; `extend_at` (monotonic s) its lease is to be made longer."""

    message: MessageT
    extend_at: float


class Hands(Generic[MessageT]):
    """Of one worker. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._held: dict[int, Held[MessageT]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: Message) -> bool:
        """Whether that delivery is worked on."""
        held = self._held.get(message.msg_id)
        return held is not None and held.message.deliveries == message.deliveries

    @property
    def held(self) -> list[MessageT]:
        """All messages in work."""
        return [one.message for one in self._held.values()]

    def take(self, messages: Iterable[MessageT], now: float) -> None:
        """Note that these are worked on from now on."""
        for message in messages:
            self._held[message.msg_id] = Held(message, now + message.retry / 3)

    def drop(self, message: MessageT) -> bool:
        """Note that it is not worked on any more; False: this delivery was not."""
        held = self._held.get(message.msg_id)
        if held is None or held.message.deliveries != message.deliveries:
            return False
        del self._held[message.msg_id]
        return True

    @property
    def next_at(self) -> float:
        """When the first is to be extended; infinite if none is."""
        return min((one.extend_at for one in self._held.values() if one.message.retry), default=float("inf"))

    def due(self, now: float) -> dict[float, list[MessageT]]:
        """Choose what is to be extended now, by the lease that each gets (s)."""
        found: dict[float, list[MessageT]] = {}
        for one in self._held.values():
            lease_s = one.message.retry
            if lease_s and one.extend_at <= now + TOGETHER * lease_s / 3 and len(found.get(lease_s, ())) < EXTENDED_MAX:
                one.extend_at = now + lease_s / 3
                found.setdefault(lease_s, []).append(one.message)
        return found

    def failed(self, messages: Iterable[MessageT], now: float) -> None:
        """They could not be extended: it is tried again soon."""
        for message in messages:
            held = self._held.get(message.msg_id)
            if held is not None:
                held.extend_at = min(held.extend_at, now + message.retry / 10)


@dataclass(frozen=True)
class Backoff:
    """How long a message rests that a handler failed with: `base_s` doubled by each delivery, `cap_s` at most.

    Half of it is drawn by lot, so that what failed together does not come again together.
    """

    base_s: float = 1.0
    cap_s: float = 600.0

    def rest_s(self, deliveries: int, draw: float | None = None) -> float:
        """After so many deliveries; `draw`: a number from 0 to 1."""
        lot = random.random() if draw is None else draw
        full_s = min(self.base_s * 2.0 ** min(max(deliveries - 1, 0), 60), self.cap_s)
        return full_s * (0.5 + lot / 2)
