"""Pushing: which followers are sent an entry at once, and which a little later, several entries in one push. A machine.

What a majority has is committed, so that a leader of three needs one of its two followers for an entry. That one gets
it at once; the other gets it with those that follow, at most `Lateness.seconds` later: each push costs a follower
turns of its loop, a write and an answer, and its leader a frame each way, however little there is in it. (Of the
kind that is called thrifty: Moraru, Andersen and Kaminsky, There Is More Consensus in Egalitarian Parliaments, SOSP
2013, section 5; there the others are sent nothing, and here they are sent it late.)

- Each entry is pushed at once to as many voters as its commit needs, or to all who can be pushed to (`append`). Those
  are chosen who answer soonest. This node's own disk is one of them, or not: where it is slow, one follower more is
  pushed to at once (`_choose`).
- Nobody waits longer than `Lateness.seconds`; nor longer than those that were chosen take as a rule, twice over: who
  is silent for that long, for whatever reason, holds up a commit no further (`ring`).
- Each late push chooses again, and so does each heartbeat.
"""

import math
from dataclasses import dataclass
from typing import Final

from actors.cluster.decisions import Decisions
from actors.cluster.progress import Progress, UnderWay
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.peers import SendPeers
from net.peers.messages import Push
from storage.entry import LogEnd, StoredEntry

STAYS: Final = 1.25
"""Who was chosen stays so until another answers so many times as soon."""

PATIENCE: Final = 2.0
"""Who was chosen and has not answered for so many times what it takes as a rule is helped out by the others."""

PATIENCE_S: Final = 0.002
"""No sooner than this, but for `EARLY_S`."""

EARLY_S: Final = 0.001
"""A timer rings up to so much early, since the loop's count whole milliseconds: what is due by then is due."""


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """How long entries wait for a push to those who are not needed for their commit: until so many seconds are over,
    or there are so many entries, or bytes, whichever comes first. `seconds` 0: nobody is sent anything late.
    """

    seconds: float = 0.010
    entries: int = 8
    size: int = 64 << 10


