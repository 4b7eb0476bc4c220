"""What an owner does in one turn for strangers: a slice, which comes back slowly while others ask. A machine, with a
clock.

The Listener hears strangers a fifth of the time (`net/clients/reading_turn.py`); what they ask for is done here in such
a part as well, so that a crowd of them holds nobody up who has shown a token. Where nobody else asks, they have a slice
of each turn.
"""

from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.001
"""Of one turn."""

SHARE: Final = 0.2
"""Of the time, while others ask."""

OTHERS_S: Final = 0.1
"""Others ask as long as their last request is no longer ago: there is another soon."""


class StrangersSlice:
    """Of one owner. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left_s = SLICE_S
        self._at = clock()
        self._others_until = self._at

    def others_ask(self) -> None:
        """Note that somebody else asks."""
        self._others_until = self._clock() + OTHERS_S

    def begin(self) -> float:
        """Give back what has come back, and say what the time is."""
        now = self._clock()
        if now >= self._others_until:
            self._left_s = SLICE_S
        else:
            self._left_s = min(self._left_s + (now - self._at) * SHARE, SLICE_S)
        self._at = now
        return now

    @property
    def has_time(self) -> bool:
        """Whether something more may be begun."""
        return self._left_s > 0.0

    def spent(self, since: float) -> float:
        """Reckon what has been done since then, and say what the time is."""
        now = self._clock()
        self._left_s -= now - since
        return now

    @property
    def in_s(self) -> float:
        """In how many seconds half of a slice is there; 0.0: in the next turn."""
        if self._left_s > 0.0 or self._at >= self._others_until:
            return 0.0
        return (SLICE_S / 2 - self._left_s) / SHARE
