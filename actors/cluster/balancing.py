"""Spreading the leaders of the shards over the nodes: when this node's place should go to another. A machine.

Each shard has a node that should lead it (`preferred`). Another that leads gives its place to it, by a hand-over, when
that node has been a good successor for `after_s` on end: so a node that comes back gets its shards back, and one that
comes and goes does not.
"""

from actors.cluster.membership import CAUGHT_UP_RECORDS
from actors.cluster.progress import Progress
from actors.cluster.root_members import preferred
from storage.records import Members


class Balancing:
    """For one shard of `shards` on one node. `after_s` 0: never by itself. Times are monotonic seconds.

    A node that was not heard for `heard_s` is no successor.
    """

    def __init__(self, shard: int, shards: int, after_s: float, heard_s: float = 1.0) -> None:
        self.heard_s = heard_s
        self.shard = shard
        self.shards = shards
        self.is_needed = shards > 1
        self._after_s = after_s
        self._good_since: float | None = None

    def wanted(self, members: Members, node_id: int) -> int | None:
        """Who should lead instead of node `node_id`; None if it is the one."""
        target = preferred(members, self.shard) if self.is_needed else 0
        return target if target not in (0, node_id) else None

    def fault(self, now: float, target: int, its: Progress | None, log_end: int) -> str | None:
        """Why that node, which is so far in a log that ends at record `log_end`, can't take over just now."""
        if its is None or now - its.heard_at >= self.heard_s:
            return f"node {target} was not heard for {self.heard_s:g} s"
        if its.is_full:
            return f"the disk of node {target} is full"
        if its.match + CAUGHT_UP_RECORDS < log_end:
            return f"node {target} has not caught up"
        return None

    def target(
        self, now: float, members: Members, node_id: int, progress: dict[int, Progress], log_end: int
    ) -> int | None:
        """Whom the place of node `node_id` is to go to now."""
        if not self.is_needed or not self._after_s:
            return None
        wanted = self.wanted(members, node_id)
        if wanted is None or self.fault(now, wanted, progress.get(wanted), log_end) is not None:
            self._good_since = None
            return None
        if self._good_since is None:
            self._good_since = now
        if now - self._good_since < self._after_s:
            return None
        self._good_since = now
        return wanted

    def deposed(self) -> None:
        """Forget the balance: this node does not lead any more."""
        self._good_since = None
