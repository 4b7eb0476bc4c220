"""What a leader knows of its followers, and what follows from it: pure functions of a small map."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

WINDOW_BYTES: Final = 4 << 20
"""Bytes pushed to a follower that it has not stored; with more it has to pull, so that it costs no more memory."""


class Progress:
    """One follower, as the leader of one vote_id sees it.

    `match`: its disk agrees with the leader's log up to that record. `sent`: the last record that was pushed to it;
    None while it has to pull. `echo`: when the leader sent what the follower has answered last (s). `heard_at`: when it
    answered last. `window_bytes`: what may be on its way to it.
    """

    def __init__(self, now: float, window_bytes: int = WINDOW_BYTES) -> None:
        self._window_bytes = window_bytes
        self.match = 0
        self.sent: int | None = None
        self.echo = -math.inf
        self.heard_at = now
        self.last_push_at = -math.inf
        self._under_way: deque[tuple[int, int]] = deque()
        self._under_way_bytes = 0

    def is_pushable(self, after: int) -> bool:
        """Whether entries behind record `after` can be pushed to it now."""
        return self.sent == after and self._under_way_bytes <= self._window_bytes

    def pushed(self, last_trans_id: int, size: int) -> None:
        """Entries of so many bytes, ending with that record, are on their way to it."""
        self.sent = last_trans_id
        self._under_way.append((last_trans_id, size))
        self._under_way_bytes += size

    def must_pull(self) -> None:
        """It can't follow, or did not get what was pushed."""
        self.sent = None
        self._under_way.clear()
        self._under_way_bytes = 0

    def stored(self, trans_id: int, echo: float, now: float) -> None:
        """It has answered."""
        self.match = max(self.match, trans_id)
        self.echo = max(self.echo, echo)
        self.heard_at = now
        while self._under_way and self._under_way[0][0] <= self.match:
            self._under_way_bytes -= self._under_way.popleft()[1]


def on_nodes(matches: Iterable[int]) -> tuple[int, ...]:
    """At least n nodes have the records up to the n-th of the result."""
    return tuple(sorted(matches, reverse=True))


def on_majority(matches: list[int]) -> int:
    """The last record that a majority of the voters has, given each one's last."""
    return sorted(matches, reverse=True)[len(matches) // 2] if matches else 0


def heard_by_majority(echoes: list[float]) -> float:
    """The latest moment at which a majority had heard from the leader; `echoes` has infinity for the leader itself."""
    return sorted(echoes, reverse=True)[len(echoes) // 2] if echoes else -math.inf
