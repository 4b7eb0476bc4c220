"""When an owner goes on with work that was cut: in the next turn of the loop, or a little later."""

from collections.abc import Callable

from actors.runtime.contract import Runtime, Timer


class Pieces:
    """Of one owner; `go_on` does the next piece, and is called once for all who have asked."""

    def __init__(self, runtime: Runtime, go_on: Callable[[], None]) -> None:
        self._runtime = runtime
        self._go_on = go_on
        self._timer: Timer | None = None
        self._is_soon = False

    def ask(self, in_s: float) -> None:
        """Have the next piece done in so many seconds, if none is to be done; at once (0.0) also where one is."""
        if self._is_soon or (self._timer is not None and in_s > 0.0):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_soon = in_s <= 0.0
        self._timer = self._runtime.call_later(in_s, self._rang)

    def _rang(self) -> None:
        self._is_soon = False
        self._timer = None
        self._go_on()
