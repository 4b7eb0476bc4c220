"""Leading: pushes entries, answers pulls, counts who has stored what, commits, and knows how long it leads for certain.

A role: it begins when the Elector says so, for one vote_id, and all that it knows of followers ends with it.

Raft's rules for a leader (Ongaro's dissertation), and where they are kept:

- an entry of an older vote_id is committed only together with one of the own (3.6.2, figure 3.7: `_commit`);
- the leader's own disk counts as any other, so entries go to followers while they are being written here (10.2.1);
- what a leader says of its state holds only while nobody else can be leading: until `leased_until` by the clocks
  (6.4.1), and of any earlier moment as soon as a majority has answered what was sent after it, `confirmed_at` (6.4).
"""

import math
from typing import Final

from actors.cluster.decisions import Decisions
from actors.cluster.following import PULL_RECORDS_MAX, ReplicationLimits
from actors.cluster.progress import Progress, heard_by_majority, on_majority, on_nodes
from actors.cluster.pushing import Pushing
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.checkpoints import EntriesRead, ReadEntries, ReadSnapshot, SnapshotRead
from actors.messages.election import QuorumHeard
from actors.messages.log import LogAdvanced
from actors.messages.peers import SendPeers
from net.peers.messages import Diverged, Pull, Push, SnapshotNeeded, SnapshotPull, SnapshotRows, Stored
from storage import entry_codec
from storage.entry import StoredEntry

LEASE_PART: Final = 0.65
"""How much of what its followers promised a leader counts on: of the least election time-out of each.

The rest is for clocks whose paces differ by up to 40 % (docs/guarantees.md), and for the 1/32 of a time-out by which
a follower's Elector may hear of a heartbeat late: (1 - 1/32) / 0.65 is 1.49.
"""


STUCK_TIMEOUTS: Final = 3.0
"""A write that takes so many election time-outs is taken for one that will not end."""


