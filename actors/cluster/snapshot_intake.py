"""Taking a snapshot in, part by part. A machine of a follower that is behind the log's head.

Parts are kept beside what is there; only the last one makes the snapshot count. After a break it goes on where it
was, as long as it is the same leader's and that one has not trimmed its log since; otherwise it begins again.
"""

import math
from typing import Final

from actors.cluster.decisions import Decisions
from actors.cluster.following import PULL_RETRY_S, Following, Pace
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.checkpoints import PartStaged, StagePart
from actors.messages.peers import CutPeer, SendPeers
from net.peers.messages import SnapshotNeeded, SnapshotPull, SnapshotRows
from storage.errors import DamagedError
from storage.log_store import SnapshotPart, Staged
from storage.sections import padded
from storage.snapshot_check import check_part

PATIENCE_S: Final = 60.0
"""A part that has not come by then is asked for again, whatever else is coming in."""


class SnapshotIntake:
    """`staged` is what an earlier run had kept. It outlives the roles: what is kept is of use to the next one, too."""

    def __init__(self, log: ReplicatedLog, pace: Pace, staged: Staged | None) -> None:
        self._log = log
        self._pace = pace
        self._staged = staged
        self._wanted: int | None = None
        self._is_staging = False
        self._asked_at = -math.inf
        self.next_at = math.inf

    def needed(self, now: float, role: Following, message: SnapshotNeeded) -> Decisions:
        """Begin a snapshot: the leader's log begins behind `trimmed`."""
        if self._is_staging or not self._log.is_behind(message.trimmed):
            return []
        staged = self._staged
        if staged is None or staged.trimmed != message.trimmed or staged.source != role.leader:
            self._staged = None
        self._wanted = message.trimmed
        return self.ask(now, role)

    def ask(self, now: float, role: Following) -> Decisions:
        """Ask for the next part, if one is wanted and the rate allows it."""
        if self._wanted is None or role.leader is None or self._is_staging:
            return []
        if self._pace.allowed(now) < 1:
            self.next_at = now + 0.02
            return []
        self.next_at = now + PULL_RETRY_S
        self._asked_at = now
        cursor = b"" if self._staged is None else self._staged.cursor
        return [SendPeers((role.leader,), SnapshotPull(role.vote_id, self._wanted, cursor))]

    def receiving(self, now: float) -> None:
        """Something of the leader's is coming in: the part that was asked for, or what stands before it."""
        if self._wanted is not None and not self._is_staging and now < self._asked_at + PATIENCE_S:
            self.next_at = max(self.next_at, now + PULL_RETRY_S)

    def linked(self, now: float) -> None:
        """Ask again over a new link to a node: what was asked for over the one before may be lost."""
        if self._wanted is not None and not self._is_staging:
            self.next_at = now

    def tick(self, now: float, role: Following) -> Decisions:
        """Ask again, or for what the rate did not allow before."""
        if now < self.next_at:
            return []
        self.next_at = math.inf
        return self.ask(now, role)

    def rows(self, now: float, role: Following, message: SnapshotRows) -> Decisions:
        """Take in a part that has come."""
        log = self._log
        if self._is_staging:
            return []
        if message.trimmed != self._wanted:
            if not log.is_behind(message.trimmed) or self._wanted is None:
                return []
            self._wanted = message.trimmed  # trimmed since: begin again
            self._staged = None
            return self.ask(now, role)
        expected = b"" if self._staged is None else self._staged.cursor
        if message.after_cursor != expected:
            return []
        if not log.is_behind(message.trimmed):
            self._wanted = None
            return []
        self._pace.spend(len(message.rows))
        part = SnapshotPart(
            message.trimmed,
            message.trimmed_vote_id,
            message.rows,
            message.cursor,
            message.is_last,
            padded((message.members, message.readers, *message.sections)),
        )
        assert role.leader is not None
        try:
            check_part(part)
        except DamagedError as error:
            return [CutPeer(role.leader, str(error))]
        self._is_staging = True
        log.is_installing = message.is_last
        return [StagePart(part, role.leader, self._staged is None)]

    def staged(self, now: float, message: PartStaged) -> bool:
        """Note that a part is kept; True if it was the last: the snapshot counts now."""
        self._is_staging = False
        if message.refused is not None:
            self._log.is_installing = False
            self.next_at = now + PULL_RETRY_S
            return False
        part = message.part
        if part.is_last:
            self._wanted = self._staged = None
            self.next_at = math.inf
            return True
        self._staged = Staged(part.trimmed, message.source, part.cursor)
        return False
