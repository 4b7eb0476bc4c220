"""Calls that wait for their turn. A machine, of the Admission's.

Those that one turn had no time for are done in their order. Those of clients without a token, where there is a file of
who may do what, stand in a line of their own (`StrangersSlice`), and behind them what their clients ask once they have
shown one.
"""

from collections import deque
from typing import Final

from actors.messages.call import Call, Client, is_strangers
from actors.messages.rights import ANONYMOUS, ITSELF

AT_ONCE: Final = 64
"""So many are taken for one turn; those that are not done have to be put back."""


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
