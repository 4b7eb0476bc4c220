"""Links that carry one way only: whoever leads and can't go on gives way, and the rest goes on without it."""

from itertools import chain, combinations

import pytest

from tests.simulation.clients import SimulatedClient
from tests.simulation.cluster import SimulatedNode
from tests.simulation.network import Weather
from tests.simulation.run import Run

GIVES_WAY_S = 10.0
SERVES_S = 10.0


def leader_of(run: Run) -> SimulatedNode | None:
    """Who was elected last."""
    leaders = run.observers[0].leaders
    return next((node for node in run.nodes if leaders and node.node_id == leaders[max(leaders)]), None)


def served(run: Run) -> int:
    """Messages whose produce was acknowledged."""
    return len(run.history.acknowledged)


def cut(run: Run, leader: SimulatedNode, directions: list[tuple[int, bool]]) -> None:
    """Of the links between the leader and the others these directions carry nothing; True: what the leader says."""
    others = [node for node in run.nodes if node is not leader]
    for number, from_leader in directions:
        other = others[number]
        pair = (leader.name, other.name) if from_leader else (other.name, leader.name)
        run.network.blocked.add(pair)


def started(seed: int, size: int) -> Run:
    run = Run(seed, size)
    run.network.weather = Weather()
    run.limits.election_timeout_s = 1.0
    for node in run.nodes:
        assert node.start()
    run.world.run_until(60.0, lambda: leader_of(run) is not None)
    for number in range(3):
        SimulatedClient(run.world, run.nodes, run.history, f"c{number}")
    run.world.run_until(run.world.time + 20.0, lambda: served(run) > 5)
    assert served(run) > 5
    return run


WAYS = [(number, from_leader) for number in (0, 1) for from_leader in (True, False)]
OF_THREE = list(chain.from_iterable(combinations(WAYS, count) for count in range(1, 5)))
OF_FIVE = [[(number, from_leader) for number in range(half)] for half in (2, 3, 4) for from_leader in (True, False)]
MIXED = [[(number, number % 2 == 0) for number in range(4)], [(number, number % 2 == 1) for number in range(3)]]


@pytest.mark.parametrize(
    ("size", "directions"), [*((3, list(one)) for one in OF_THREE), *((5, one) for one in (*OF_FIVE, *MIXED))]
)
@pytest.mark.parametrize("seed", [11, 12])
def test_whatever_carries_one_way_only_somebody_serves_soon(
    size: int, directions: list[tuple[int, bool]], seed: int
) -> None:
    run = started(seed, size)
    leader = leader_of(run)
    assert leader is not None
    cut(run, leader, directions)
    run.world.run_until(run.world.time + GIVES_WAY_S)
    before = served(run)
    for number in range(8):  # those of before may wait for answers that the old leader owes them
        SimulatedClient(run.world, run.nodes, run.history, f"new{number}")
    run.world.run_until(run.world.time + SERVES_S, lambda: served(run) > before)
    assert served(run) > before, "nobody serves"
    assert run.history.problems == []
    for node in run.nodes:
        node.end(power_cut=False)
