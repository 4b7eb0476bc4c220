"""What a queue owner lets go of in pieces: consumers that waited, states that count no more. So no turn is long."""

from collections import deque
from typing import Final

from msgspec.structs import replace

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.queues.wait_queues import Waiter
from storage.state import ShardState

GIVE_BACK_MAX: Final = 1000
"""So many consumers that waited here are given back in one turn: some 3 ms, here and where they go."""

DROP_MAX: Final = 5000
"""So many messages of a state that counts no more are let go of in one turn."""


class Leftovers:
    """Of one owner. `is_awaited`: somebody wants to know when no state is left."""

    def __init__(self) -> None:
        self.is_awaited = False
        self.waiters: deque[Waiter] = deque()
        self._taken_at = 0.0
        self._states: deque[ShardState] = deque()

    @property
    def has_any(self) -> bool:
        """Whether there is more to do."""
        return bool(self.waiters or self._states)

    @property
    def has_states(self) -> bool:
        """Whether a state is not let go of yet."""
        return bool(self._states)

    def add_waiters(self, delivery: Delivery, now: float) -> None:
        """All that wait there wait here no more: there may be tens of thousands.

        It is `now` by the clock of the leader that gave them their deadlines: another's may not be asked later.
        """
        waiters = delivery.take_waiting()
        if waiters:
            self._taken_at = now
            self.waiters.extend(waiters)

    def add_state(self, state: ShardState) -> None:
        """Forget it: it counts no more."""
        self._states.append(state)

    def some_calls(self) -> list[Call]:
        """Hand over the calls of some consumers, for what is left of their time; they are to be told, and the caller's
        now."""
        waiters = self.waiters
        return [self._again(waiters.popleft()) for _ in range(min(GIVE_BACK_MAX, len(waiters)))]

    def _again(self, waiter: Waiter) -> Call:
        call = waiter.call
        call.request = replace(call.request, wait=max(waiter.deadline - self._taken_at, 0.001))
        return call

    def drop(self) -> None:
        """Let go of some messages."""
        if self._states and self._states[0].take_apart(DROP_MAX):
            self._states.popleft()
