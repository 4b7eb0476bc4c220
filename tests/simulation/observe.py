"""Looking over the shoulders of the nodes: what the checkers know that no client can see.

Actors tell their runtime's watcher what they decide; nothing is replaced, so compiled code can be watched, too. It is
noted who led in which vote_id, which entries were committed, and when a leader decided to deliver.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from actors.cluster.decisions import WriteEntries
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.checkpoints import HeadDescribed, StagePart
from actors.messages.log import Deposed, Drain, LogCut, Promoted, Propose, StateDropped, Undrain
from actors.messages.peers import SendPeers
from net.peers.messages import Diverged, Push, SnapshotNeeded, TakeOver
from storage.applying import apply_now
from storage.entry import StoredEntry
from storage.entry_codec import decode
from storage.message_ids import newest_record
from storage.records import Clear, Configure, Encoding, Moving, Place, Position, Produce, Remove, Withhold
from storage.state import ShardState
from tests.simulation.rules import Rules
from tests.simulation.world import World
from tests.storage.facts import IN_FLIGHT, facts

STRANGER = 9
"""The number of who is no node of the cluster, unless it takes a member's."""

RARE: dict[type, list[tuple[str, Callable[[Any], bool]]]] = {
    WriteEntries: [("tails cut", lambda decision: any(one.is_cut for one in decision.entries))],
    LogCut: [("states undone", lambda decision: True)],
    StateDropped: [("states made anew", lambda decision: True)],
    StagePart: [
        ("snapshot parts", lambda decision: True),
        ("snapshots taken over", lambda decision: decision.part.is_last),
    ],
    Propose: [("changes of members", lambda decision: True)],
    Drain: [("hand-overs begun", lambda decision: True)],
    Undrain: [("hand-overs given up", lambda decision: True)],
    SnapshotNeeded: [("snapshots wanted", lambda message: True)],
    Diverged: [("logs found to differ", lambda message: True)],
    TakeOver: [("successors told", lambda message: True)],
    Push: [
        ("pushes of several entries", lambda message: message.is_pulled is False and len(message.entries) > 1),
    ],
}
"""Branches that a run should reach now and then: what decisions, and messages to peers, are called, and when."""


