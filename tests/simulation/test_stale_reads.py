"""Who led before says nothing of its state any more once another may lead, however long it would wait by itself."""

import math
from dataclasses import replace

import pytest

import quorate_compiled
from actors.cluster.progress import Progress
from actors.shard.lease import Lease
from tests.simulation.network import Weather
from tests.simulation.run import Run
from tests.simulation.steward import Looker, Steward

PATIENT_S = 4.0
"""The leader's election time-out; those of the others are short, so that they elect while it still waits."""

HASTY_S = 0.5


def looked_at_who_led(seed: int) -> tuple[list[str], int, int]:
    """A patient leader is cut off, and asked on; the problems, what was looked at, and how many leaders there were."""
    run = Run(seed, 3, has_steward=False)
    run.limits.variety = None
    run.network.weather = Weather()
    for node in run.nodes:
        node.settings = replace(node.settings, election_timeout_s=PATIENT_S if node.node_id == 1 else HASTY_S)
        assert node.start()
    leaders = run.observers[0].leaders
    run.world.run_until(60.0, lambda: bool(leaders))
    first, others = run.nodes[0], run.nodes[1:]
    if leaders[max(leaders)] != first.node_id:
        return [], 0, 0  # another was quicker: this seed shows nothing
    steward = Steward(run.world, others, run.history)
    looker = Looker(run.world, first, run.history, steward, pace=1.0)
    run.world.run_until(run.world.time + 10.0, lambda: steward.kept > 3 and looker.looked > 3)
    before = looker.looked
    for other in others:
        run.network.blocked |= {(first.name, other.name), (other.name, first.name)}
    run.world.run_until(run.world.time + 2 * PATIENT_S)
    for node in run.nodes:
        node.end(power_cut=False)
    return run.history.problems, looker.looked - before, len(set(leaders.values()))


SEEDS = range(1, 31)


def test_a_leader_that_is_cut_off_tells_nothing_that_is_not_true_any_more() -> None:
    shown = 0
    for seed in SEEDS:
        problems, looked, leaders = looked_at_who_led(seed)
        assert problems == [], f"seed {seed}"
        shown += looked > 0 and leaders > 1
    assert shown > len(SEEDS) // 3, "it is asked while it may answer still, and another led then"


@pytest.mark.skipif(quorate_compiled.running() == "compiled", reason="compiled code can't be replaced")
@pytest.mark.parametrize("bug", ["by its own time-out", "without end"])
def test_a_lease_that_followers_did_not_promise_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "without end":
        true = Lease.renew
        monkeypatch.setattr(Lease, "renew", lambda self, until, confirmed_at: true(self, math.inf, math.inf))
    else:
        monkeypatch.setattr(
            Progress, "promised_until", lambda self, timeout_s, part: self.echo + max(timeout_s, PATIENT_S) * part
        )
    assert any("is told at" in problem for seed in SEEDS for problem in looked_at_who_led(seed)[0])
