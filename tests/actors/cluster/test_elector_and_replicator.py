"""The Elector and the Replicator through every order of what lies between them, for small cases.

Both are the real actors; what is on its way (in each inbox, to the disk, from other nodes) arrives in every order that
there is, one thing at a time. What the node says to others has to keep Raft's rules in each (Ongaro's dissertation, 3.4
to 3.6, 6.4.1): the test looks at that alone, and so holds for any division of the work between the two.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from actors.cluster.election import Election
from actors.cluster.elector import Elector
from actors.cluster.following import ReplicationLimits
from actors.cluster.membership import Membership
from actors.cluster.replicated_log import ReplicatedLog
from actors.cluster.replication import Replication
from actors.cluster.replicator import Replicator
from actors.cluster.replicator_settings import Recipients, ReplicatorSettings
from actors.disk.log_writer import LogWriter
from actors.disk.write_ways import WriteWays
from actors.messages.disk import BytesWritten, IdentitySaved, SaveIdentity, WriteBytes
from actors.messages.election import ElectionFacts
from actors.messages.log import Append, Promoted
from actors.messages.measures import ClientCounts
from actors.messages.peers import PeerSaid, SendPeers
from net.peers.messages import Push, Stored, Vote, VoteRequest
from storage.entry import LogEnd, StoredEntry
from storage.entry_codec import encode
from storage.journal_writer import begin_journal
from storage.log_tail import LogTail
from storage.records import LEVEL, Lead, Member, Members, Remove
from storage.vote_file import Identity
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.storage.memory import MemoryFolder

THREE: Final = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=True) for n in (1, 2, 3)], [], level=LEVEL)
TIMEOUT_S: Final = 0.4

Event = Callable[["Pair"], None]


def entry(trans_id: int, vote_id: int) -> StoredEntry:
    return StoredEntry(trans_id, trans_id, vote_id, encode(vote_id, trans_id, 1.0, [Remove("q")]))


def says(node_id: int, message: Any) -> Event:
    """Another node says this."""
    return lambda pair: pair.replicator.actor_ref.tell(PeerSaid(node_id, message, 9, node_id * 11))


def waits(seconds: float) -> Event:
    """So much time passes, and the Elector looks, in time."""

    def act(pair: "Pair") -> None:
        pair.runtime.time += seconds
        pair.elector._rings_at = pair.runtime.time
        pair.elector._ring()

    return act


def stands_still(seconds: float) -> Event:
    """The process gets no processor for so long; then the Elector looks."""

    def act(pair: "Pair") -> None:
        pair.elector._rings_at = pair.runtime.time
        pair.runtime.time += seconds
        pair.elector._ring()

    return act


def push(vote_id: int, trans_id: int, before: int, made_by: int | None = None) -> Push:
    """An entry of that leader's, behind one that the leader of `before` made."""
    made = entry(trans_id, made_by or vote_id)
    return Push(vote_id, trans_id - 1, before, [made.data], trans_id - 1, float(trans_id))


