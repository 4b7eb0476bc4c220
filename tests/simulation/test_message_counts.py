"""How many messages between actors a produce takes until its reply is written, on real actors: each costs a request.

A hop that was merged away comes back unnoticed, since nothing is wrong where it does: so they are counted.
Of actors on the loop: what a thread is told that waits for the disk is not.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pykka
import pytest

from actors.cluster.pushing import Lateness
from quorate.shards import shard_of_queue
from tests.simulation.cluster import SimulatedNode, Stream
from tests.simulation.network import Weather
from tests.simulation.run import Run

UPKEEP = ("Checkpointed", "LeaderHeard", "QuorumHeard", "HeadDescribed", "Apply")
"""What comes with time, or of requests before: a follower applies what was committed when the next entry comes."""

PATIENCE_S = 40.0
"""An election time-out so long that no heartbeat falls between a request and its reply."""


class Counts:
    """What the actors of a run have taken while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.taken: Counter[str] = Counter()
        for ref in pykka.ActorRegistry.get_all():
            actor = ref._actor_weakref()
            handlers = getattr(actor, "handlers", None)
            if actor is not None and handlers:
                actor.handlers = {kind: self._counted(type(actor).__name__, one) for kind, one in handlers.items()}

    def _counted(self, actor: str, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        def take(message: Any) -> None:
            if self.is_on and type(message).__name__ not in UPKEEP:
                self.taken[f"{actor}: {type(message).__name__}"] += 1
            handler(message)

        return take


class Client:
    """Of one node; counting ends with the reply."""

    def __init__(self, run: Run, node: SimulatedNode, counts: Counts) -> None:
        self._run, self._counts = run, counts
        self._replied = bytearray()
        self._stream = Stream(run.world, self._replied.extend, lambda: None)
        written = self._stream.write

        def write(data: bytes) -> None:
            counts.is_on = False
            written(data)

        self._stream.write = write  # type: ignore[method-assign]
        assert node.connect(self._stream)

    def produce(self, queue: str) -> Counter[str]:
        """Produce, and give what that took."""
        self._replied.clear()
        self._counts.taken = Counter()
        self._counts.is_on = True
        self._stream.send(json.dumps({"action": 1, "queue": queue, "data": 1, "retry": 300}).encode() + b"\n")
        self._run.world.run_until(self._run.world.time + 30.0, lambda: self._replied.endswith(b"\n"))
        assert json.loads(self._replied)["code"] == 0
        taken = self._counts.taken
        self._run.world.run_until(self._run.world.time + 0.3)  # the late follower has it, too
        return taken


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    for ref in list(pykka.ActorRegistry.get_all()):
        pykka.ActorRegistry.unregister(ref)


def started(size: int, shards: int = 1) -> Run:
    """A quiet cluster with a leader, set as nodes are by default but for its patience."""
    run = Run(
        7, size, shards, has_steward=False, has_workers=False, has_jobbers=False, has_gophers=False, has_replacers=False
    )
    run.network.weather = Weather()
    world, limits = run.world, run.limits
    world.has_async_writes, world.latencies = True, [0.0002]
    world.late = world.starts = world.strangers = None
    limits.variety = limits.flush_interval_s = None
    for node in run.nodes:
        node.settings = replace(
            node.settings,
            election_timeout_s=PATIENCE_S,
            lateness=Lateness(),
            forwards=True,
            is_lease_committed=False,
            log_records_max=100_000,
            segment_bytes=1 << 20,
            window_bytes=4 << 20,
            push_bytes=1 << 20,
            pull_bytes=1 << 20,
            forward_bytes=1 << 20,
            frame_bytes_max=8 << 20,
            balance_s=0.0,
            move_after=0,
        )
        assert node.start()
    run.world.run_until(5 * PATIENCE_S)
    return run


def counted(run: Run, node: SimulatedNode, queue: str) -> Counter[str]:
    """What a produce takes there, when others were done before: the least of some, since time goes on meanwhile."""
    counts = Counts()
    client = Client(run, node, counts)
    for _ in range(5):
        client.produce(queue)
    return min((client.produce(queue) for _ in range(5)), key=lambda one: one.total())


def leader_of(run: Run) -> int:
    leaders = run.observers[0].leaders
    return leaders[max(leaders)]


def test_a_produce_on_one_node_takes_five() -> None:
    run = started(1)
    taken = counted(run, run.nodes[0], "a")
    assert taken.total() == 5, taken


def test_a_produce_through_a_follower_takes_fifteen() -> None:
    run = started(3)
    leader = leader_of(run)
    follower = next(node for node in run.nodes if node.node_id != leader)
    taken = counted(run, follower, "a")
    assert taken["Router: PeerSaid"] == 2, "it was asked through a follower"
    assert taken.total() == 15, taken


def test_a_produce_on_the_wrong_worker_takes_ten() -> None:
    run = started(1, shards=2)
    queue = next(name for name in "abcd" if shard_of_queue(name, 2) == 1)
    taken = counted(run, run.nodes[0], queue)
    assert taken["Links: SendPeers"] == 2, "it was asked on the wrong worker"
    assert taken.total() == 10, taken
