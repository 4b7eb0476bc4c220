"""Links that come and go many times a minute: a node runs twice, say, with a copied folder. A machine of Links."""

from collections import deque
from typing import Final

WITHIN_S: Final = 60.0
"""Changes of so long are counted, and so often it is said that there are many."""

MANY: Final = 8
"""So many changes within that time are told one by one; what a node that starts or stops makes are fewer."""


class Changes:
    """Counts for each node; times are monotonic seconds."""

    def __init__(self) -> None:
        self._at: dict[int, deque[float]] = {}
        self._told_at: dict[int, float] = {}

    def are_many(self, now: float, node_id: int) -> bool:
        """Note that the link to a node has come or gone; whether it has done so many times lately."""
        times = self._at.setdefault(node_id, deque(maxlen=MANY + 1))
        times.append(now)
        return len(times) > MANY and now - times[0] < WITHIN_S

    def is_to_be_told(self, now: float, node_id: int) -> bool:
        """Whether it was not said of that node within the last minute."""
        if now - self._told_at.get(node_id, -WITHIN_S) < WITHIN_S:
            return False
        self._told_at[node_id] = now
        return True
