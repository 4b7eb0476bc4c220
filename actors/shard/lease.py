"""Whether what a leader says of committed state holds: no other node can be leading now.

What was said before a moment at which a majority is known to have followed this node was true when it was said: it may
be told even when the lease is over (Raft's read index, 6.4 in Ongaro's dissertation). Times are monotonic seconds.
"""

import math
from collections import deque

from actors.messages.call import Answer, Call
from quorate.protocol import Reply


class Lease:
    """One ledger's. It is `now`; `is_held`: what is said now holds. At `confirmed_at` no other node led.

    `is_doubtful`: it was held, time has ended it, and no majority has answered anything that was sent since that was
    noticed; not where there was none, or it was given up. Where answers take longer than a lease lasts it is never
    held again, and another doubt begins when nobody has looked at the time for so long: the process stood still.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.is_held = True
        self.is_doubtful = False
        self.confirmed_at = math.inf
        self._until = math.inf
        self._lasts = math.inf
        self._over_since = math.inf
        self._waiting: deque[tuple[float, Call, Reply]] = deque()

    def pass_time(self, now: float) -> None:
        """Note that it is `now`."""
        stood_still = now - self.now > self._lasts
        self.now = now
        self.is_held = now < self._until
        if self.is_held or self._until == -math.inf:
            self._over_since = math.inf
            self.is_doubtful = False
        else:
            self._over_since = now if stood_still else min(self._over_since, now)
            self.is_doubtful = self.confirmed_at < self._over_since

    def renew(self, until: float, confirmed_at: float) -> list[Answer]:
        """No other node leads before `until`, and none led at `confirmed_at`. Returns what may be told now."""
        self._until, self.confirmed_at = until, confirmed_at
        self._lasts = until - confirmed_at if until > confirmed_at else math.inf
        self.pass_time(self.now)
        free: list[Answer] = []
        waiting = self._waiting
        while waiting and (self.is_held or waiting[0][0] <= confirmed_at):
            _, call, reply = waiting.popleft()
            free.append((call, reply))
        return free

    def wait(self, said_at: float, call: Call, reply: Reply) -> None:
        """Tell what was said then when it is known to have held."""
        self._waiting.append((said_at, call, reply))

    @property
    def last_waiting(self) -> Call | None:
        """The newest call whose answer waits."""
        return self._waiting[-1][1] if self._waiting else None

    def take_last(self, call: Call) -> Reply | None:
        """Take back what the newest call that waits is to be told, if it is this one."""
        return self._waiting.pop()[2] if self.last_waiting is call else None

    def take_waiting(self) -> list[Answer]:
        """Hand over what is not known to hold; it is the caller's now."""
        taken = [(call, reply) for _, call, reply in self._waiting]
        self._waiting.clear()
        return taken
