"""What a follower does: takes what the leader pushes, pulls what it lacks, drops what the leader's log contradicts.

A part of `Replication`. Nothing is dropped that is known to be committed; stored is said when the disk has it, and
only of records that are known to agree with this leader's.
"""

import math
from collections import deque
from typing import Final

from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ELECTOR, PEERS, ReplicatedLog
from actors.messages.election import LeaderHeard
from actors.messages.peers import CutPeer, SendPeers
from net.peers.messages import Diverged, Pull, Push, Stored
from storage import entry as entry_codec
from storage.entry import StoredEntry
from storage.errors import DamagedError
from storage.log_tail import LogEnd, LogTail
from storage.records import Members

PULL_RECORDS_MAX: Final = 20_000
PULL_RETRY_S: Final = 0.5
TAIL_BYTES_MAX: Final = 32 << 20
"""A follower pulls nothing more while so much of its log waits for the disk or for its commit."""


class Following(ReplicatedLog):
    """`leader` is who leads in `vote_id`, None while nobody is known to; `records_per_s` is what pulls may take."""

    def __init__(
        self,
        tail: LogTail,
        membership: Membership,
        committed: int,
        vote_id: int,
        timeout_s: float,
        records_per_s: int,
        now: float,
    ) -> None:
        super().__init__(tail, membership, committed, vote_id)
        self.leader: int | None = None
        self.peer_cluster_id = 0
        self._timeout_s = timeout_s
        self._heartbeat_s = timeout_s / 8
        self._records_per_s = records_per_s
        self._leader_committed = committed
        self._echo = -math.inf
        self._told_elector_at = -math.inf
        self._pull_sent_at: float | None = None
        self._allowance = float(records_per_s)
        self._allowed_at = now
        self._next_pull_at = math.inf

    def push(self, now: float, node_id: int, push: Push) -> None:
        """The leader's entries, or a heartbeat, or what was pulled."""
        if push.vote_id < self.vote_id:
            self.out.append((PEERS, SendPeers((node_id,), Stored(self.vote_id, 0, -math.inf))))
            return None
        if not self._is_from_leader(now, push.vote_id, node_id):
            return None
        if self.is_installing:
            return self._say_stored()  # a snapshot takes the log's place just now
        if push.is_pulled:
            self._pull_sent_at = None
        try:
            fits = self._accept(push)
        except DamagedError as error:
            self.out.append((PEERS, CutPeer(node_id, str(error))))
            return None
        self._echo = max(self._echo, push.sent_at)
        if fits:
            self._leader_committed = max(self._leader_committed, push.committed)
            self._advance_following()
        if not push.entries or not self._writing:
            self._say_stored()
        if not fits or (push.is_pulled and not push.is_end):
            self.pull(now)
        return None

    def _is_from_leader(self, now: float, vote_id: int, node_id: int) -> bool:
        """Whether this is the leader that this node follows; the Elector hears of it either way."""
        is_known = vote_id == self.vote_id and node_id == self.leader
        if not is_known or now - self._told_elector_at >= self._heartbeat_s / 4:
            self._told_elector_at = now
            self.out.append((ELECTOR, LeaderHeard(vote_id, node_id, self.peer_cluster_id)))
        return is_known

    def _accept(self, push: Push) -> bool:
        """Take what is new of a push; False if it does not follow what is here. Raises `DamagedError`."""
        tail = self.tail
        if push.after > tail.end.trans_id:
            return False
        if push.after > self.committed and tail.vote_id_at(push.after) != push.after_vote_id:
            return False
        if push.entries and tail.bytes > 2 * TAIL_BYTES_MAX:
            return False  # LMDB is behind: the leader may push on when this node has pulled
        after = push.after
        new: list[StoredEntry] = []
        for data in push.entries:
            entry = entry_codec.received_entry(data, f"an entry behind {after}")
            if entry.first_trans_id != after + 1 or entry.vote_id > push.vote_id:
                raise DamagedError(f"an entry behind {after}", f"it holds {entry[:3]}, said under {push.vote_id}")
            after = entry.last_trans_id
            if new or (after > self.committed and tail.vote_id_at(after) != entry.vote_id):
                new.append(entry)
        if new:
            if new[0].first_trans_id <= tail.end.trans_id:
                self._cut(new[0].first_trans_id - 1)
            for entry in new:
                self._take(entry)
            self._write(new)
            if push.is_pulled:
                self._allowance -= new[-1].last_trans_id - new[0].first_trans_id + 1
        self._agreed = max(self._agreed, after)
        return True

    def _advance_following(self) -> None:
        committed = min(self._leader_committed, self._agreed, self.stored)
        if committed > self.committed:
            self._settle(committed)
        self._apply_committed()

    def _say_stored(self) -> None:
        assert self.leader is not None
        stored = Stored(self.vote_id, min(self.stored, self._agreed), self._echo)
        self.out.append((PEERS, SendPeers((self.leader,), stored)))

    def pull(self, now: float) -> None:
        """Ask the leader for what follows this log, unless it was asked already or the rate does not allow it yet."""
        if self.leader is None or self.is_leading or self.is_installing:
            return
        if self._pull_sent_at is not None and now - self._pull_sent_at < PULL_RETRY_S:
            return
        allowed = self.allowed_records(now)
        if allowed < 1 or self.tail.bytes > TAIL_BYTES_MAX:
            self._next_pull_at = now + 0.02
            return
        self._next_pull_at = math.inf
        self._pull_sent_at = now
        end = self.tail.end
        pull = Pull(self.vote_id, end.trans_id, end.vote_id, min(int(allowed), PULL_RECORDS_MAX))
        self.out.append((PEERS, SendPeers((self.leader,), pull)))

    def allowed_records(self, now: float) -> float:
        """How many records (or rows) may be pulled now."""
        passed = max(now - self._allowed_at, 0.0)
        self._allowed_at = now
        self._allowance = min(self._allowance + passed * self._records_per_s, self._records_per_s / 5)
        return self._allowance

    def spend(self, records: int) -> None:
        """So many rows were pulled."""
        self._allowance -= records

    @property
    def next_pull_at(self) -> float:
        """When `pull` is to be called again."""
        return self._next_pull_at

    def diverged(self, now: float, node_id: int, message: Diverged) -> None:
        """The leader's log is another one behind some record: drop what is behind it, and pull again."""
        if message.vote_id != self.vote_id or node_id != self.leader:
            return
        if self.tail.end != LogEnd(message.after_vote_id, message.after):
            return  # an answer come late: the log is another one since
        up_to = max(self.tail.boundary(message.up_to), self.committed, self._agreed)
        if up_to < self.tail.end.trans_id:
            self._cut(up_to)
            self._pull_sent_at = None
            self.pull(now)

    # -- snapshots ---------------------------------------------------------------------------------------------

    def is_behind(self, trimmed: int) -> bool:
        """Whether a log that begins behind record `trimmed` would be news here."""
        return self.tail.end.trans_id < trimmed and not self.is_installing

    def installed(self, now: float, trimmed: int, vote_id: int, members: Members | None) -> None:
        """A snapshot has taken the place of all that LMDB held; the log goes on behind record `trimmed`."""
        self.is_installing = False
        self.tail.reset(trimmed, vote_id)
        self.committed = self.stored = self.trimmed = trimmed
        self._agreed = self._leader_committed = trimmed
        self._writing = deque((count, trimmed) for count, _ in self._writing)
        self.membership.replaced(members)
        self.is_reloading = False
        self.reload()
        self._pull_sent_at = None
        self.pull(now)
