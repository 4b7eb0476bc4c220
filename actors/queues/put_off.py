"""Calls that one turn had no time for. A machine, of the Admission's.

They are done in their order, but for those of clients without a token, where there is a file of who may do what: these
stand behind all others, and behind them what their clients ask once they have shown one.
"""

from collections import deque
from typing import Final

from actors.messages.call import Call, Client
from actors.messages.rights import ANONYMOUS

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

    def add(self, calls: list[Call]) -> None:
        """Put these off, behind those that were before."""
        known, strangers = self._sorted(calls)
        self._known.extend(known)
        self._strangers.extend(strangers)

    def _sorted(self, calls: list[Call]) -> tuple[list[Call], list[Call]]:
        """Tell those of strangers from the others; they are counted."""
        known: list[Call] = []
        strangers: list[Call] = []
        of_strangers = self._of_strangers
        for call in calls:
            if call.principal.name == ANONYMOUS or call.client in of_strangers:
                strangers.append(call)
                of_strangers[call.client] = of_strangers.get(call.client, 0) + 1
            else:
                known.append(call)
        return known, strangers

    def take(self) -> list[Call]:
        """Those that are to be done next, one of a stranger's at least; `put_back` takes back what was not done."""
        calls: list[Call] = []
        known = min(len(self._known), AT_ONCE)
        while self._strangers and (not calls or len(calls) + known < AT_ONCE):
            call = self._strangers.popleft()
            calls.append(call)
            count = self._of_strangers[call.client]
            if count == 1:
                del self._of_strangers[call.client]
            else:
                self._of_strangers[call.client] = count - 1
        if known:  # behind the first of a stranger's, which else might be put back for ever
            calls[1:1] = [self._known.popleft() for _ in range(known)]
        return calls

    def put_back(self, rest: list[Call]) -> None:
        """Have the last of those that were taken be the first again."""
        known, strangers = self._sorted(rest)
        self._known.extendleft(reversed(known))
        self._strangers.extendleft(reversed(strangers))

    def take_all(self) -> list[Call]:
        """Every one; they are the caller's now."""
        calls = [*self._known, *self._strangers]
        self._known.clear()
        self._strangers.clear()
        self._of_strangers.clear()
        return calls
