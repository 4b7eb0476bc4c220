"""Taking a snapshot in, part by part. A machine of a follower that is behind the log's head.

Parts are kept beside what is there; only the last one makes the snapshot count. After a break it goes on where it
was, as long as it is the same leader's and that one has not trimmed its log since; otherwise it begins again.
"""

from typing import Any

from actors.cluster.following import PULL_RETRY_S
from actors.cluster.replicated_log import CHECKPOINTER, PEERS
from actors.cluster.replication import Replication
from actors.messages.checkpoints import PartStaged, StagePart
from actors.messages.peers import SendPeers
from net.peers.messages import SnapshotNeeded, SnapshotPull, SnapshotRows
from storage.log_store import SnapshotPart, Staged


class SnapshotIntake:
    """`staged` is what an earlier run had kept. Sends through `replication.out`."""

    def __init__(self, replication: Replication, staged: Staged | None) -> None:
        self._replication = replication
        self._staged = staged
        self._wanted: int | None = None
        self._asked_at: float | None = None
        self._is_staging = False
        self.next_at = float("inf")

    def needed(self, now: float, node_id: int, message: SnapshotNeeded) -> None:
        """The leader's log begins behind `trimmed`."""
        replication = self._replication
        if message.vote_id != replication.vote_id or node_id != replication.leader or self._is_staging:
            return
        if not replication.is_behind(message.trimmed):
            return
        staged = self._staged
        if staged is None or staged.trimmed != message.trimmed or staged.source != node_id:
            self._staged = None
        self._wanted = message.trimmed
        self._ask(now)

    def _ask(self, now: float) -> None:
        replication = self._replication
        if self._wanted is None or replication.leader is None or self._is_staging:
            return
        if replication.allowed_records(now) < 1:
            self.next_at = now + 0.02
            return
        self._asked_at = now
        self.next_at = now + PULL_RETRY_S
        cursor = b"" if self._staged is None else self._staged.cursor
        pull = SnapshotPull(replication.vote_id, self._wanted, cursor)
        replication.out.append((PEERS, SendPeers((replication.leader,), pull)))

    def tick(self, now: float) -> None:
        """Ask again, or for what the rate did not allow before."""
        if now >= self.next_at:
            self.next_at = float("inf")
            self._ask(now)

    def rows(self, now: float, node_id: int, message: SnapshotRows, reply_to: Any) -> None:
        """A part has come."""
        replication = self._replication
        if message.vote_id != replication.vote_id or node_id != replication.leader or self._is_staging:
            return
        if message.trimmed != self._wanted:
            if replication.is_behind(message.trimmed) and self._wanted is not None:
                self._wanted = message.trimmed  # trimmed since: begin again
                self._staged = None
                self._ask(now)
            return
        expected = b"" if self._staged is None else self._staged.cursor
        if message.after_cursor != expected:
            return
        if not replication.is_behind(message.trimmed):
            self._wanted = None
            return
        replication.spend(len(message.rows))
        part = SnapshotPart(
            message.trimmed, message.trimmed_vote_id, message.members, message.rows, message.cursor, message.is_last
        )
        self._is_staging = True
        replication.is_installing = message.is_last
        stage = StagePart(part, node_id, self._staged is None, reply_to)
        replication.out.append((CHECKPOINTER, stage))

    def staged(self, now: float, message: PartStaged, source: int) -> bool:
        """A part is kept; True if it was the last: the snapshot counts now."""
        self._is_staging = False
        if message.refused is not None:
            self._replication.is_installing = False
            self.next_at = now + PULL_RETRY_S
            return False
        part = message.part
        if part.is_last:
            self._wanted = self._staged = None
            self.next_at = float("inf")
            return True
        self._staged = Staged(part.trimmed, source, part.cursor)
        self._ask(now)
        return False
