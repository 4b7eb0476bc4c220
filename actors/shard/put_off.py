"""Calls that wait for their turn. Machines, of the Admission's.

Those that one turn had no time for are done in their order. Those of clients without a token, where there is a file
of who may do what, stand in a line of their own (`StrangersSlice`, with a clock), and behind them what their clients
ask once they have shown one.

`StrangersSlice`: what an owner does in one turn for strangers, which comes back slowly while others ask. The Listener
hears strangers in such slices (`net/clients/reading_turn.py`), and what they ask for is done here in others, so that
a crowd of them holds nobody up who has shown a token: what they ask for costs as much again when it is committed,
which nobody reckons. Where nobody else asks, they have all of each turn.

`Departures`: what strangers that are gone waited for ends some in each turn, too, since hundreds may go at one
moment. Until then they stand in line, count for no limit, and get no message (`Delivery`).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from actors.messages.call import Call, Client, is_strangers
from actors.messages.rights import ANONYMOUS, ITSELF

SLICE_S: Final = 0.0005
"""Of one turn, while others ask."""

ALONE_S: Final = 0.002
"""Of one turn, while nobody else does."""

SHARE: Final = 0.1
"""Of the time, while others ask."""

OTHERS_S: Final = 0.1
"""Others ask as long as their last request is no longer ago: there is another soon."""


AT_ONCE: Final = 64
"""So many are taken for one turn; those that are not done have to be put back."""


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


class PutOff:
    """Of one owner. What it does costs what it is given, however many wait."""

    def __init__(self) -> None:
        self._known: deque[Call] = deque()
        self._strangers: deque[Call] = deque()
        self._of_strangers: dict[Client, int] = {}

    @property
    def has_any(self) -> bool:
        """Whether there are any."""
        return bool(self._known or self._strangers)

    @property
    def has_known(self) -> bool:
        """Whether there are any but those of strangers."""
        return bool(self._known)

    @property
    def has_strangers(self) -> bool:
        """Whether there are any of strangers."""
        return bool(self._strangers)

    def add(self, calls: list[Call]) -> None:
        """Put these off, behind those that were before."""
        known, strangers = self._sorted(calls)
        self._known.extend(known)
        self._strangers.extend(strangers)

    def put_first(self, calls: list[Call]) -> None:
        """Put these off, before all others."""
        known, strangers = self._sorted(calls)
        self._known.extendleft(reversed(known))
        self._strangers.extendleft(reversed(strangers))

    def _sorted(self, calls: list[Call]) -> tuple[list[Call], list[Call]]:
        """Tell those of strangers from the others; they are counted."""
        known: list[Call] = []
        strangers: list[Call] = []
        of_strangers = self._of_strangers
        for call in calls:
            if is_strangers(call) or call.client in of_strangers:
                strangers.append(call)
                of_strangers[call.client] = of_strangers.get(call.client, 0) + 1
            else:
                known.append(call)
        return known, strangers

    def take(self) -> list[Call]:
        """Those that are to be done next, but for strangers'; `put_first` takes back what was not done."""
        known = self._known
        return [known.popleft() for _ in range(min(len(known), AT_ONCE))]

    def take_stranger(self) -> Call:
        """Take the next of strangers': there is one."""
        call = self._strangers.popleft()
        count = self._of_strangers[call.client]
        if count == 1:
            del self._of_strangers[call.client]
        else:
            self._of_strangers[call.client] = count - 1
        return call

    def take_all(self) -> list[Call]:
        """Every one; they are the caller's now."""
        calls = [*self._known, *self._strangers]
        self._known.clear()
        self._strangers.clear()
        self._of_strangers.clear()
        return calls


def some_are_strangers(calls: list[Call]) -> bool:
    """Whether one of them is a stranger's."""
    for call in calls:  # noqa: SIM110  # each request comes through here, and a generator costs more when compiled
        if call.principal is not ITSELF and call.principal.name == ANONYMOUS:
            return True
    return False
