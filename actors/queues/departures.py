"""Strangers that are gone: what they waited for ends some in each turn, since hundreds may go at one moment.

Until then they stand in line, count for no limit, and get no message (`Delivery`).
"""

from collections import deque
from collections.abc import Callable

from actors.messages.call import Client
from actors.queues.strangers_slice import StrangersSlice


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
