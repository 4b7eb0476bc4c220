"""Links that come and go many times a minute: a node runs twice, say, with a copied folder. A machine of Links."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger("quorate.peers")

WITHIN_S: Final = 60.0
"""Changes of so long are counted, and so often it is said that there are many."""

MANY: Final = 8
"""So many changes within that time are told one by one; what a node that starts or stops makes are fewer."""


NODES_MAX: Final = 1000


class Changes:
    """Counts for each node, and says once a minute of which there are many; times are monotonic seconds."""

    def __init__(self, say: Callable[[int], None]) -> None:
        self._say = say
        self._at: dict[int, deque[float]] = {}
        self._told_at: dict[int, float] = {}

    def note(self, now: float, node_id: int) -> bool:
        """Note that the link to a node has come or gone; whether it has done so many times lately."""
        if len(self._at) >= NODES_MAX:  # a node that belongs to no cluster hears whatever number a stranger says
            self._at.clear()
            self._told_at.clear()
        times = self._at.setdefault(node_id, deque(maxlen=MANY + 1))
        times.append(now)
        if len(times) <= MANY or now - times[0] >= WITHIN_S:
            return False
        if now - self._told_at.get(node_id, -WITHIN_S) >= WITHIN_S:
            self._told_at[node_id] = now
            log.warning("links to node %d come and go many times a minute: does a node run twice, on a copy?", node_id)
            self._say(node_id)
        return True
