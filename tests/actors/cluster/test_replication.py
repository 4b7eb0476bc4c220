"""Replication's front door: who is heard, under which vote_id, and what is said for the Elector."""

import pytest

from actors.cluster.election import Election, Save
from actors.cluster.replication import VOTE_JUMP_MAX
from actors.messages.election import CastVote, ElectionFacts, LeaderHeard, QuorumHeard, Standing, VoteAsked
from actors.messages.peers import CutPeer, PeerSaid
from net.peers.messages import (
    Diverged,
    PeerMessage,
    Pull,
    Push,
    SnapshotNeeded,
    SnapshotPull,
    Stored,
    TakeOver,
    Vote,
    VoteRequest,
)
from storage.entry import LogEnd
from storage.vote_file import Identity
from tests.actors.cluster.recorded import Recorded
from tests.actors.cluster.replication_node import Node, following, leading, made


def test_nothing_of_an_older_vote_is_taken() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 4, 4), vote_id=4)
    assert node.log.tail.end == LogEnd(1, 3)
    assert [stored.vote_id for stored in node.said(Stored)] == [5], "the former leader learns of the new vote"


def test_a_vote_is_not_cast_for_a_log_that_ours_has_passed_meanwhile() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 4, 5))
    node.machine.stand(0.0, Standing(6, None, CastVote(3, Vote(6, False, True), LogEnd(1, 3))))
    assert node.said(Vote) == [Vote(6, False, False)]
    node.push(LogEnd(5, 4), made(5, 5, 5))
    assert node.log.tail.end == LogEnd(5, 4), "and nothing of the older vote is taken any more"


def test_a_former_leader_gets_no_answer_that_would_extend_its_lease() -> None:
    """The Elector has decided to vote for another, and its vote is on its way to the disk (review 4.3)."""
    election = Recorded(Election(Identity(9, 1, 11, 5), 0.4, lambda: 0.0, 0.0))
    election.learn(0.0, ElectionFacts(frozenset({1, 2, 3}), 9))
    election.leader_heard(0.0, 5, 2)
    node = following(made(1, 3, 1))
    election.take_out()
    election.vote_asked(1.0, VoteAsked(3, 6, False, False, LogEnd(5, 9), 1))
    for decision in election.take_out():
        if isinstance(decision, Save):
            break  # the disk is busy: nothing behind this is told
        assert isinstance(decision, Standing)
        node.machine.stand(1.0, decision)
    node.machine.take_out()
    node.heard(1.01, 2, Push(5, 3, 1, [], 0, 1.0))
    assert node.said(Stored) == []


def test_a_long_message_is_a_sign_of_life_both_ways() -> None:
    node = following(made(1, 3, 1))
    node.machine.receiving(0.3, 2)
    assert node.machine.take(LeaderHeard) == [LeaderHeard(5, 2)]
    assert [stored.trans_id for stored in node.said(Stored)] == [0], "the leader hears that it is followed"
    node.machine.receiving(0.3, 3)
    assert node.machine.take_out() == [], "who does not lead may say what it likes"
    leader = leading()
    leader.machine.receiving(0.7, 3)
    assert leader.machine.take(QuorumHeard) == [QuorumHeard(0.7)]


def test_who_speaks_of_a_vote_far_off_is_not_believed() -> None:
    for message in (
        VoteRequest(5 + VOTE_JUMP_MAX + 1, False, True, 9, 100),
        Push(5 + VOTE_JUMP_MAX + 1, 0, 0, [], 0, 0.0),
        Stored(2**53 - 1, 0, 0.0),
        Vote(2**53 - 1, False, False),
    ):
        node = following(made(1, 3, 1))
        node.heard(0.0, 3, message)
        assert [type(one) for one in node.machine.take_out()] == [CutPeer], message


def test_a_leader_cuts_off_who_says_that_it_leads_in_the_same_vote() -> None:
    node = leading()
    node.push(LogEnd(0, 0), made(1, 1, 5))
    assert [cut.node_id for cut in node.machine.take(CutPeer)] == [2]
    assert node.machine.is_leading


@pytest.mark.parametrize(("node_id", "disk_id"), [(9, 99), (3, 99)])
def test_who_is_no_member_with_its_disk_is_heard_as_a_leader_by_a_node_that_has_none_and_not_at_all_otherwise(
    node_id: int, disk_id: int
) -> None:
    said: list[PeerMessage] = [
        VoteRequest(6, False, True, 1, 3),
        Vote(6, False, False),
        Stored(6, 3, 0.0),
        Pull(6, 3, 1, 10),
        TakeOver(5),
        SnapshotPull(5, 3, b""),
        Push(6, 3, 1, [], 3, 0.0),
        Diverged(5, 1, 3, 1),
        SnapshotNeeded(6, 9),
    ]
    for node in (following(made(1, 3, 1)), leading(made(1, 3, 1))):
        for message in said:
            node.machine.heard(0.0, PeerSaid(node_id, message, 9, disk_id))
        assert node.machine.take_out() == []
    alone = Node(made(1, 3, 1), vote_id=5)
    for message in said:
        alone.machine.heard(0.0, PeerSaid(node_id, message, 9, disk_id))
    assert alone.machine.take_out() == [LeaderHeard(6, node_id), LeaderHeard(6, None)]


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


def test_what_a_leader_said_when_it_led_before_counts_for_nothing() -> None:
    """It leads again, under a later vote; what it pushed under the one before may have been cut off since (3.3)."""
    node = following(made(1, 3, 1))
    node.heard(0.1, 2, Push(4, 3, 1, [made(4, 4, 4).data], 4, 0.1))
    assert node.log.tail.end == LogEnd(1, 3)
    assert [(one.vote_id, one.trans_id, one.echo) for one in node.said(Stored)] == [(5, 0, -1.0)], "it extends no lease"
