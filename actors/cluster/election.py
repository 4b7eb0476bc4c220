"""Election: which node leads. A machine; its host is the Elector.

Raft's election (Ongaro, "Consensus: Bridging Theory and Practice", chapters 3, 4.2.3, 6.4 and 9.6), whose term is
our vote_id. The rules that make it safe:

- one vote a vote_id, on disk before anyone hears of it: a call returns what to save and what to tell in one order, and
  the host tells nothing that stands behind something that is not saved yet;
- a vote only for a candidate whose log is at least as far as the voter's. The log is the Replicator's: it says with
  the question how the two compare, and checks again when it sends the vote, after which it accepts nothing of an
  older vote_id;
- a majority of the voters of the last members in the log, not of those that can be reached.

Those that keep it calm: a pre-vote asks whether an election could be won, and changes nothing; who has heard of a
leader within the least time-out votes for nobody else, unless that leader wants it; a leader that no majority has
answered for a time-out steps down. Who has a leader, or is one, and finds that its process stood still, first listens
for a moment, since what others said meanwhile lies unread before it. Who has no leader either, and is asked by one
with less of the log, soon asks in its place, since that one can't win: at a moment that is drawn, and not if another
that can win has asked by then. Of two candidates that are as good and ask at the same time, the greater node_id is
preferred; only for a moment, since it may be one that can't win.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from actors.messages.election import AskVotes, CastVote, ElectionFacts, Standing, VoteAsked
from net.peers.messages import Vote
from storage.vote_file import Identity

SPREAD: Final = 0.75
"""A follower waits between once and 1.75 times the time-out, drawn anew each time, so that two seldom start at once."""

STOOD_STILL: Final = 1 / 8
"""A timer that rings late by such a part of a time-out tells that this process got no processor."""

CATCHES_UP: Final = 1 / 4
"""For such a part of a time-out it then only listens: two heartbeats, so that a leader has them answered."""

STEPS_IN: Final = 1 / 16
"""Within such a part of a time-out a node asks in the place of one that can't win."""


