"""Replication: one log on several nodes. A machine; its host is the Replicator.

Raft's replication (Ongaro's dissertation, chapter 3) on entries, with the follower in charge of finding its place:

- the leader pushes each new entry to the followers whose logs end where the entry begins;
- any other follower pulls: it says where its log ends, and the leader answers with what follows, or with how far the
  two may agree (then the follower drops what is behind that, and pulls again), or that it needs a snapshot first;
- what is on the disks of a majority, and was made by the leader's own vote_id or stands before such an entry, is
  committed;
- nothing that is said under an older vote_id than this node's counts. A follower never drops what it knows to be
  committed, and never says stored before its disk has it.

`out` holds what is to be sent, in order: (to whom, message).
"""

import math
from collections import deque
from typing import Final

from actors.cluster_messages import (
    AskVotes,
    CastVote,
    CutPeer,
    EntriesRead,
    LeaderHeard,
    QuorumHeard,
    ReadEntries,
    SendPeers,
    VoteAsked,
    VoteGiven,
    VoteIdSeen,
)
from actors.membership import Membership
from actors.messages import Append, Deposed, LogAdvanced
from actors.progress import Progress, heard_by_majority, on_majority, on_nodes
from actors.replicated_log import CHECKPOINTER, ELECTOR, OWNER, PEERS, ReplicatedLog
from net.peer_messages import Diverged, Pull, Push, SnapshotNeeded, Stored, Vote, VoteRequest
from storage import entry as entry_codec
from storage.entry import StoredEntry
from storage.errors import DamagedError
from storage.log_tail import LogEnd, LogTail
from storage.records import Members

PULL_BYTES: Final = 1 << 20
PULL_RECORDS_MAX: Final = 20_000
PULL_RETRY_S: Final = 0.5
TAIL_BYTES_MAX: Final = 32 << 20
"""A follower pulls nothing more while so much of its log waits for the disk or for its commit."""

LEASE_PART: Final = 0.7
"""How much of the least election time-out a leader counts on: the rest is for clocks that run unlike, and for turns."""


