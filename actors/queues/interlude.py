"""Undoing what was not committed: where it is much that takes several turns, and nothing is asked of the state then."""

from collections.abc import Callable
from typing import Any

from actors.runtime.contract import Runtime
from storage.state import ShardState
from storage.undo import Undoing, undoing


class Interlude:
    """One owner's. `is_on`: a state is being undone, `piece` steps a turn, and messages wait for that.

    `on_receive` and `carry_out` are the owner's.
    """

    def __init__(
        self, runtime: Runtime, piece: int, on_receive: Callable[[Any], None], carry_out: Callable[[], None]
    ) -> None:
        self.is_on = False
        self._runtime = runtime
        self._piece = piece
        self._on_receive = on_receive
        self._carry_out = carry_out
        self._waiting: list[Any] = []

    def wait(self, message: Any) -> None:
        """It came meanwhile."""
        self._waiting.append(message)

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
            self._go_on(work, then)

    def _go_on(self, work: Undoing, then: Callable[[bool], None]) -> None:
        """One piece more; behind the last, what came meanwhile."""
        if not work.go_on(self._piece):
            self._runtime.call_later(0.0, lambda: self._go_on(work, then))
            return
        self.is_on = False
        then(True)
        self._carry_out()
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self._on_receive(message)
