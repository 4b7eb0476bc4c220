"""What replication promises and measures: leases, votes, long tails, silent disks, paces."""

import pytest

from actors.cluster.admin import ClusterAdmin
from actors.cluster.balancing import Balancing
from actors.cluster.leading import LEASE_PART
from actors.cluster.pace import Pace
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.messages.election import CastVote, Standing, VoteAsked
from actors.messages.log import Append, Drain, LogAdvanced
from actors.messages.peers import PeerSaid
from net.peers.messages import (
    Diverged,
    Pull,
    Push,
    Stored,
    Vote,
    VoteRequest,
)
from storage.entry import LogEnd
from tests.actors.cluster.replication_node import Node, following, leading, made


def stored(trans_id: int, echo: float, promise_s: float = 0.0, *, is_full: bool = False) -> Stored:
    return Stored(5, trans_id, echo, is_full, promise_s)


def test_a_lease_holds_for_what_the_followers_promised_and_not_for_what_the_leader_is_set_to() -> None:
    node = leading()
    node.heard(1.1, 2, stored(1, 1.0, 0.1))
    told = node.machine.take(LogAdvanced)[-1]
    assert told.leased_until == pytest.approx(1.0 + 0.1 * LEASE_PART)
    node.heard(1.2, 3, stored(1, 1.0, 30.0))
    told = node.machine.machine.leading.advanced(1.2)
    assert told.leased_until == pytest.approx(1.0 + 0.4 * LEASE_PART), "one of a majority is enough"
    assert node.machine.machine.leading.heartbeat_s == pytest.approx(0.1 / 8), "the impatient one hears of it in time"


def test_a_follower_says_what_it_promises() -> None:
    node = following(made(1, 3, 1))
    node.heard(0.1, 2, Push(5, 3, 1, [], 0, 0.1))
    assert [one.promise_s for one in node.said(Stored)] == [0.4]


def test_a_vote_is_not_sent_when_the_leader_it_takes_the_lease_from_was_answered_meanwhile() -> None:
    """The Replicator answers a heartbeat while the Elector has not said yet that the leader is left."""
    node = following(made(1, 3, 1))
    node.heard(1.0, 3, VoteRequest(6, False, False, 1, 3))
    [asked] = node.machine.take(VoteAsked)
    node.heard(1.0, 2, Push(5, 3, 1, [], 0, 1.0))
    assert len(node.said(Stored)) == 1
    node.machine.stand(1.0, Standing(6, None, CastVote(3, Vote(6, False, True), asked.end, asked.stored_said)))
    assert node.said(Vote) == [Vote(6, False, False)]
    other = following(made(1, 3, 1))
    other.heard(1.0, 3, VoteRequest(6, False, False, 1, 3))
    [asked] = other.machine.take(VoteAsked)
    other.machine.stand(1.0, Standing(6, None, CastVote(3, Vote(6, False, True), asked.end, asked.stored_said)))
    assert other.said(Vote) == [Vote(6, False, True)]


def test_a_candidate_that_this_log_does_not_know_yet_is_heard() -> None:
    """Four voters, one down, and this one's log behind the record that made the candidate a voter (4.1)."""
    node = Node(made(1, 3, 1), vote_id=5)
    request = VoteRequest(6, False, False, 1, 9)
    node.machine.heard(0.0, PeerSaid(4, request, 9, 44))
    assert [one.candidate for one in node.machine.take(VoteAsked)] == [4]
    node.machine.heard(0.0, PeerSaid(4, VoteRequest(6, False, True, 1, 9), 9, 44))
    assert node.machine.take(VoteAsked) == [], "but it can't claim that this node's leader wants it"


def test_a_tail_of_any_size_can_be_given_up() -> None:
    """What a lost lead left: nobody commits it, and only a pull's answer can tell that it is another's log."""
    long = [made(n, n, 2) for n in range(4, 60)]
    node = Node(made(1, 3, 1), *long, committed=3, tail_bytes_max=1000)
    node.machine.stand(0.0, Standing(5, 2))
    [pull] = node.said(Pull)
    assert pull.records_max == 0, "no entries are wanted, but whether the two agree"
    leader = leading(made(1, 3, 1), made(4, 5, 3))
    leader.heard(0.0, 3, pull)
    [diverged] = leader.said(Diverged)
    node.heard(0.1, 2, Diverged(5, diverged.up_to, diverged.after, diverged.after_vote_id))
    assert node.log.tail.end == LogEnd(1, 3)
    assert [one.records_max > 0 for one in node.said(Pull)] == [True]


