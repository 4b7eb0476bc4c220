"""Looking over the shoulders of the nodes: what the checkers know that no client can see.

The real methods run; beside them it is noted who led in which vote_id, which entries were committed, and when a
leader decided to deliver.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from actors.cluster.admin import ClusterAdmin
from actors.cluster.following import Following
from actors.cluster.replicated_log import ReplicatedLog
from actors.cluster.replication import Replication
from actors.cluster.snapshot_intake import SnapshotIntake
from actors.gateway.routing import Routing
from actors.queues.queue_owner import QueueOwner
from storage.entry import decode
from storage.log_store import LogStore
from storage.state import ShardState
from tests.simulation.world import World


class Observer:
    """One run's notes. `problems` is shared with the history of the clients."""

    def __init__(self, world: World, problems: list[str]) -> None:
        self._world = world
        self.problems = problems
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.handed_out: dict[tuple[int, int], float] = {}
        self.elections = 0
        self.reached: Counter[str] = Counter()

    def led(self, vote_id: int, node_id: int) -> None:
        """A node takes the lead."""
        self.elections += 1
        known = self.leaders.setdefault(vote_id, node_id)
        if known != node_id:
            self.problems.append(f"nodes {known} and {node_id} both lead in vote {vote_id}")

    def settled(self, node_id: int, first: int, last: int, data: bytes) -> None:
        """A node takes an entry for committed."""
        known = self.committed.setdefault(first, (last, data))
        if known != (last, data):
            self.problems.append(f"node {node_id} committed other records {first}..{last} than another node did")

    def answered(self, answers: Sequence[Any]) -> None:
        """A leader's owner lets answers go."""
        for _, reply in answers:
            if reply.deliveries is not None:
                self.handed_out[reply.msg_id, reply.deliveries] = self._world.time
            elif reply.messages and hasattr(reply.messages[0], "deliveries"):
                for one in reply.messages:
                    self.handed_out[one.msg_id, one.deliveries] = self._world.time

    def replayed(self) -> ShardState:
        """The state that all committed entries describe, which must follow each other without gaps."""
        state = ShardState()
        for first in sorted(self.committed):
            last, data = self.committed[first]
            if first != state.trans_id + 1:
                self.problems.append(f"committed records begin at {first}, those before end at {state.trans_id}")
                break
            entry = decode(data, "a committed entry")
            for offset, record in enumerate(entry.records):
                state.follow(first + offset, record, entry.time)
            if state.trans_id != last:
                self.problems.append(f"committed records {first}..{last} end at {state.trans_id}")
            if entry.time < state.time:
                self.problems.append(f"the log's time goes back at record {first}: {state.time} to {entry.time}")
            state.time = entry.time
        return state


RARE: tuple[tuple[type, str, str], ...] = (
    (ReplicatedLog, "_cut", "tails cut"),
    (ReplicatedLog, "reload", "states made anew"),
    (Following, "installed", "snapshots taken over"),
    (SnapshotIntake, "rows", "snapshot parts"),
    (ClusterAdmin, "_propose", "changes of members"),
    (ClusterAdmin, "_begin", "hand-overs begun"),
    (Routing, "link_lost", "links lost"),
    (Routing, "came_back", "forwarded calls returned"),
    (LogStore, "trim", "trims"),
)
"""Branches that a run should reach now and then: class, method, and what its calls are."""


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Note what nodes do inside the block."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in RARE]
    before += [(Replication, "lead", Replication.lead), (ReplicatedLog, "_settle", ReplicatedLog._settle)]
    before += [(QueueOwner, "_send", QueueOwner._send)]
    lead, settle, send = Replication.lead, ReplicatedLog._settle, QueueOwner._send

    def noted_lead(self: Replication, now: float, vote_id: int) -> None:
        lead(self, now, vote_id)
        if self.is_leading:
            observer.led(vote_id, self.node_id)

    def noted_settle(self: ReplicatedLog, committed: int) -> None:
        for entry in self.tail.behind(self.committed, up_to=committed):
            observer.settled(self.node_id, entry.first_trans_id, entry.last_trans_id, entry.data)
        settle(self, committed)

    def noted_send(self: QueueOwner, answers: list[Any]) -> None:
        observer.answered(answers)
        send(self, answers)

    for owner, name, what in RARE:
        setattr(owner, name, _counted(getattr(owner, name), observer.reached, what))
    setattr(Replication, "lead", noted_lead)  # noqa: B010  # mypy would not let a method be replaced otherwise
    setattr(ReplicatedLog, "_settle", noted_settle)  # noqa: B010  # as above
    setattr(QueueOwner, "_send", noted_send)  # noqa: B010  # as above
    try:
        yield
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def _counted(method: Callable[..., Any], reached: Counter[str], what: str) -> Callable[..., Any]:
    @wraps(method)
    def counted(*arguments: Any, **named: Any) -> Any:
        reached[what] += 1
        return method(*arguments, **named)

    return counted
