"""What is done to a state in several turns, where it is much: undoing what was not committed, applying what is, letting
go of what is committed when the lead is lost.

Nothing is asked of the state meanwhile: its owner's messages wait.
"""

from collections.abc import Callable
from typing import Any

from actors.runtime.loop_actor import LoopActor
from storage.applying import Applying
from storage.entry import StoredEntry
from storage.state import ShardState
from storage.undo import undoing


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
        work = undoing(state, after)
        if work is None:
            then(False)
        elif work.count <= self._piece:
            while not work.go_on(work.count):
                pass
            then(True)
        else:
            self._begin(lambda: work.go_on(self._piece), lambda: then(True))

    def follow(self, state: ShardState, entries: list[StoredEntry], then: Callable[[], None]) -> None:
        """Apply committed entries, which follow what is there, until it is late; and go on with that in other turns."""
        work, is_late = Applying(state, entries), self._owner.runtime.is_late
        self.do(lambda: work.go_on(is_late), then)

    def do(self, go_on: Callable[[], bool], then: Callable[[], None]) -> None:
        """One piece with each call of `go_on`, the first at once, until it says that it is done; and `then`."""
        if go_on():
            then()
        else:
            self._begin(go_on, then)

    def _begin(self, go_on: Callable[[], bool], then: Callable[[], None]) -> None:
        self.is_on = True
        self._owner.pause()
        self._owner.runtime.call_later(0.0, lambda: self._go_on(go_on, then))

    def _go_on(self, go_on: Callable[[], bool], then: Callable[[], None]) -> None:
        """One piece more; behind the last, the owner hears what was said to it meanwhile."""
        owner = self._owner
        if owner.has_ended:
            return
        if not go_on():
            owner.runtime.call_later(0.0, lambda: self._go_on(go_on, then))
            return
        self.is_on = False
        then()
        if not self.is_on:  # what follows may take turns of its own
            self._carry_out()
            owner.resume()
