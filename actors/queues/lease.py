"""Whether what a leader says of committed state holds: no other node can be leading now. A machine.

What was said before a moment at which a majority is known to have followed this node was true when it was said: it may
be told even when the lease is over (Raft's read index, 6.4 in Ongaro's dissertation). Times are monotonic seconds.
"""

import math
from collections import deque

from actors.messages.call import Answer, Call
from quorate.protocol import Reply


class Lease:
    """One ledger's. It is `now`; `is_held`: what is said now holds. At `confirmed_at` no other node led."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_held = True
        self.confirmed_at = math.inf
        self._until = math.inf
        self._waiting: deque[tuple[float, Call, Reply]] = deque()

    def pass_time(self, now: float) -> None:
        """Note that it is `now`."""
        self.now = now
        self.is_held = now < self._until

    def renew(self, until: float, confirmed_at: float) -> list[Answer]:
        """No other node leads before `until`, and none led at `confirmed_at`. Returns what may be told now."""
        self._until, self.confirmed_at = until, confirmed_at
        self.is_held = self.now < until
        free: list[Answer] = []
        waiting = self._waiting
        while waiting and (self.is_held or waiting[0][0] <= confirmed_at):
            _, call, reply = waiting.popleft()
            free.append((call, reply))
        return free

    def wait(self, said_at: float, call: Call, reply: Reply) -> None:
        """Tell what was said then when it is known to have held."""
        self._waiting.append((said_at, call, reply))

    def take_waiting(self) -> list[Answer]:
        """Hand over what is not known to hold; it is the caller's now."""
        taken = [(call, reply) for _, call, reply in self._waiting]
        self._waiting.clear()
        return taken
