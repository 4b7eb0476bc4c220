"""Elector: who leads. Hosts the election machine; what it decided is on disk before anyone is told."""

import math
from collections import deque
from typing import Final

from actors.cluster.election import Decision, Decisions, Election, Save
from actors.messages.disk import IdentitySaved, SaveIdentity
from actors.messages.election import (
    ElectionFacts,
    LeaderHeard,
    QuorumHeard,
    VoteAsked,
    VoteGiven,
)
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToDiskLane, ToElector, ToReplicator
from actors.runtime.contract import Runtime, Timer
from actors.runtime.loop_actor import LoopActor

IDLE_S: Final = 1.0
LOOK_S: Final = 0.05
"""How often the deadline is looked at: it moves with every heartbeat, mostly away."""

SOON_S: Final = 0.001
"""The timer is set for no sooner than this."""


class Elector(LoopActor[ToElector]):
    """One node's Elector. `lane` saves; the Replicator is told."""

    def __init__(self, runtime: Runtime, election: Election, lane: Mailbox[ToDiskLane]) -> None:
        super().__init__(runtime)
        self._machine = election
        self._lane = lane
        self._replicator: Mailbox[ToReplicator]
        self._untold: deque[Decision] = deque()
        self._is_saving = False
        self._timer: Timer | None = None
        self._rings_at = math.inf
        machine, now = election, runtime.monotonic
        self.handlers = {
            ElectionFacts: lambda m: self._do(machine.learn(now(), m)),
            LeaderHeard: lambda m: self._do(machine.leader_heard(now(), m.vote_id, m.leader, hands_over=m.hands_over)),
            VoteAsked: self._vote_asked,
            VoteGiven: lambda m: self._do(machine.vote_given(now(), m.voter, m.vote)),
            QuorumHeard: lambda m: self._do(machine.quorum_heard(m.at)),
            IdentitySaved: self._saved,
        }

    def attach(self, replicator: Mailbox[ToReplicator]) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._replicator = replicator

    def on_start(self) -> None:
        """Begin to look after time."""
        self._ring()

    def _vote_asked(self, message: VoteAsked) -> None:
        now = self.runtime.monotonic()
        self._do(self._machine.vote_asked(now, message))
        if self._looks_again_at(now) < self._rings_at:  # the deadline has come nearer
            self._arm(now)

    def _saved(self, message: IdentitySaved) -> None:
        self._is_saving = False
        self._do([])

    def _do(self, decisions: Decisions) -> None:
        """Tell in order; what stands behind something to be saved waits until it is."""
        self._untold.extend(decisions)
        while self._untold and not self._is_saving:
            decision = self._untold.popleft()
            if isinstance(decision, Save):
                self._is_saving = True
                self._lane.tell(SaveIdentity(decision.identity, self.actor_ref))
            else:
                self._replicator.tell(decision)

    def _looks_again_at(self, now: float) -> float:
        deadline = self._machine.deadline
        return now + IDLE_S if deadline == math.inf else min(max(deadline, now + SOON_S), now + LOOK_S)

    def _arm(self, now: float) -> None:
        """Set the one timer, in place of the one that runs."""
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._looks_again_at(now)
        self._timer = self.runtime.call_later(self._rings_at - now, self._ring)

    def _ring(self) -> None:
        if not self.has_ended:
            now = self.runtime.monotonic()
            # Timers ring before the messages of the same turn: a heartbeat that came while nothing ran is unheard yet.
            self._machine.rang_late(now, now - self._rings_at)
            self._do(self._machine.tick(now))
            self._arm(now)