class Pair:
    """Node 1 of three: its Elector and its Replicator; nothing moves but by `step`."""

    def __init__(self, events: list[Event]) -> None:
        self.runtime = CrankedRuntime()
        self.events = deque(events)
        self.disk, self.journal_lane, self.peers, self.owner = Probe(), Probe(), Probe(), Probe()
        self.saved = Identity(9, 1, 11, 1, 0)
        self.durable = 0
        self.asked: dict[tuple[int, int], int] = {}
        self.stored_count = 0
        self.votes: dict[int, int] = {}
        self.saved_votes: dict[int, int] = {}
        election = Election(self.saved, TIMEOUT_S, lambda: 0.5, self.runtime.time)
        self.elector = Elector(self.runtime, election, ref(self.disk))
        journal = begin_journal(MemoryFolder(), 1 << 16, writes_are_durable=True, stored=0, last_trans_id=0)
        self.log = ReplicatedLog(LogTail([(0, 0)], 0, []), Membership(Member(1, "n1", 1, 11), THREE), 0)
        self.replicator = Replicator(
            self.runtime,
            Replication(self.log, ReplicationLimits(TIMEOUT_S), 1, self.runtime.time),
            LogWriter(self.runtime, journal, WriteWays(self.runtime, [ref(self.journal_lane)], None), None),
            self.saved,
            ReplicatorSettings(is_alone=False),
            new_cluster_id=lambda: 77,
            counts=ClientCounts(),
        )
        others = (self.owner, Probe(), self.peers, Probe())
        owner, checkpointer, links, router = map(ref, others)
        self.replicator.attach(Recipients(owner, self.elector.actor_ref, checkpointer, links, router))
        self.elector.attach(self.replicator.actor_ref)
        self.elector.actor_ref.tell(ElectionFacts(frozenset({1, 2, 3}), 9))
        for actor in (self.elector, self.replicator):
            actor.begin()
        while any(actor.actor_inbox.envelopes for actor in (self.elector, self.replicator)):
            self.elector.take_turn()
            self.replicator.take_turn()
        self.peers.told.clear()

    def choices(self) -> list[Callable[[], None]]:
        """What may happen next."""
        ready = [actor for actor in (self.elector, self.replicator) if actor.actor_inbox.envelopes]
        found: list[Callable[[], None]] = [partial(self._deliver, actor) for actor in ready]
        if any(isinstance(one, SaveIdentity) for one in self.disk.told):
            found.append(self._save)
        if any(isinstance(one, WriteBytes) for one in self.journal_lane.told):
            found.append(self._write)
        if self.events:
            found.append(lambda: self.events.popleft()(self))
        return found

    def _deliver(self, actor: Elector | Replicator) -> None:
        if not actor.actor_inbox.envelopes:
            return
        message = actor.actor_inbox.envelopes.popleft()
        if isinstance(message, PeerSaid) and isinstance(message.message, VoteRequest):
            self.asked[message.node_id, message.message.vote_id] = self.stored_count
        actor.on_receive(message)
        for promoted in self.owner.take(Promoted):  # the owner's first entry as a leader
            at, vote_id = self.log.tail.end.trans_id + 1, promoted.vote_id
            lead = StoredEntry(at, at, vote_id, encode(vote_id, at, 1.0, [Lead("", 1)]))
            self.replicator.actor_ref.tell(Append(vote_id, [lead]))
        for sent in self.peers.take(SendPeers):
            for node_id in sent.node_ids:
                self._said(node_id, sent.message)

    def _save(self) -> None:
        save = self.disk.take(SaveIdentity)[0]
        self.saved = save.identity
        self.saved_votes[self.saved.vote_id] = self.saved.voted_for
        self.elector.actor_ref.tell(IdentitySaved(save.identity))

    def _write(self) -> None:
        write = self.journal_lane.take(WriteBytes)[0]
        self.durable = write.write.entry_count
        self.replicator.actor_ref.tell(BytesWritten(write.write))

    def _said(self, node_id: int, message: Any) -> None:
        """What leaves this node keeps the rules."""
        if isinstance(message, Vote) and message.is_granted and not message.is_pre:
            vote_id = message.vote_id
            assert self.saved_votes.get(vote_id) == node_id, "a vote is on the disk before it is said"
            assert self.votes.setdefault(vote_id, node_id) == node_id, "one vote a vote_id"
            end = self.ends[node_id, vote_id]
            assert end >= self.log.tail.end, "only for a log that is at least as far (3.6.1)"
            assert self.asked[node_id, vote_id] == self.stored_count, "no leader was answered since it asked (6.4.1)"
        elif isinstance(message, VoteRequest) and not message.is_pre:
            assert self.saved_votes.get(message.vote_id) == 1, "its own vote, too"
            self.votes[message.vote_id] = 1
        elif isinstance(message, Stored) and message.echo >= 0:  # below: it refuses a leader of long ago
            self.stored_count += 1
            assert message.vote_id >= max(self.votes, default=0), "nothing is stored for a leader that was voted out"
            assert message.trans_id <= self.durable, "what is said to be stored is on the disk: an entry a record"
        elif isinstance(message, Push):
            assert self.votes.get(message.vote_id) == 1, "who leads was elected"

    @property
    def ends(self) -> dict[tuple[int, int], LogEnd]:
        """Where the candidates' logs end, as these cases have them."""
        return {(node_id, vote_id): CANDIDATES_END for node_id in (2, 3) for vote_id in range(9)}

    @property
    def state(self) -> tuple[Any, ...]:
        """What tells this moment from others: two that have the same go on in the same ways."""
        election, machine, log = self.elector._machine, self.replicator._machine, self.log
        return (
            *(repr(list(actor.actor_inbox.envelopes)) for actor in (self.elector, self.replicator)),
            *(repr([one.identity for one in self.disk.told]), len(self.journal_lane.told), len(self.events)),
            *(
                repr(sorted(self.saved_votes.items())),
                self.durable,
                repr(sorted(self.asked.items())),
                repr(sorted(self.votes.items())),
            ),
            *(self.stored_count, self.runtime.time, repr(election.identity), election.role, election.leader),
            *(repr(sorted(election._votes)), election.deadline, repr(list(self.elector._untold))),
            *(machine.vote_id, machine.is_leading, machine.leader, log.tail.end.vote_id, log.tail.end.trans_id),
            *(log.durable, log.committed, log.stored_said),
        )


