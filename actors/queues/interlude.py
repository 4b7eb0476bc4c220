"""Undoing what was not committed: where it is much that takes several turns, and nothing is asked of the state then."""

from collections.abc import Callable

from actors.runtime.loop_actor import LoopActor
from storage.state import ShardState
from storage.undo import Undoing, undoing


class Interlude:
    """One owner's. `is_on`: a state is being undone, `piece` steps a turn, and the owner's messages wait for that.

    `carry_out` is what the owner does behind each message.
    """

    def __init__(self, owner: LoopActor, piece: int, carry_out: Callable[[], None]) -> None:
        self.is_on = False
        self._owner = owner
        self._piece = piece
        self._carry_out = carry_out

    def undo(self, state: ShardState, after: int, then: Callable[[bool], None]) -> None:
        """Take back what the state has applied behind record `after`; `then` is told whether that could be."""
        if after == state.trans_id:
            then(True)
            return
        work = undoing(state, after)
        if work is None:
            then(False)
        elif work.count <= self._piece:
            while not work.go_on(work.count):
                pass
            then(True)
        else:
            self.is_on = True
            self._owner.pause()
            self._owner.runtime.call_later(0.0, lambda: self._go_on(work, then))

    def _go_on(self, work: Undoing, then: Callable[[bool], None]) -> None:
        """One piece more; behind the last, the owner hears what was said to it meanwhile."""
        owner = self._owner
        if owner.has_ended:
            return
        if not work.go_on(self._piece):
            owner.runtime.call_later(0.0, lambda: self._go_on(work, then))
            return
        self.is_on = False
        then(True)
        self._carry_out()
        owner.resume()
