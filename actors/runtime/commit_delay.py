"""Whether to write now, or to wait a moment for the clients that were just answered to ask again. A machine.

Clients that wait for each reply fall into two groups that take turns: while one group's entry is being written, the
other's requests gather, and every request waits for two writes. Right after a commit it pays to wait until as many
replies wait as could: those that waited already and those that were just freed. With 8 clients that is 1.4 times the
requests a second (bench/throughput.py); PostgreSQL's commit_delay with commit_siblings is the same idea. When the
clients do not come back in time they have something else to do, and the next commits do not wait for them.
"""

from typing import Final

GATHER_S: Final = 0.0003
"""The longest wait: about two writes on a quick disk."""

GATHER_FEW_S: Final = 0.001
"""The same for few clients, where an entry goes to other nodes, too: two half full ones cost each node twice as much.
8 clients of three nodes do 1.15 times the requests so, with 8 instead of 5 in an entry."""

ENOUGH: Final = 32
"""With so many replies an entry is full enough: waiting for more costs more than it saves."""

SKIPPED_MAX: Final = 64
"""Commits that do not wait, after so many waits in vain that it has doubled to this."""

ROUNDED_S: Final = 1e-6
"""So much longer is waited, since a clock and what is left to wait are rounded when they are added."""


class CommitDelay:
    """Times are monotonic seconds, counts are of replies."""

    def __init__(self) -> None:
        self._wanted = 0
        self._until = 0.0
        self._skips = 0
        self._skip_next = 1

    def committed(self, now: float, still_parked: int, freed: int, *, is_shared: bool = False) -> None:
        """Note that an entry is durable, which freed so many replies; others still wait for a later one.

        `is_shared`: entries go to other nodes as well.
        """
        if self._skips:
            self._skips -= 1
            self._wanted = 0
            return
        self._wanted = still_parked + freed
        self._until = now + (GATHER_FEW_S if is_shared and self._wanted < ENOUGH else GATHER_S)

    def left_s(self, now: float) -> float:
        """For how long an entry waits at most from now on; then it is over, whoever comes, and whatever was rounded."""
        return max(self._until - now, 0.0) + ROUNDED_S

    def is_over(self, now: float, parked: int) -> bool:
        """Whether the entry that so many replies wait for is to be written now."""
        if parked >= min(self._wanted, ENOUGH):
            if self._wanted:
                self._skip_next = 1
            return True
        if now < self._until:
            return False
        self._wanted = 0
        self._skips = self._skip_next
        self._skip_next = min(self._skip_next * 2, SKIPPED_MAX)
        return True