class Leading:
    """In `vote_id`, from its beginning at `now` (monotonic seconds, as all times here)."""

    def __init__(self, log: ReplicatedLog, limits: ReplicationLimits, vote_id: int, now: float) -> None:
        self.log = log
        self.vote_id = vote_id
        self.leader = log.node_id
        self._limits = limits
        self._led_from = log.tail.end.trans_id + 1
        self._is_lease_given_up = False
        self._tells_quorum_at = -math.inf
        self._has_full = False
        self._counted = 0
        self._members = log.membership.current
        end = log.tail.end.trans_id  # most follow already; one that does not pulls
        self.progress = {node_id: Progress(now, limits.window_bytes, end) for node_id in log.membership.others}
        self.pushing = Pushing(log, self.progress, vote_id, limits.push_bytes, limits.lateness)

    @property
    def is_settled(self) -> bool:
        """Whether an entry of the own vote_id is committed."""
        # Before that it does not know what is committed: entries of earlier leaders may be, or not (3.6.2, 6.4).
        return self.log.committed >= self._led_from

    # -- from the owner ----------------------------------------------------------------------------------------

    def append(self, now: float, entries: list[StoredEntry], *, is_counted: bool = False) -> Decisions:
        """Write the owner's next entries: to the own disk, and to followers at the same time (`Pushing`).

        `is_counted`: the owner is to hear of each node that has them.
        """
        log = self.log
        if is_counted:
            self._counted = entries[-1].last_trans_id
        after = log.tail.end
        decisions = log.append(entries, others_wait=bool(self.progress))
        log.applied = log.tail.end.trans_id
        has_new_members = log.membership.current is not self._members
        # The last members in the log count from here on, committed or not (4.1).
        if has_new_members:
            self._meet_members()
        if not self.progress:
            return decisions
        decisions += self.pushing.append(now, after, entries)
        return decisions + self.pushing.push_late(now) if has_new_members else decisions

    def written(self, now: float) -> Decisions:
        """Note that this node's disk has more of the log."""
        self.pushing.written(now)
        self._commit()
        return [self.advanced(now)]

    def _meet_members(self) -> None:
        """Followers come and go as soon as the record that says so is in the log."""
        self._members = self.log.membership.current
        others = self.log.membership.others
        for node_id in [one for one in self.progress if one not in others]:
            del self.progress[node_id]
        for node_id in others:
            if node_id not in self.progress:
                self.progress[node_id] = Progress(-math.inf, self._limits.window_bytes)

    # -- saying that it leads ----------------------------------------------------------------------------------

    def tick(self, now: float) -> Decisions:
        """Time has passed: say that this node leads, to all who have not heard from it for a moment."""
        self.log.writing.silent_s(now)
        if not self.progress:
            return []
        decisions: Decisions = self.pushing.push_late(now)
        heartbeat_s = self.heartbeat_s
        by_place: dict[int, list[int]] = {}
        for node_id, progress in self.progress.items():
            if now - progress.last_push_at < heartbeat_s / 2:
                continue
            progress.last_push_at = now
            if progress.match < (progress.sent or 0) and now - progress.heard_at > self._limits.timeout_s:
                progress.must_pull(now)
            place = self.log.tail.end.trans_id if progress.sent is None else progress.sent
            by_place.setdefault(place, []).append(node_id)
        for after, nodes in by_place.items():
            after_vote_id = self.log.tail.vote_id_at(after)
            assert after_vote_id is not None
            push = Push(self.vote_id, after, after_vote_id, [], self.log.committed, now)
            decisions.append(SendPeers(tuple(nodes), push))
        return decisions + self._tell_quorum(now)

    def _tell_quorum(self, now: float) -> Decisions:
        if now < self._tells_quorum_at:
            return []
        self._tells_quorum_at = now + self.heartbeat_s / 2
        return [QuorumHeard(heard_by_majority(self._of_voters(now, "heard_at"))), self.advanced(now)]

    def _of_voters(self, now: float, moment: str) -> list[float]:
        """For each voter, when this node heard from it (`heard_at`), or sent what it has answered (`echo`)."""
        node_id, progress = self.log.node_id, self.progress
        return [
            now if voter == node_id else getattr(progress[voter], moment) if voter in progress else -math.inf
            for voter in self.log.membership.voters
        ]

    def advanced(self, now: float) -> LogAdvanced:
        """Where the log is, for the owner."""
        log = self.log
        if self.progress:
            confirmed_at = heard_by_majority(self._of_voters(now, "echo"))
            leased_until = self._leased_until()
            replicas = on_nodes([log.durable, *(progress.match for progress in self.progress.values())])
        else:
            confirmed_at, leased_until, replicas = now, math.inf, (log.durable,)
        return LogAdvanced(
            durable=log.durable,
            committed=log.committed,
            trimmed=log.trimmed,
            replicas=replicas,
            leased_until=-math.inf if self._is_lease_given_up else leased_until,
            confirmed_at=confirmed_at,
            tail_bytes=log.tail.bytes,
            room_bytes=log.writing.room_bytes,
            disk_full=log.disk_full or (self._full_elsewhere() if self._has_full else None),
            heard=self._heard(now) if self.progress else 1,
        )

    def _heard(self, now: float) -> int:
        """How many voters have been heard within an election time-out, this one included."""
        since = now - self._limits.timeout_s
        return sum([moment >= since for moment in self._of_voters(now, "heard_at")])

    def _full_elsewhere(self) -> str | None:
        """Why nothing more can be committed though this node has space: too many of the others have none."""
        voters = self.log.membership.voters
        full = [voter for voter in voters if (its := self.progress.get(voter)) is not None and its.is_full]
        if 2 * (len(voters) - len(full)) > len(voters):
            return None
        return f"the disks of node {', '.join(map(str, full))} are full: what is left is no majority"

    def is_stuck(self, now: float) -> bool:
        """Whether this node's own disk has not answered for so long that another had better lead."""
        return self.log.writing.silent_s(now) > STUCK_TIMEOUTS * self._limits.timeout_s

    def _leased_until(self) -> float:
        """Until when no majority can elect another: each voter keeps its own promise, however this node is set.

        Of every majority that could elect somebody one node is in the majority whose promises these are (6.4.1).
        """
        timeout_s, node_id, progress = self._limits.timeout_s, self.log.node_id, self.progress
        promised = [
            math.inf
            if voter == node_id
            else progress[voter].promised_until(timeout_s, LEASE_PART)
            if voter in progress
            else -math.inf
            for voter in self.log.membership.voters
        ]
        return heard_by_majority(promised)

    @property
    def heartbeat_s(self) -> float:
        """How often this node has to say that it leads: often enough for the least patient of its followers."""
        patience_s = min((one.promise_s for one in self.progress.values()), default=math.inf)
        return min(self._limits.heartbeat_s, patience_s / 8)

    def give_up_lease(self) -> None:
        """Note that a successor was told to be elected, and may be at any time from now on, however late it hears of
        it.

        What this node says of its state then waits for a majority to confirm that it still leads.
        """
        self._is_lease_given_up = True

    def _commit(self) -> None:
        log, progress = self.log, self.progress
        # A record is committed when a majority of the voters has it on disk (3.5); this node's own disk is one of them,
        # and may be the last (10.2.1), or none, where this node leaves and does not vote any more (4.2.2).
        if not progress:
            committed = log.durable if log.node_id in log.membership.voters else 0
        else:
            committed = on_majority(
                [
                    log.durable if voter == log.node_id else progress[voter].match if voter in progress else 0
                    for voter in log.membership.voters
                ]
            )
        committed = min(committed, log.tail.end.trans_id)
        # An entry of an earlier leader is not committed by being counted: the next leader could still cut it off. It is
        # when one of this vote_id behind it is (3.6.2, figure 3.7).
        if committed > log.committed and committed >= self._led_from:
            log.settle(committed)

    # -- from followers ----------------------------------------------------------------------------------------

    def stored_by(self, now: float, node_id: int, message: Stored) -> Decisions:
        """Note that a follower has stored, or answers a heartbeat."""
        progress = self.progress.get(node_id)
        # An answer counts for commits and for the lease: what can't be true counts for neither.
        if progress is None or message.trans_id > self.log.tail.end.trans_id or message.echo > now:
            return []  # it can't have what is not there yet
        before, committed = progress.match, self.log.committed
        # The lease lasts as long as the least patient promised (6.4.1): the owner has to hear of it as often, or it
        # holds what it is asked though the lease is there.
        if 0.0 < message.promise_s < progress.promise_s:
            self._tells_quorum_at = now
        progress.stored(
            now,
            message.trans_id,
            message.echo,
            self.log.tail.end.trans_id,
            is_full=message.is_full,
            promise_s=message.promise_s,
        )
        progress.lacks_blocks = message.lacks_blocks
        if message.is_full or self._has_full:
            self._has_full = any(one.is_full for one in self.progress.values())
        if progress.match > before:
            self._commit()
        # That one more has what is committed already is news only where somebody waits for that (`replicate`).
        is_news = self.log.committed > committed or before < min(progress.match, self._counted)
        decisions: Decisions = [self.advanced(now)] if is_news else []
        return decisions + self._tell_quorum(now)

    def receiving(self, now: float, node_id: int) -> Decisions:
        """Note that a follower is in the middle of saying something."""
        progress = self.progress.get(node_id)
        if progress is None:
            return []
        progress.heard(now)
        return self._tell_quorum(now)

    def peer_down(self, now: float, node_id: int) -> Decisions:
        """Note that the link to a follower is closed: what was pushed last may not have arrived."""
        if node_id not in self.progress:
            return []
        self.progress[node_id].must_pull(now)
        return self.pushing.push_late(now)

    def pulled_by(self, now: float, node_id: int, message: Pull) -> Decisions:
        """Serve a follower that says where its log ends."""
        progress = self.progress.get(node_id)
        if progress is None:
            return []
        was_pushed_to = progress.sent is not None
        progress.must_pull(now)
        progress.has_only(message.after)
        progress.heard(now)
        # Others may have waited for what it was pushed, and it has not got that: they do so no longer.
        helped = self.pushing.push_late(now) if was_pushed_to else []
        return helped + self._serve_pull(now, node_id, message)

    def _serve_pull(self, now: float, node_id: int, message: Pull) -> Decisions:
        tail, trimmed, after = self.log.tail, self.log.trimmed, message.after
        # What stands before the log is sent as a snapshot (5.1).
        if after < trimmed:
            return [SendPeers((node_id,), SnapshotNeeded(self.vote_id, trimmed))]
        end = tail.end
        # The logs part somewhere before: a vote_id's entries are skipped at a time (3.5, at its end).
        if after > end.trans_id or tail.vote_id_at(after) != message.after_vote_id:
            up_to = min(tail.end_of(message.after_vote_id), after - 1, end.trans_id)
            if up_to < trimmed:  # where they part is not kept any more: what is sure is that the last is wrong
                up_to = min(after - 1, end.trans_id)
            return [SendPeers((node_id,), Diverged(self.vote_id, up_to, after, message.after_vote_id))]
        if not message.records_max:
            return [self._answer_pull(now, node_id, after, [])]  # it wanted to know whether the two agree
        if after < tail.checkpointed:
            records_max = max(min(message.records_max, PULL_RECORDS_MAX), 1)
            return [ReadEntries(node_id, after, records_max, self._limits.pull_bytes)]
        entries = tail.behind(after, bytes_max=self._limits.pull_bytes)
        return [self._answer_pull(now, node_id, after, [entry.data for entry in entries])]

    def entries_read(self, now: float, message: EntriesRead) -> Decisions:
        """LMDB's entries for a follower that pulls."""
        progress = self.progress.get(message.node_id)
        if progress is None or progress.sent is not None:
            return []
        if message.after < self.log.trimmed or not message.entries:
            return [SendPeers((message.node_id,), SnapshotNeeded(self.vote_id, self.log.trimmed))]
        return [self._answer_pull(now, message.node_id, message.after, message.entries)]

    def _answer_pull(self, now: float, node_id: int, after: int, data: list[bytes]) -> SendPeers:
        progress = self.progress[node_id]
        last = entry_codec.stored_entry(data[-1]).last_trans_id if data else after
        is_end = last == self.log.tail.end.trans_id
        after_vote_id = self.log.tail.vote_id_at(after)
        assert after_vote_id is not None
        if is_end:
            progress.found(now, after)
            progress.pushed(now, last, sum(map(len, data)))
        progress.last_push_at = now
        push = Push(self.vote_id, after, after_vote_id, data, self.log.committed, now, True, is_end)
        return SendPeers((node_id,), push)

    def snapshot_pulled_by(self, node_id: int, message: SnapshotPull) -> Decisions:
        """Send a follower rows of what stands before the log."""
        return [ReadSnapshot(node_id, message.cursor)] if node_id in self.progress else []

    def snapshot_read(self, message: SnapshotRead) -> Decisions:
        """LMDB's rows for a follower."""
        part = message.part
        members, readers, *more = part.sections
        while more and not more[-1]:  # nodes that know fewer sections are sent none of the others
            more.pop()
        rows = SnapshotRows(
            self.vote_id,
            part.trimmed,
            part.vote_id,
            members or self.log.membership.settled_row(),
            part.rows,
            part.cursor,
            part.is_last,
            message.after_cursor,
            readers,
            more,
        )
        return [SendPeers((message.node_id,), rows)]