CANDIDATES_END: Final = LogEnd(1, 1)


def candidate(vote_id: int, *, is_forced: bool = False) -> VoteRequest:
    return VoteRequest(vote_id, False, is_forced, CANDIDATES_END.vote_id, CANDIDATES_END.trans_id)


HEARD: Final = says(2, Push(1, 0, 0, [], 0, 0.5))
"""Node 2 leads in vote 1."""

CASES: Final[dict[str, list[Event]]] = {
    "an old leader goes on while another is elected": [
        HEARD,
        says(2, push(1, 1, 0)),
        waits(0.5),
        says(3, candidate(2)),
        says(2, push(1, 2, 1)),
    ],
    "it stood still, and an old leader and a new one speak": [
        says(2, push(1, 1, 0)),
        stands_still(1.0),
        says(3, candidate(2)),
        says(2, push(1, 2, 1)),
    ],
    "it leads, stands still, and another has won": [
        waits(1.0),
        says(2, Vote(2, True, True)),
        says(2, Vote(2, False, True)),
        stands_still(1.0),
        says(3, push(3, 1, 0)),
    ],
    "two candidates ask for the same vote": [HEARD, waits(0.5), says(2, candidate(2)), says(3, candidate(2))],
    "a new leader pushes while this node votes": [
        says(2, push(1, 1, 0)),
        waits(0.5),
        says(3, candidate(2)),
        says(3, push(2, 2, 1)),
    ],
    "it stands itself, and another has won": [
        waits(1.0),
        says(2, Vote(2, True, True)),
        says(2, Vote(2, False, True)),
        says(3, push(2, 1, 0)),
    ],
    "it leads, and a later vote comes": [
        waits(1.0),
        says(2, Vote(2, True, True)),
        says(2, Vote(2, False, True)),
        says(3, candidate(3, is_forced=True)),
    ],
}


def moments(events: list[Event]) -> int:
    """Go through every order, each from the beginning; how many moments there were that differ."""
    seen: set[tuple[Any, ...]] = set()
    todo: list[list[int]] = [[]]
    while todo:
        chosen = todo.pop()
        pair = Pair(events)
        for choice in chosen:
            pair.choices()[choice]()
        while (options := pair.choices()) and (state := pair.state) not in seen:
            seen.add(state)
            todo += [[*chosen, other] for other in range(1, len(options))]
            options[0]()
            chosen = [*chosen, 0]
    return len(seen)


@pytest.mark.parametrize("name", CASES)
def test_in_every_order_what_is_said_keeps_the_rules(name: str) -> None:
    assert moments(CASES[name]) > 50
