"""What a queue owner does in several turns, where it is much; so no turn is long.

`Interlude`: what is done to a state: undoing what was not committed, applying what is, letting go of what is
committed when the lead is lost. Nothing is asked of the state meanwhile: its owner's messages wait.

`Leftovers`: what is let go of: calls that were open or waited, states that count no more.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from actors.messages.call import Call
from actors.runtime.loop_actor import LoopActor
from actors.runtime.work import Job, Steps
from actors.shard.admission import Admission
from actors.shard.machine import WaitingCalls
from quorate.protocol import ErrorWord
from storage.applying import applying
from storage.entry import StoredEntry
from storage.state import ShardState

LET_GO_MAX: Final = 500
"""So many calls are let go of in one turn: some 3 ms, here and where they go."""

DROP_MAX: Final = 5000
"""So many messages of a state that counts no more are let go of in one turn."""


class Interlude:
    """One owner's. `is_on`: it is at work, and the owner's messages wait. `piece`: steps that are undone in one turn.

    `carry_out` is what the owner does behind each message.
    """

    def __init__(self, owner: LoopActor[Any], piece: int, carry_out: Callable[[], None]) -> None:
        self.is_on = False
        self._owner = owner
        self._piece = piece
        self._carry_out = carry_out

    def undo(self, state: ShardState, after: int, then: Callable[[bool], None]) -> None:
        """Take back what the state has applied behind record `after`; `then` is told whether that could be."""
        if after == state.trans_id:
            then(True)
            return
        steps = state.undoing(after, self._piece)
        if steps is None:
            then(False)
        else:
            self.do(steps, lambda: then(True))

    def follow(self, state: ShardState, entries: list[StoredEntry], then: Callable[[], None]) -> None:
        """Apply committed entries, which follow what is there, until it is late; and go on with that in other turns."""
        self.do(applying(state, entries, self._owner.runtime.is_late), then)

    def do(self, steps: Steps, then: Callable[[], None]) -> None:
        """Do one piece, and the others in turns to come; and `then`."""
        job = Job(steps)
        if job.step():
            then()
            return
        self.is_on = True
        self._owner.pause()
        self._owner.runtime.call_later(0.0, lambda: self._go_on(job, then))

    def _go_on(self, job: Job, then: Callable[[], None]) -> None:
        """One piece more; behind the last, the owner hears what was said to it meanwhile."""
        owner = self._owner
        if owner.has_ended:
            return
        if not job.step():
            owner.runtime.call_later(0.0, lambda: self._go_on(job, then))
            return
        self.is_on = False
        then()
        if not self.is_on:  # what follows may take turns of its own
            self._carry_out()
            owner.resume()


class Leftovers:
    """Of one owner. `is_awaited`: somebody wants to know when no state is left."""

    def __init__(self, admission: Admission) -> None:
        self.is_awaited = False
        self._admission = admission
        admission.goes_behind = self._goes_behind
        self._uncertain: deque[tuple[Call, str]] = deque()
        self._undone: deque[Call] = deque()
        self._waiting: deque[WaitingCalls] = deque()
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

    def _goes_behind(self, calls: list[Call]) -> bool:
        """Let go of them behind those that were not done and are here: their clients asked for these first."""
        if self._undone:
            self._undone.extend(calls)
        return bool(self._undone)

    def add_waiting(self, waiting: list[WaitingCalls]) -> None:
        """They wait here no more."""
        self._waiting.extend(waiting)

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