class Observer:
    """One run's notes of one shard; `problems` and `handed_out` are the history's of the clients.

    `posed`: whom a stranger said to which node that it is: what that one is cut off for need not be its own words.
    `logs` and `states`: of each node, as it runs; `cuts`: behind which records a log was cut that its state's owner has
    not heard of. `positions`: what the log's readers have said, by the numbers of those records.
    """

    def __init__(
        self, world: World, problems: list[str], handed_out: dict[tuple[int, int], float], shard: int = 0
    ) -> None:
        self._world = world
        self._shard = shard
        self.problems = problems
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.handed_out = handed_out
        self.produced: Counter[tuple[str, str]] = Counter()
        self.posed: set[tuple[int, int]] = set()
        self.elections = 0
        self.rules = Rules()
        self.logs: dict[int, ReplicatedLog] = {}
        self.states: dict[int, ShardState] = {}
        self.lapsed: dict[int, dict[int, float]] = {}
        self.cuts: dict[int, deque[int]] = {}
        self.positions: list[tuple[int, Position]] = []
        self.abstaining: set[int] = set()
        self.reached: Counter[str] = Counter()

    def watch(self, node_id: int, what: str, about: Any) -> None:
        """As a runtime's watcher."""
        if what == "committed":
            self.settled(node_id, about)
        elif what == "cut off" and (node_id, about.node_id) not in self.posed:
            self.problems.append(
                f"node {node_id} cuts node {about.node_id} off, which said nothing wrong: {about.reason}"
            )
        elif what == "answered":
            self.answered(about)
        elif what == "trimmed":
            self.trimmed(node_id, about)
        elif what == "state":
            self.taken(node_id, *about)
        elif what == "decided":
            if isinstance(about, LogCut):
                self.cuts.setdefault(node_id, deque()).append(about.after)
            if isinstance(about, Deposed) and about.log_end < self.states[node_id].trans_id:
                self.reached["lost leads with records to take back"] += 1
            self.counts_again(node_id, self.logs[node_id])
            if isinstance(about, Promoted):
                self.led(about.vote_id, node_id)
            said = about.message if type(about) is SendPeers else about
            for name, matches in RARE.get(type(said), ()):
                if matches(said):
                    self.reached[name] += 1

    def counts_again(self, node_id: int, log: ReplicatedLog) -> None:
        """Note a lost log that has all again."""
        if log.abstains:
            self.abstaining.add(node_id)
        elif node_id in self.abstaining:
            self.abstaining.remove(node_id)
            self.reached["lost logs whole again"] += 1

    def led(self, vote_id: int, node_id: int) -> None:
        """A node takes the lead."""
        self.elections += 1
        known = self.leaders.setdefault(vote_id, node_id)
        if known != node_id:
            self.problems.append(f"nodes {known} and {node_id} both lead in vote {vote_id}")

    def settled(self, node_id: int, entry: StoredEntry) -> None:
        """A node takes an entry for committed."""
        first, last = entry.first_trans_id, entry.last_trans_id
        if first not in self.committed:
            records = decode(entry.data, "a committed entry").records
            self.positions += [(first + at, one) for at, one in enumerate(records) if isinstance(one, Position)]
        known = self.committed.setdefault(first, (last, entry.data))
        if known != (last, entry.data):
            self.problems.append(f"node {node_id} committed other records {first}..{last} than another node did")

    def trimmed(self, node_id: int, described: HeadDescribed) -> None:
        """Check that a stretch that a node has trimmed was read by all who had said by then that they read the log."""
        self.reached["stretches trimmed"] += 1
        assert described.trim is not None
        known = {one.reader: one for trans_id, one in self.positions if trans_id <= described.as_of}
        later = {one.reader for _, one in self.positions if one.upto is None or one.upto >= described.trim.until}
        for name, at in known.items():
            if name not in later and at.upto is not None and described.asked.trimmed <= at.upto < described.trim.until:
                self.problems.append(
                    f"node {node_id} trims its log up to {described.trim.until}, and {name} has read up to {at.upto}"
                )

    def taken(self, node_id: int, state: ShardState, time: float) -> None:
        """An owner goes on with a state, from that time on: it leads or follows now, or the log was cut."""
        known, self.states[node_id] = self.states.get(node_id), state
        cuts = self.cuts.setdefault(node_id, deque())
        if known is not state:
            cuts.clear()
            trimmed = self.logs[node_id].trimmed if node_id in self.logs else 0
            of_rows = [m for m in state.messages.values() if newest_record(m) <= trimmed]
            lapsed = [m for m in of_rows if m.place != Place.IN_FLIGHT and m.due_at <= self._world.latest_wall]
            self.lapsed[node_id] = {message.msg_id: message.due_at for message in lapsed}
            return  # a fresh one, whose rows may be of a later moment than what it has of the log
        if cuts and cuts[0] == state.trans_id:
            cuts.popleft()
        if cuts:
            return  # it is about to hear that its log is another one
        log = self.logs[node_id]
        said = ShardState(self._shard)
        for first, (last, data) in sorted(self.committed.items()):
            if first == said.trans_id + 1 and last <= min(state.trans_id, log.committed):
                apply_now(said, [StoredEntry(first, last, 0, data)])
        for stored in log.tail.behind(said.trans_id, up_to=state.trans_id):
            fresh = StoredEntry(stored.first_trans_id, stored.last_trans_id, 0, stored.data)
            apply_now(said, [fresh])
        self.compare(node_id, state, time, said)

    def compare(self, node_id: int, state: ShardState, time: float, said: ShardState) -> None:
        """A state in memory, in order at that time, against what the log says.

        A row may say that a message was not in flight any more, by the clock of who led then: the log does not.
        """
        state.check()
        held, wanted = facts(state, time), facts(said, time)
        for msg_id, due_at in self.lapsed.get(node_id, {}).items():
            if msg_id in held["messages"] and (message := said.messages.get(msg_id)) and message.due_at == due_at:
                wanted["messages"][msg_id][IN_FLIGHT] = held["messages"][msg_id][IN_FLIGHT]
        wrong = [name for name, one in held.items() if one != wanted[name]]
        if wrong:
            self.problems.append(f"node {node_id}'s state at record {state.trans_id} is not the log's: {wrong}")

    def answered(self, answers: Sequence[Any]) -> None:
        """A leader's owner lets answers go."""
        for call, reply in answers:
            if call.request.full:
                one = getattr(reply, "message", None)
                for view in [one] if one is not None else getattr(reply, "messages", ()):
                    self.handed_out[view.msg_id, view.deliveries] = self._world.time
            elif reply.deliveries is not None:
                self.handed_out[reply.msg_id, reply.deliveries] = self._world.time
            else:
                messages = getattr(reply, "messages", None)
                if messages and hasattr(messages[0], "deliveries") and not hasattr(messages[0], "state"):
                    for one in messages:
                        self.handed_out[one.msg_id, one.deliveries] = self._world.time

    def replayed(self) -> ShardState:
        """The state that all committed entries describe, which must follow each other without gaps."""
        state, rules = ShardState(self._shard), self.rules
        for first in sorted(self.committed):
            last, data = self.committed[first]
            if first != state.trans_id + 1:
                self.problems.append(f"committed records begin at {first}, those before end at {state.trans_id}")
                break
            entry = decode(data, "a committed entry")
            for offset, record in enumerate(entry.records):
                if isinstance(record, Moving | Clear | Configure | Remove | Withhold):
                    self.reached[f"records of {type(record).__name__}"] += 1
                if isinstance(record, Produce) and record.encoding == Encoding.JSON:
                    self.produced[record.queue, json.loads(record.data)] += 1
                state.follow(first + offset, record, entry.time)
                rules.check(record, entry.time, state)
            if state.trans_id != last:
                self.problems.append(f"committed records {first}..{last} end at {state.trans_id}")
            if entry.time < state.time:
                self.problems.append(f"the log's time goes back at record {first}: {state.time} to {entry.time}")
            state.time = entry.time
        self.problems += rules.problems
        return state