class Replication(ReplicatedLog):
    """One shard's log on one node. `timeout_s`: the least election time-out; `records_per_s`: what a pull may take.

    Until told otherwise the node follows nobody. `committed` is what its disk knows to be so. Times are seconds of the
    monotonic clock.
    """

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
        self.progress: dict[int, Progress] = {}
        self.peer_cluster_id = 0
        self._timeout_s = timeout_s
        self._records_per_s = records_per_s
        self._heartbeat_s = timeout_s / 8
        self._leader_committed = committed
        self._echo = -math.inf
        self._told_elector_at = -math.inf
        self._pull_sent_at: float | None = None
        self._allowance = float(records_per_s)
        self._allowed_at = now
        self._next_pull_at = math.inf
        self._led_from = 0
        self._quorum_told_at = -math.inf

    # -- from the Elector --------------------------------------------------------------------------------------

    def follow(self, now: float, vote_id: int, leader: int | None) -> None:
        """`leader` leads in `vote_id`; None: nobody does yet."""
        if vote_id < self.vote_id:
            return
        was_leading = self.is_leading
        if vote_id > self.vote_id or leader != self.leader:
            self._agreed = self.committed
            self._leader_committed = self.committed
            self._echo = -math.inf
        self.vote_id = vote_id
        self.leader = leader
        self.is_leading = False
        self.progress = {}
        self._pull_sent_at = None
        if was_leading:
            self.out.append((OWNER, Deposed(self.tail.end.trans_id, leader)))
        if leader is not None:
            self.pull(now)

    @property
    def has_led(self) -> bool:
        """Whether this node leads, and an entry of its own vote_id is committed."""
        return self.is_leading and self.committed >= self._led_from

    def lead(self, now: float, vote_id: int) -> None:
        """This node leads in `vote_id`."""
        if vote_id < self.vote_id:
            return
        self.vote_id = vote_id
        self.leader = self.node_id
        self.is_leading = True
        self.membership.is_founder = self.membership.current is None
        self._led_from = self.tail.end.trans_id + 1
        self._pull_sent_at = None
        self._next_pull_at = math.inf
        self.progress = {node_id: Progress(now) for node_id in self.membership.others}
        for its in self.progress.values():
            its.sent = self.tail.end.trans_id  # most follow already; one that does not pulls
        if not self.is_reloading:
            self._promote()
        self.heartbeat(now)

    def ask_votes(self, ask: AskVotes) -> None:
        """Ask all voters. From a real candidacy on nothing of an older vote_id is accepted."""
        if not ask.is_pre:
            if ask.vote_id < self.vote_id:
                return
            self._raise_vote_id(ask.vote_id)
        end = self.tail.end
        others = tuple(node_id for node_id in self.membership.voters if node_id != self.node_id)
        if others:
            request = VoteRequest(ask.vote_id, ask.is_pre, ask.is_forced, end.vote_id, end.trans_id)
            self.out.append((PEERS, SendPeers(others, request)))

    def cast_vote(self, cast: CastVote) -> None:
        """Send a vote, after which nothing of an older vote_id is accepted.

        The log may have grown since the candidate was compared with it: then the answer is no after all.
        """
        vote = cast.vote
        if not vote.is_pre:
            if vote.vote_id < self.vote_id:
                return
            self._raise_vote_id(vote.vote_id)
            if vote.is_granted and self.tail.end > cast.end:
                vote = Vote(vote.vote_id, False, False)
        self.out.append((PEERS, SendPeers((cast.candidate,), vote)))

    def _raise_vote_id(self, vote_id: int) -> None:
        if vote_id > self.vote_id:
            was_leading = self.is_leading
            self.vote_id = vote_id
            self.leader = None
            self.is_leading = False
            self.progress = {}
            if was_leading:
                self.out.append((OWNER, Deposed(self.tail.end.trans_id, None)))

    # -- votes, from peers -------------------------------------------------------------------------------------

    def vote_request(self, candidate: int, request: VoteRequest) -> None:
        """A candidate asks: the Elector decides, told how its log compares with ours."""
        end = LogEnd(request.end_vote_id, request.trans_id)
        own = self.tail.end
        comparison = (end > own) - (end < own)
        asked = VoteAsked(candidate, request.vote_id, request.is_pre, request.is_forced, end, comparison)
        self.out.append((ELECTOR, asked))

    def vote(self, voter: int, vote: Vote) -> None:
        """An answer, for the Elector."""
        self.out.append((ELECTOR, VoteGiven(voter, vote)))

    # -- leading: from the QueueOwner --------------------------------------------------------------------------

    def append(self, now: float, message: Append) -> None:
        """The owner's next entries: to the own disk and to the followers, at the same time."""
        if not self.is_leading or message.vote_id != self.vote_id:
            return  # made before it heard that it does not lead any more; it is told
        entries = message.entries
        after = self.tail.end
        for entry in entries:
            self._take(entry)
        self.applied = self.tail.end.trans_id
        self._write(entries)
        nodes = tuple(node_id for node_id, its in self.progress.items() if its.is_pushable(after.trans_id))
        data = [entry.data for entry in entries]
        size = sum(map(len, data))
        for node_id, its in self.progress.items():
            if node_id in nodes:
                its.pushed(self.tail.end.trans_id, size)
                its.last_push_at = now
            elif its.sent is not None:
                its.must_pull()
        if nodes:
            push = Push(self.vote_id, after.trans_id, after.vote_id, data, self.committed, now)
            self.out.append((PEERS, SendPeers(nodes, push)))

    def heartbeat(self, now: float) -> None:
        """Say that this node leads, to all who have not heard from it for a moment."""
        quiet = [n for n, its in self.progress.items() if now - its.last_push_at >= self._heartbeat_s / 2]
        by_place: dict[int, list[int]] = {}
        for node_id in quiet:
            its = self.progress[node_id]
            its.last_push_at = now
            if its.match < (its.sent or 0) and now - its.heard_at > self._timeout_s:
                its.must_pull()
            by_place.setdefault(self.tail.end.trans_id if its.sent is None else its.sent, []).append(node_id)
        for after, nodes in by_place.items():
            after_vote_id = self.tail.vote_id_at(after)
            assert after_vote_id is not None
            push = Push(self.vote_id, after, after_vote_id, [], self.committed, now)
            self.out.append((PEERS, SendPeers(tuple(nodes), push)))
        if self.is_leading:
            self._tell_quorum(now)

    def _tell_quorum(self, now: float) -> None:
        at = self.quorum_at(now)
        if now - self._quorum_told_at >= self._heartbeat_s / 2:
            self._quorum_told_at = now
            self.out.append((ELECTOR, QuorumHeard(at)))
            self.tell_owner(now)

    def quorum_at(self, now: float) -> float:
        """The latest moment at which a majority took this node for the leader."""
        echoes = [
            now if node_id == self.node_id else its.echo if (its := self.progress.get(node_id)) else -math.inf
            for node_id in self.membership.voters
        ]
        return heard_by_majority(echoes)

    def tell_owner(self, now: float) -> None:
        """Where the log is."""
        matches = [self.stored, *(its.match for its in self.progress.values())]
        is_alone = not self.progress
        self.out.append(
            (
                OWNER,
                LogAdvanced(
                    self.stored,
                    self.committed,
                    on_nodes(matches),
                    math.inf if is_alone else self.quorum_at(now) + self._timeout_s * LEASE_PART,
                    self.tail.bytes,
                    self.room_bytes,
                    self.disk_full,
                ),
            )
        )

    def _advance_leading(self, now: float) -> None:
        matches = [
            self.stored if node_id == self.node_id else its.match if (its := self.progress.get(node_id)) else 0
            for node_id in self.membership.voters
        ]
        committed = min(on_majority(matches), self.tail.end.trans_id)
        if committed > self.committed and committed >= self._led_from:
            self._settle(committed)

    def written(self, now: float, entry_count: int, room_bytes: float) -> None:
        """The first so many entries are on this node's disk."""
        self._note_written(entry_count, room_bytes)
        if self.is_leading:
            self._advance_leading(now)
            self.tell_owner(now)
        elif self.leader is not None:
            self._advance_following()
            self._say_stored()

    def _members_changed(self) -> None:
        """Followers come and go as soon as the record is in the log."""
        if self.is_leading:
            others = self.membership.others
            for node_id in list(self.progress):
                if node_id not in others:
                    del self.progress[node_id]
            for node_id in others:
                if node_id not in self.progress:
                    self.progress[node_id] = Progress(-math.inf)

    # -- following ---------------------------------------------------------------------------------------------

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
        up_to = max(self.tail.boundary(message.up_to), self.committed)
        if message.up_to >= self.committed and up_to < self.tail.end.trans_id:  # or it is an answer come late
            self._cut(up_to)
            self._pull_sent_at = None
            self.pull(now)

    # -- leading: from followers -------------------------------------------------------------------------------

    def stored_by(self, now: float, node_id: int, message: Stored) -> None:
        """A follower has stored, or answers a heartbeat; or it is past this vote_id."""
        if message.vote_id > self.vote_id:
            self.out.append((ELECTOR, VoteIdSeen(message.vote_id)))
            return
        its = self.progress.get(node_id)
        if its is None or message.vote_id != self.vote_id:
            return
        before = its.match
        its.stored(message.trans_id, message.echo, now)
        committed = self.committed
        if its.match > before:
            self._advance_leading(now)
        if self.committed > committed:
            self.tell_owner(now)
        self._tell_quorum(now)

    def pulled_by(self, now: float, node_id: int, message: Pull) -> None:
        """A follower says where its log ends."""
        if message.vote_id > self.vote_id:
            self.out.append((ELECTOR, VoteIdSeen(message.vote_id)))
            return
        its = self.progress.get(node_id)
        if its is None or message.vote_id != self.vote_id:
            return
        its.must_pull()
        its.heard_at = now
        after = message.after
        if after < self.trimmed:
            self.out.append((PEERS, SendPeers((node_id,), SnapshotNeeded(self.vote_id, self.trimmed))))
            return
        end = self.tail.end
        if after > end.trans_id or self.tail.vote_id_at(after) != message.after_vote_id:
            up_to = min(self.tail.end_of(message.after_vote_id), after, end.trans_id)
            if up_to < self.trimmed:  # where they part is not kept any more: what is sure is that the last is wrong
                up_to = min(after - 1, end.trans_id)
            self.out.append((PEERS, SendPeers((node_id,), Diverged(self.vote_id, up_to))))
        elif after < self.tail.stored:
            bytes_max = PULL_BYTES
            records_max = max(min(message.records_max, PULL_RECORDS_MAX), 1)
            self.out.append((CHECKPOINTER, ReadEntries(node_id, after, records_max, bytes_max)))
        else:
            entries = self.tail.behind(after, bytes_max=PULL_BYTES)
            self._answer_pull(now, node_id, after, [entry.data for entry in entries])

    def entries_read(self, now: float, message: EntriesRead) -> None:
        """LMDB's entries for a follower that pulls."""
        its = self.progress.get(message.node_id)
        if its is None or its.sent is not None:
            return
        if message.after < self.trimmed or not message.entries:
            self.out.append((PEERS, SendPeers((message.node_id,), SnapshotNeeded(self.vote_id, self.trimmed))))
        else:
            self._answer_pull(now, message.node_id, message.after, message.entries)

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

    def _answer_pull(self, now: float, node_id: int, after: int, data: list[bytes]) -> None:
        its = self.progress[node_id]
        last = entry_codec.stored_entry(data[-1]).last_trans_id if data else after
        is_end = last == self.tail.end.trans_id
        after_vote_id = self.tail.vote_id_at(after)
        assert after_vote_id is not None
        if is_end:
            its.sent = after
            its.pushed(last, sum(map(len, data)))
        its.last_push_at = now
        push = Push(self.vote_id, after, after_vote_id, data, self.committed, now, True, is_end)
        self.out.append((PEERS, SendPeers((node_id,), push)))
