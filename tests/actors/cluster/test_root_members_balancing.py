"""A shard's leader gives its place to the node that should have it, when that one has been well for a while."""

import pytest

from actors.cluster.following import ReplicationLimits
from actors.cluster.progress import Progress
from actors.cluster.root_members import Balancing
from storage.records import Member, Members

THREE = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=True) for n in (1, 2, 3)], [])


class Leader:
    """What balancing looks at of a leader: node 1's, of a log of 5000 records."""

    def __init__(self) -> None:
        self.progress = {2: Progress(0.0), 3: Progress(0.0)}

    def well(self, now: float, node_id: int = 2, match: int = 5000) -> None:
        """That node was heard just now, and has so much."""
        self.progress[node_id].heard_at = now
        self.progress[node_id].match = match


def target(balancing: Balancing, leader: Leader, now: float) -> int | None:
    return balancing.target(now, THREE, 1, leader.progress, 5000)


def test_the_place_goes_to_the_node_that_has_been_well_for_long_enough() -> None:
    balancing, leader = Balancing(1, 3, 10.0), Leader()
    for now in range(10):
        leader.well(float(now))
        assert target(balancing, leader, float(now)) is None
    leader.well(10.0)
    assert target(balancing, leader, 10.0) == 2
    leader.well(11.0)
    assert target(balancing, leader, 11.0) is None, "if it did not take over, not again at once"
    leader.well(20.0)
    assert target(balancing, leader, 20.0) == 2


def test_a_node_that_comes_and_goes_gets_nothing() -> None:
    balancing, leader = Balancing(1, 3, 10.0), Leader()
    leader.well(0.0)
    assert target(balancing, leader, 0.0) is None
    assert target(balancing, leader, 5.0) is None, "it was not heard"
    leader.well(12.0)
    assert target(balancing, leader, 12.0) is None, "its time begins anew"
    leader.well(14.0, match=3000)
    assert target(balancing, leader, 14.0) is None, "it is behind"
    leader.well(16.0)
    leader.progress[2].is_full = True
    assert target(balancing, leader, 16.0) is None
    leader.progress[2].is_full = False
    for now in range(17, 27):
        leader.well(float(now))
        assert target(balancing, leader, float(now)) is None
    leader.well(27.0)
    assert target(balancing, leader, 27.0) == 2


def test_who_should_lead_stays_and_one_shard_or_no_time_moves_nothing() -> None:
    for balancing in (Balancing(0, 3, 1.0), Balancing(1, 1, 1.0), Balancing(1, 3, 0.0)):
        leader = Leader()
        for now in range(20):
            leader.well(float(now))
            assert target(balancing, leader, float(now)) is None
    assert Balancing(1, 3, 0.0).wanted(THREE, 1) == 2, "told to, it moves all the same"
    assert Balancing(1, 3, 0.0).wanted(THREE, 2) is None


@pytest.mark.parametrize("timeout_s", [0.1, 0.4, 2.0, 8.0, 10.0, 30.0])
def test_a_healthy_follower_counts_as_heard_whatever_the_election_time_out_is(timeout_s: float) -> None:
    """It had to be heard within a second; with a time-out of 10 s a heartbeat leaves every 1.25: half of all transfers
    found no other node, and balancing never did."""
    limits = ReplicationLimits(timeout_s)
    balancing, leader = Balancing(1, 3, 10.0, limits.heard_s), Leader()
    now, targets = 0.0, []
    while now < 60.0:
        leader.well(now)
        now += limits.heartbeat_s
        targets.append(target(balancing, leader, now - 1e-6))  # just before it is heard again
    assert 2 in targets
    assert limits.heard_s >= 3 * limits.heartbeat_s, "some heartbeats may be lost"