def test_a_long_tail_that_agrees_is_asked_for_no_more_and_again_in_a_while() -> None:
    node = Node(made(1, 3, 1), *[made(n, n, 2) for n in range(4, 60)], committed=3, tail_bytes_max=1000)
    node.machine.stand(0.0, Standing(5, 2))
    [pull] = node.said(Pull)
    leader = leading(made(1, 3, 1), *[made(n, n, 2) for n in range(4, 60)])
    leader.heard(0.0, 3, pull)
    [answer] = leader.said(Push)
    assert not answer.entries
    node.heard(0.0, 2, answer)
    for at in (0.05, 0.1, 0.3):
        node.machine.tick(at)
    assert node.said(Pull) == []
    node.machine.tick(0.6)
    assert len(node.said(Pull)) == 1


def test_a_log_that_was_lost_counts_when_the_disk_has_all_that_the_leader_had() -> None:
    node = following()
    node.log.abstains = True
    records = [made(1, 3, 4), made(4, 6, 5)]
    node.heard(0.1, 2, Push(5, 0, 0, [one.data for one in records], 6, 0.1, is_pulled=True, is_end=True))
    before = node.log.abstains
    node.written()
    assert (before, node.log.abstains) == (True, False), "when it is on the disk"
    part = following()
    part.log.abstains = True
    part.heard(0.1, 2, Push(5, 0, 0, [records[0].data], 6, 0.1, is_pulled=True, is_end=False))
    part.written()
    assert part.log.abstains, "the leader has more"


def test_who_says_that_its_log_ends_earlier_than_it_did_is_believed() -> None:
    """One that began anew looked level: it was the best successor, and none could be led by it."""
    node = leading(made(1, 3, 1))
    node.heard(0.0, 2, stored(4, 0.0, 0.4))
    progress = node.machine.machine.leading.progress[2]
    assert progress.match == 4
    node.heard(0.1, 2, Pull(5, 0, 0, 100))
    assert progress.match == 0


def test_a_leader_whose_disk_does_not_answer_hands_over() -> None:
    node = leading(made(1, 3, 1))
    admin = ClusterAdmin(
        node.machine.machine,
        ReplicatorSettings(level=1),
        is_founded=True,
        balancing=Balancing(0, 1, 0.0, 9.0),
    )
    node.machine.append(0.0, Append(5, [made(5, 5, 5)]))
    node.machine.tick(0.0)
    for follower in (2, 3):
        node.heard(0.0, follower, stored(5, 0.0, 0.4))
    assert not [one for one in admin.tick(1.0) if isinstance(one, Drain)]
    for follower in (2, 3):
        node.heard(1.3, follower, stored(5, 0.0, 0.4))
    assert [type(one) for one in admin.tick(1.3)] == [Drain]


def test_a_leader_whose_disk_does_not_answer_is_stuck_after_some_time_outs_and_commits_by_the_others() -> None:
    node = leading(made(1, 3, 1))
    node.machine.append(0.0, Append(5, [made(5, 5, 5)]))
    role = node.machine.machine.leading
    node.machine.tick(0.0)
    for follower in (2, 3):
        node.heard(0.0, follower, stored(5, 0.0, 0.4))
    assert node.log.committed == 5
    assert node.log.durable == 4
    assert not role.is_stuck(1.0)
    assert role.is_stuck(1.3)
    node.written()
    assert not role.is_stuck(1.4)


def test_nothing_is_promised_that_needs_space_when_too_many_followers_have_none() -> None:
    node = leading()
    node.heard(0.1, 2, stored(1, 0.0, 0.4, is_full=True))
    assert node.machine.machine.leading.advanced(0.1).disk_full is None, "two of three have space"
    node.heard(0.1, 3, stored(1, 0.0, 0.4, is_full=True))
    assert "node 2, 3 are full" in node.machine.machine.leading.advanced(0.1).disk_full
    node.heard(0.2, 3, stored(1, 0.1, 0.4))
    assert node.machine.machine.leading.advanced(0.2).disk_full is None


@pytest.mark.parametrize("rate", [1, 2, 4, 100])
def test_a_node_that_is_behind_pulls_at_any_rate_that_can_be_set(rate: int) -> None:
    pace = Pace(rate, 0.0)
    pulled = 0
    for step in range(1000):
        if (allowed := int(pace.allowed(step / 10))) >= 1:
            pace.spend(allowed)
            pulled += allowed
    assert rate * 80 <= pulled <= rate * 105


def test_what_a_leader_said_when_it_led_before_counts_for_nothing() -> None:
    """It leads again, under a later vote; what it pushed under the one before may have been cut off since (3.3)."""
    node = following(made(1, 3, 1))
    node.heard(0.1, 2, Push(4, 3, 1, [made(4, 4, 4).data], 4, 0.1))
    assert node.log.tail.end == LogEnd(1, 3)
    assert [(one.vote_id, one.trans_id, one.echo) for one in node.said(Stored)] == [(5, 0, -1.0)], "it extends no lease"
