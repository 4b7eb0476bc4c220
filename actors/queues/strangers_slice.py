"""What an owner does in one turn for strangers: a slice, which comes back slowly while others ask. A machine, with a
clock.

The Listener hears strangers in such slices (`net/clients/reading_turn.py`), and what they ask for is done here in
others, so that a crowd of them holds nobody up who has shown a token: what they ask for costs as much again when it is
committed, which nobody reckons. Where nobody else asks, they have all of each turn.

`Departures`: what strangers that are gone waited for ends some in each turn, too, since hundreds may go at one moment.
Until then they stand in line, count for no limit, and get no message (`Delivery`).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from actors.messages.call import Client

SLICE_S: Final = 0.0005
"""Of one turn, while others ask."""

ALONE_S: Final = 0.002
"""Of one turn, while nobody else does."""

SHARE: Final = 0.1
"""Of the time, while others ask."""

OTHERS_S: Final = 0.1
"""Others ask as long as their last request is no longer ago: there is another soon."""


class StrangersSlice:
    """Of one owner. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left_s = ALONE_S
        self._at = clock()
        self._others_until = self._at
        self._others_asked = False

    def others_ask(self) -> None:
        """Note that somebody else asks."""
        self._others_asked = True

    def begin(self) -> float:
        """Give back what has come back, and say what the time is."""
        now = self._clock()
        if self._others_asked:
            self._others_asked = False
            self._others_until = now + OTHERS_S
        if now >= self._others_until:
            self._left_s = ALONE_S
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


class Departures:
    """Of one owner. `part`: of a turn, that strangers have."""

    def __init__(self, part: StrangersSlice) -> None:
        self._part = part
        self._gone: deque[Client] = deque()

    @property
    def has_any(self) -> bool:
        """Whether there is more to do."""
        return bool(self._gone)

    def note(self, client: Client) -> None:
        """Have a client forgotten soon."""
        self._gone.append(client)

    def go_on(self, forget: Callable[[Client], None]) -> None:
        """Forget some, one at least."""
        gone, part = self._gone, self._part
        if not gone:
            return
        at = part.begin()
        while gone:
            forget(gone.popleft())
            at = part.spent(at)
            if not part.has_time:
                break
