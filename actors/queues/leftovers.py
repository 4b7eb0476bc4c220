"""What a queue owner lets go of in pieces: calls that were open or waited, states that count no more.

So no turn is long, however much there was when the lead was lost.
"""

from collections import deque
from typing import Final

from msgspec.structs import replace

from actors.messages.call import Call
from actors.queues.admission import Admission
from actors.queues.delivery import Delivery
from actors.queues.wait_queues import Waiter, WaitQueues
from quorate.protocol import ErrorWord
from storage.state import ShardState

LET_GO_MAX: Final = 500
"""So many calls are let go of in one turn: some 3 ms, here and where they go."""

DROP_MAX: Final = 5000
"""So many messages of a state that counts no more are let go of in one turn."""


class _Line:
    """Consumers that waited, in their order. `taken_at`: by the clock of the leader that gave them their deadlines;
    another's may not be asked later.
    """

    def __init__(self, lines: WaitQueues, taken_at: float) -> None:
        self._lines = lines
        self._waiters = deque(lines.all())
        self._taken_at = taken_at

    def __len__(self) -> int:
        return len(self._waiters)

    def take(self) -> Call:
        """Hand over the call of the first, for what is left of its time.

        It is taken out of its lines, too: to drop these with tens of thousands in them takes 15 ms.
        """
        waiter: Waiter = self._waiters.popleft()
        self._lines.leave(waiter)
        call = waiter.call
        call.request = replace(call.request, wait=max(waiter.deadline - self._taken_at, 0.001))
        return call


class Leftovers:
    """Of one owner. `is_awaited`: somebody wants to know when no state is left."""

    def __init__(self, admission: Admission) -> None:
        self.is_awaited = False
        self._admission = admission
        self._uncertain: deque[tuple[Call, str]] = deque()
        self._undone: deque[Call] = deque()
        self._waiting: deque[_Line] = deque()
        self._states: deque[ShardState] = deque()

    @property
    def has_any(self) -> bool:
        """Whether there is more to do."""
        return self.has_calls or bool(self._states)

    @property
    def has_calls(self) -> bool:
        """Whether a call is not let go of yet."""
        return bool(self._waiting or self._undone or self._uncertain)

    @property
    def has_states(self) -> bool:
        """Whether a state is not let go of yet."""
        return bool(self._states)

    def add_uncertain(self, calls: list[Call], reason: str) -> None:
        """Nobody knows whether they are done, for that reason."""
        self._uncertain.extend([(call, reason) for call in calls])

    def add_undone(self, calls: list[Call]) -> None:
        """They were not done, and can't be any more."""
        self._undone.extend(calls)

    def add_waiters(self, delivery: Delivery, now: float) -> None:
        """All that wait there wait here no more (Unix seconds)."""
        lines = delivery.take_lines()
        if len(lines):
            self._waiting.append(_Line(lines, now))

    def add_state(self, state: ShardState) -> None:
        """Forget it: it counts no more."""
        self._states.append(state)

    def let_go(self) -> None:
        """Let go of some calls: of the uncertain first, and of those that wait last."""
        left = LET_GO_MAX
        uncertain, undone = self._uncertain, self._undone
        while uncertain and left:
            call, reason = uncertain.popleft()
            self._admission.refuse([call], ErrorWord.UNKNOWN_OUTCOME, reason)
            left -= 1
        calls: list[Call] = []
        while undone and len(calls) < left:
            calls.append(undone.popleft())
        while self._waiting and len(calls) < left:
            line = self._waiting[0]
            calls.append(line.take())
            if not len(line):
                self._waiting.popleft()
        if calls:
            self._admission.let_go(calls)

    def drop(self) -> None:
        """Let go of some messages."""
        if self._states and self._states[0].take_apart(DROP_MAX):
            self._states.popleft()