class Pushing:
    """By the leader of `vote_id`, to the followers in `progress`, which is its. Times are monotonic seconds."""

    def __init__(
        self, log: ReplicatedLog, progress: dict[int, Progress], vote_id: int, push_bytes: int, lateness: Lateness
    ) -> None:
        self.late: frozenset[int] = frozenset()
        self._log = log
        self._progress = progress
        self._vote_id = vote_id
        self._push_bytes = push_bytes
        self._lateness = lateness
        self._own = UnderWay()
        self._needed = 0
        self._soonest: dict[int, UnderWay] = {}
        self._waiting = self._waiting_bytes = 0
        self._waits_since = self._rings_at = math.inf

    def append(self, now: float, after: LogEnd, entries: list[StoredEntry]) -> Decisions:
        """Push what the log has got behind `after`: now to those who are needed, and later to the others."""
        self._own.add(now, entries[-1].last_trans_id, 0)
        at_once: list[int] = []
        later: list[Progress] = []
        for node_id, progress in self._progress.items():
            if node_id in self.late and (progress.waits or progress.sent == after.trans_id):
                later.append(progress)
            elif progress.is_pushable(after.trans_id):
                at_once.append(node_id)
            elif progress.sent is not None:
                progress.must_pull(now)
        decisions = self._push(now, at_once, after, entries) if at_once else []
        if not later:
            return decisions
        for progress in later:
            progress.waits = True
        if not self._waiting:
            self._waits_since = now
        self._waiting += len(entries)
        for entry in entries:
            self._waiting_bytes += len(entry.data)
        its = self._lateness
        is_due = self._waiting >= its.entries or self._waiting_bytes >= its.size or len(at_once) < self._needed
        return decisions + self.push_late(now) if is_due else decisions

    def push_late(self, now: float) -> Decisions:
        """Push what waits, to all for whom it does; and see who comes first from here on."""
        self._choose(now)
        self._waiting = self._waiting_bytes = 0
        self._waits_since = math.inf
        by_place: dict[int, list[int]] = {}
        for node_id, progress in self._progress.items():
            if progress.waits:
                progress.waits = False
                assert progress.sent is not None
                by_place.setdefault(progress.sent, []).append(node_id)
        decisions: Decisions = []
        for after, nodes in by_place.items():
            vote_id = self._log.tail.vote_id_at(after)
            if after < self._log.tail.checkpointed or vote_id is None:
                for node_id in nodes:
                    self._progress[node_id].must_pull(now)
            else:
                decisions += self._push(now, nodes, LogEnd(vote_id, after), self._log.tail.behind(after))
        return decisions

    def written(self, now: float) -> None:
        """Note that this node's disk has more of the log."""
        self._own.stored(now, self._log.durable)

    def timer(self, now: float) -> float | None:
        """In how many seconds `ring` is to be called, if it is not to be by then already."""
        if not self._waiting:
            return None
        delay_s = max(min(self._waits_since + self._lateness.seconds - now, self._patience_s(now)), 0.0)
        if now + delay_s > self._rings_at - EARLY_S:
            return None
        self._rings_at = now + delay_s
        return delay_s

    def ring(self, now: float) -> Decisions:
        """Push what has waited for long enough; `timer` says when to look again."""
        self._rings_at = math.inf
        is_due = now > self._waits_since + self._lateness.seconds - EARLY_S or self._patience_s(now) < EARLY_S
        return self.push_late(now) if is_due else []

    def _patience_s(self, now: float) -> float:
        """For how long nobody who was chosen is going to have been silent for too long (s)."""
        left_s = math.inf
        for its in self._soonest.values():
            left_s = min(left_s, max(PATIENCE * its.answer_s, PATIENCE_S) - its.silent_s(now))
        return left_s

    def _choose(self, now: float) -> None:
        """See who answers soonest, of those who are known to: a majority. The other followers come late.

        Where too few are known, as at the beginning of a lead, nobody does.
        """
        voters, own = self._log.membership.voters, self._log.node_id
        majority = len(voters) // 2 + 1
        self.late = frozenset()
        if not self._lateness.seconds:
            return
        able = []
        for node_id in voters:
            its = self._own if node_id == own else self._under_way_to(node_id)
            if its is not None and its.answer_s != math.inf:
                able.append((its.answer_s_at(now) * (1.0 if node_id in self._soonest else STAYS), node_id, its))
        able.sort()
        self._soonest = {node_id: its for _, node_id, its in able[:majority]}
        if len(self._soonest) == majority:
            self._needed = majority - (own in self._soonest)
            self.late = frozenset([node_id for node_id in self._progress if node_id not in self._soonest])

    def _under_way_to(self, node_id: int) -> UnderWay | None:
        """Give what is under way to a follower that can be pushed to."""
        its = self._progress.get(node_id)
        return None if its is None or its.sent is None or its.is_full else its.under_way

    def _push(self, now: float, nodes: list[int], after: LogEnd, entries: list[StoredEntry]) -> Decisions:
        """Push to nodes whose logs end at `after`, in pushes of bounded size; who has too much to store has to pull."""
        decisions: Decisions = []
        start = size = 0
        for index, entry in enumerate(entries):
            size += len(entry.data)
            is_last = index + 1 == len(entries)
            if is_last or size + len(entries[index + 1].data) > self._push_bytes:
                data = [one.data for one in entries[start : index + 1]]
                taking = []
                for node_id in nodes:
                    progress = self._progress[node_id]
                    if progress.is_pushable(after.trans_id):
                        progress.pushed(now, entry.last_trans_id, size)
                        taking.append(node_id)
                    elif progress.sent is not None:
                        progress.must_pull(now)
                if taking:
                    push = Push(self._vote_id, after.trans_id, after.vote_id, data, self._log.committed, now)
                    decisions.append(SendPeers(tuple(taking), push))
                after = LogEnd(entry.vote_id, entry.last_trans_id)
                start, size = index + 1, 0
        return decisions
