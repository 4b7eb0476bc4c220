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
from typing import Final

from actors.cluster.following import PULL_RECORDS_MAX, Following
from actors.cluster.membership import Membership
from actors.cluster.progress import WINDOW_BYTES, Progress, heard_by_majority, on_majority, on_nodes
from actors.cluster.replicated_log import CHECKPOINTER, ELECTOR, OWNER, PEERS
from actors.messages.checkpoints import EntriesRead, ReadEntries
from actors.messages.election import AskVotes, CastVote, QuorumHeard, VoteAsked, VoteGiven, VoteIdSeen
from actors.messages.log import Append, Deposed, LogAdvanced
from actors.messages.peers import SendPeers
from net.peers.messages import Diverged, Pull, Push, SnapshotNeeded, Stored, Vote, VoteRequest
from storage import entry as entry_codec
from storage.log_tail import LogEnd, LogTail

PULL_BYTES: Final = 1 << 20
LEASE_PART: Final = 0.7
"""How much of the least election time-out a leader counts on: the rest is for clocks that run unlike, and for turns."""


class Replication(Following):
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
        super().__init__(tail, membership, committed, vote_id, timeout_s, records_per_s, now)
        self.progress: dict[int, Progress] = {}
        self.pull_bytes = PULL_BYTES
        self.window_bytes = WINDOW_BYTES
        self.is_lease_given_up = False
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
        self.is_lease_given_up = False
        self.membership.is_founder = self.membership.current is None
        self._led_from = self.tail.end.trans_id + 1
        self._pull_sent_at = None
        self._next_pull_at = math.inf
        self.progress = {node_id: Progress(now, self.window_bytes) for node_id in self.membership.others}
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
        self.out.append(
            (
                OWNER,
                LogAdvanced(
                    self.stored,
                    self.committed,
                    on_nodes(matches),
                    self._leased_until(now),
                    self.tail.bytes,
                    self.room_bytes,
                    self.disk_full,
                ),
            )
        )

    def _leased_until(self, now: float) -> float:
        if self.is_lease_given_up:
            return -math.inf
        return self.quorum_at(now) + self._timeout_s * LEASE_PART if self.progress else math.inf

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
                    self.progress[node_id] = Progress(-math.inf, self.window_bytes)

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
            up_to = min(self.tail.end_of(message.after_vote_id), after - 1, end.trans_id)
            if up_to < self.trimmed:  # where they part is not kept any more: what is sure is that the last is wrong
                up_to = min(after - 1, end.trans_id)
            diverged = Diverged(self.vote_id, up_to, after, message.after_vote_id)
            self.out.append((PEERS, SendPeers((node_id,), diverged)))
        elif after < self.tail.stored:
            bytes_max = self.pull_bytes
            records_max = max(min(message.records_max, PULL_RECORDS_MAX), 1)
            self.out.append((CHECKPOINTER, ReadEntries(node_id, after, records_max, bytes_max)))
        else:
            entries = self.tail.behind(after, bytes_max=self.pull_bytes)
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