class Role(Enum):
    """What the node is in the election."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


STEPS_IN_AS: Final = (Role.FOLLOWER, Role.PRE_CANDIDATE)
"""One that has asked before, when others still heard the leader, asks again. A candidate waits: it may be winning."""


@dataclass(slots=True)
class Save:
    """Make this durable before anything behind it is told."""

    identity: Identity


Decision = Save | Standing
Decisions = list[Decision]


class Election:
    """One node's part. `random` draws from [0, 1); all times are seconds of the monotonic clock.

    `timeout_s` is the least time without a leader before a follower acts. A node that has just started behaves as if
    it had heard of a leader right now: before it went down, it may have promised that one its patience, and what it
    promised then, by the time-out that it was set to, it keeps.
    """

    def __init__(self, identity: Identity, timeout_s: float, random: Callable[[], float], now: float) -> None:
        self.identity = identity
        self.role = Role.FOLLOWER
        self.leader: int | None = None
        self._timeout_s = timeout_s
        self._random = random
        self._voters: frozenset[int] = frozenset()
        self._is_leaving = False
        self._votes: set[int] = set()
        self._led_vote_id = 0
        self._heard_at = now
        self._loyal_until = now + max(identity.promise_s, timeout_s)
        self._deadline = self._put_off_to = 0.0
        self._wait(now)
        self._asked_at = -math.inf
        self._steps_in_at = math.inf
        self._out: list[Decision] = []

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        if self.role is Role.LEADER and self._voters == {self.identity.node_id}:
            return math.inf
        if self.role is Role.LEADER:
            return self._deadline
        return min(self._deadline, self._steps_in_at)

    def _decided(self) -> Decisions:
        """Hand over what this call has decided, in order."""
        out, self._out = self._out, []
        return out

    # -- what happens ------------------------------------------------------------------------------------------

    def learn(self, now: float, facts: ElectionFacts) -> Decisions:
        """Take over what the log says of this node. One that is the only voter leads at once.

        From when its log is whole again it counts (see `Identity.abstains`). One that leaves does not lead where others
        vote, too, also if none of them can.
        """
        own = self.identity
        abstains = own.abstains and not facts.is_whole
        known = msgspec.structs.replace(own, cluster_id=facts.cluster_id, abstains=abstains)
        if known != own:
            self._set(known)
        self._is_leaving = facts.is_leaving
        is_alone_now = facts.voters == {own.node_id} != self._voters
        self._voters = facts.voters
        if is_alone_now and self.role is not Role.LEADER and not abstains:
            self._campaign(now, is_forced=False)
        return self._decided()

    @property
    def _steps_back(self) -> bool:
        return self._is_leaving and len(self._voters) > 1

    def tick(self, now: float) -> Decisions:
        """Time has passed."""
        if self.identity.promise_s > self._timeout_s and now >= self._loyal_until:
            self._set(msgspec.structs.replace(self.identity, promise_s=self._timeout_s))  # the longer one is kept
        if now < self.deadline:
            return self._decided()
        # A leader that a majority has not answered for a time-out may have been replaced: it steps down, so that its
        # clients are not kept waiting by one that commits nothing (6.2).
        if self.role is Role.LEADER:
            self._become_follower(now, None)
            return self._decided()
        self._ask(now)
        return self._decided()

    def rang_late(self, now: float, late_s: float) -> None:
        """Put off what is due, and votes that the leader does not want, if this process stood still.

        Once for each time that it waits; and not without a leader: then there is nobody to be loyal to.
        """
        is_late = late_s >= self._timeout_s * STOOD_STILL
        if not is_late or self.leader is None or self._deadline == self._put_off_to:
            return
        # It only adds to what was promised, on which the leader's lease rests (6.4.1). A leader whom a majority has
        # answered meanwhile hears that now, and stays (6.2); its lease counts from when it had asked.
        until = now + self._timeout_s * CATCHES_UP
        self._loyal_until = max(self._loyal_until, until)
        # At a moment that is drawn: all nodes of a machine find it so at once, and are not to ask at once.
        until += self._timeout_s * STEPS_IN * self._random()
        self._deadline = self._put_off_to = max(self._deadline, until)
        self._steps_in_at = math.inf

    def _ask(self, now: float) -> None:
        """Ask whether an election could be won, unless this node may not lead."""
        self._wait(now)
        self._lose_leader()
        if self.identity.node_id not in self._voters or self.identity.abstains or self._steps_back:
            return
        self.role = Role.PRE_CANDIDATE
        self._asked_at = now
        self._votes = {self.identity.node_id}
        self._stand(AskVotes(is_pre=True))
        self._count_votes(now)

    def vote_asked(self, now: float, asked: VoteAsked) -> Decisions:
        """Answer a candidate. A vote that is refused for its vote_id names ours, so that the candidate catches up."""
        if asked.is_pre:
            self._pre_vote_asked(now, asked)
            return self._decided()
        own = self.identity
        # A candidate of an earlier vote_id has lost already; it learns of the later one by the answer (3.3).
        if asked.vote_id < own.vote_id:
            self._stand(CastVote(asked.candidate, Vote(own.vote_id, False, False), asked.end))
            return self._decided()
        # Who hears a leader votes for nobody and adopts nothing, or a node that was cut off or removed would end the
        # lead when it is back (4.2.3); and the leader's lease rests on it (6.4.1).
        if self._is_loyal(now) and not asked.is_forced:
            return self._decided()
        # A later vote_id is adopted before the vote is thought of: a vote is for one vote_id (3.3).
        if asked.vote_id > own.vote_id:
            self._adopt(now, asked.vote_id)
            own = self.identity
        # One vote a vote_id, so that no two can win it (3.4); and none for a log that is behind this one: it may lack
        # what is committed (3.6.1). A node whose log was lost does not know what it had: it abstains.
        may_vote = self.role is not Role.LEADER and not own.abstains
        is_granted = may_vote and own.voted_for in (0, asked.candidate) and asked.comparison >= 0
        if is_granted:
            self._wait(now)
            # The vote is saved before the candidate hears of it: after a crash this node must not give another (3.8).
            if own.voted_for != asked.candidate:
                self._set(msgspec.structs.replace(own, voted_for=asked.candidate))
        stored_said = None if asked.is_forced else asked.stored_said
        self._stand(CastVote(asked.candidate, Vote(own.vote_id, False, is_granted), asked.end, stored_said))
        return self._decided()

    def _pre_vote_asked(self, now: float, asked: VoteAsked) -> None:
        own = self.identity
        is_candidate = self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE) and now < self._asked_at + self._timeout_s / 8
        is_rival = is_candidate and asked.comparison == 0
        # The conditions of a vote, but nothing is adopted or saved: this only says that it would be given (9.6). A
        # rival that is as good, with the lower number, is refused for a moment.
        is_granted = (
            asked.vote_id > own.vote_id
            and asked.comparison >= 0
            and not own.abstains
            and not self._is_loyal(now)
            and not (is_rival and asked.candidate < own.node_id)
        )
        vote_id = asked.vote_id if is_granted else own.vote_id
        self._stand(CastVote(asked.candidate, Vote(vote_id, True, is_granted), asked.end))
        if is_granted:
            self._steps_in_at = math.inf
        elif asked.comparison < 0 and self.role in STEPS_IN_AS and not self._is_loyal(now):
            self._steps_in_at = min(self._steps_in_at, now + self._timeout_s * STEPS_IN * self._random())

    def vote_given(self, now: float, voter: int, vote: Vote) -> Decisions:
        """Count a voter's answer."""
        if not vote.is_granted:
            return self.leader_heard(now, vote.vote_id, None)
        expected = Role.PRE_CANDIDATE if vote.is_pre else Role.CANDIDATE
        # A vote counts for the election that it was asked for; one that comes late is of another (3.4).
        if self.role is expected and vote.vote_id == self.identity.vote_id + vote.is_pre:
            self._votes.add(voter)
            self._count_votes(now)
        return self._decided()

    def leader_heard(self, now: float, vote_id: int, leader: int | None, *, hands_over: bool = False) -> Decisions:
        """Hear a node that spoke as the leader of `vote_id`, and maybe wants this one to lead; None: that election has
        been."""
        if leader is None and vote_id > self.identity.vote_id:
            self._adopt(now, vote_id)
        # Who led under an earlier vote_id leads no more (3.3).
        if leader is None or vote_id < self.identity.vote_id:
            return self._decided()
        is_new = vote_id > self.identity.vote_id
        if is_new:
            self._lose_leader()
            self._set(msgspec.structs.replace(self.identity, vote_id=vote_id, voted_for=0))
        # A vote_id has one leader at most (3.4).
        if self.role is Role.LEADER and vote_id == self._led_vote_id:
            return self._decided()  # only this node can have won it; whoever says so is cut off by the Replicator
        self._heard_at = now
        self._wait(now)
        if is_new or self.leader != leader or self.role is not Role.FOLLOWER:
            self._become_follower(now, leader)
        own = self.identity
        # The leader wants this node to lead: it asks at once, and voters need not be patient with the leader
        # (3.10, 4.2.3).
        if hands_over and own.node_id in self._voters and not own.abstains and not self._steps_back:
            self._campaign(now, is_forced=True)
        return self._decided()

    def quorum_heard(self, at: float) -> Decisions:
        """Note that a majority was known to take this node for the leader at that moment."""
        if self.role is Role.LEADER:
            self._deadline = max(self._deadline, at + self._timeout_s)
        return self._decided()

    # -- what follows ------------------------------------------------------------------------------------------

    def _wait(self, now: float) -> None:
        """Act no sooner than after a time-out, drawn anew; nor before what was promised: a candidate votes, too."""
        self._deadline = max(now + self._timeout_s * (1 + SPREAD * self._random()), self._loyal_until)
        self._steps_in_at = math.inf

    def _is_loyal(self, now: float) -> bool:
        """Whether a leader has this node's word that it will not be voted out yet."""
        return self.role is Role.LEADER or now < max(self._heard_at + self._timeout_s, self._loyal_until)

    def _set(self, identity: Identity) -> None:
        self.identity = identity
        self._out.append(Save(identity))

    def _stand(self, say: AskVotes | CastVote | None = None) -> None:
        self._out.append(Standing(self.identity.vote_id, self.leader, say))

    def _adopt(self, now: float, vote_id: int) -> None:
        """Go on in a later vote_id, without a leader.

        The leader of before is left first, and only then is the vote_id saved: what is answered to it while the disk is
        busy would extend a lease that the vote which follows takes away (6.4.1). What is answered before it hears that
        it is left, the Replicator knows: it does not send the vote then (`CastVote.stored_said`).
        """
        self._lose_leader()
        self._set(msgspec.structs.replace(self.identity, vote_id=vote_id, voted_for=0))
        self._become_follower(now, None)

    def _become_follower(self, now: float, leader: int | None) -> None:
        self.role = Role.FOLLOWER
        self.leader = leader
        self._votes = set()
        self._wait(now)
        self._stand()

    def _lose_leader(self) -> None:
        if self.leader is not None:
            self.leader = None
            self._stand()

    def _count_votes(self, now: float) -> None:
        # A majority of the voters of the last members in the log, committed or not: with one change
        # at a time, any two of those overlap (4.1).
        if 2 * len(self._votes & self._voters) <= len(self._voters):
            return
        if self.role is Role.PRE_CANDIDATE:
            self._campaign(now, is_forced=False)
        else:
            self.role = Role.LEADER
            self.leader = self.identity.node_id
            self._led_vote_id = self.identity.vote_id
            self._deadline = now + self._timeout_s
            self._stand()

    def _campaign(self, now: float, *, is_forced: bool) -> None:
        own = self.identity
        self._lose_leader()
        # Its own vote is the first, and is on disk before it asks for others (3.4, 3.8).
        self._set(msgspec.structs.replace(own, vote_id=own.vote_id + 1, voted_for=own.node_id))
        self.role = Role.CANDIDATE
        self._votes = {own.node_id}
        self._wait(now)
        self._stand(AskVotes(is_pre=False, is_forced=is_forced))
        self._count_votes(now)
