"""Replication: the rules that are hard to meet by chance, one a test. The rest is the simulator's."""

import zlib
from typing import Any

import msgspec
import pytest

from actors.cluster.decisions import WriteEntries
from actors.cluster.election import Election, Save
from actors.cluster.leading import LEASE_PART
from actors.cluster.replication import VOTE_JUMP_MAX
from actors.messages.election import AskVotes, CastVote, ElectionFacts, LeaderHeard, QuorumHeard, Standing, VoteAsked
from actors.messages.log import Append, LogAdvanced
from actors.messages.peers import CutPeer, PeerSaid, SendPeers
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
from storage.entry_codec import encode
from storage.vote_file import Identity
from tests.actors.cluster.recorded import Recorded
from tests.actors.cluster.replication_node import Node, following, leading, made


def test_stored_is_said_when_the_disk_has_it_and_only_of_what_agrees() -> None:
    node = following(made(1, 3, 1), made(4, 6, 1))
    node.push(LogEnd(1, 3), made(4, 4, 5))
    assert node.said(Stored) == []
    node.written()
    assert [stored.trans_id for stored in node.said(Stored)] == [4]
    assert node.log.tail.end == LogEnd(5, 4), "what the leader contradicts is gone"


def test_a_push_that_does_not_follow_changes_nothing_and_is_answered_by_a_pull() -> None:
    node = following(made(1, 3, 1))
    node.heard(1.0, 2, Push(5, 9, 5, [made(10, 10, 5).data], 0, 1.0))
    assert node.log.tail.end == LogEnd(1, 3)
    assert node.said(Pull) == [Pull(5, 3, 1, 20_000)]
    node = following(made(1, 3, 1))
    node.push(LogEnd(4, 3), made(4, 4, 5))
    assert node.log.tail.end == LogEnd(1, 3)


def test_nothing_of_an_older_vote_is_taken() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 4, 4), vote_id=4)
    assert node.log.tail.end == LogEnd(1, 3)
    assert [stored.vote_id for stored in node.said(Stored)] == [5], "the former leader learns of the new vote"


def test_a_write_that_was_cut_off_does_not_count_for_what_took_its_place() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 6, 5))
    pending = node.machine.take(WriteEntries)
    node.machine.stand(0.0, Standing(6, 3))
    node.heard(0.0, 3, Push(6, 3, 1, [made(4, 6, 6).data], 0, 0.0))
    node.machine.written(0.0, len(pending[0].entries), 1e9)
    assert node.log.durable == 3, "the disk has the old records 4 to 6, not these"
    node.writes = len(pending[0].entries)
    node.written()
    assert node.log.durable == 6


def test_an_answer_that_comes_late_cuts_nothing() -> None:
    node = following(made(1, 5, 1), made(6, 7, 1))
    late = Diverged(5, 5, 7, 1)
    node.heard(0.0, 2, late)
    assert node.log.tail.end == LogEnd(1, 5)
    node.push(LogEnd(1, 5), made(6, 9, 5))
    node.written()
    node.heard(0.0, 2, late)
    assert node.log.tail.end == LogEnd(5, 9), "these were said to be stored"


def test_what_is_committed_is_never_dropped() -> None:
    node = following(made(1, 3, 1), committed=3)
    with pytest.raises(AssertionError, match="would be dropped"):
        node.log.cut(5, 2)


def test_entries_of_an_older_vote_are_committed_only_with_one_of_the_own() -> None:
    node = Node(made(1, 3, 1))
    node.machine.stand(0.0, Standing(5, 1))
    node.heard(0.0, 2, Stored(5, 3, 0.0))
    assert node.log.committed == 0, "they are on a majority, and may still be lost (Raft's figure 8)"
    node.machine.append(0.0, Append(5, [made(4, 4, 5)]))
    node.written()
    node.heard(0.0, 2, Stored(5, 4, 0.0))
    assert node.log.committed == 4


def test_the_leaders_own_disk_counts_only_when_it_has_the_entry() -> None:
    node = leading()
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    node.heard(0.0, 2, Stored(5, 2, 0.0))
    assert node.log.committed == 1
    node.written()
    assert node.log.committed == 2


def test_a_vote_is_not_cast_for_a_log_that_ours_has_passed_meanwhile() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 4, 5))
    node.machine.stand(0.0, Standing(6, None, CastVote(3, Vote(6, False, True), LogEnd(1, 3))))
    assert node.said(Vote) == [Vote(6, False, False)]
    node.push(LogEnd(5, 4), made(5, 5, 5))
    assert node.log.tail.end == LogEnd(5, 4), "and nothing of the older vote is taken any more"


def test_a_follower_is_told_how_far_it_may_agree() -> None:
    node = leading(made(1, 4, 1), made(5, 6, 3))
    node.heard(0.0, 2, Pull(5, 9, 2, 100))
    assert node.said(Diverged) == [Diverged(5, 4, 9, 2)]
    node.log.trimmed = 5
    node.heard(0.0, 2, Pull(5, 3, 1, 100))
    assert node.said(SnapshotNeeded) == [SnapshotNeeded(5, 5)]
    node.heard(0.0, 2, Pull(5, 6, 2, 100))
    assert node.said(Diverged) == [Diverged(5, 5, 6, 2)], (
        "where they part is not kept any more: one entry after the other"
    )


def test_logs_that_part_at_a_record_that_an_older_vote_made_here_come_together() -> None:
    node = leading(made(1, 9, 2))
    node.heard(0.0, 2, Pull(5, 5, 3, 100))
    assert node.said(Diverged) == [Diverged(5, 4, 5, 3)], "its record 5 is of vote 3, ours of vote 2"


def test_a_leader_knows_for_how_long_no_other_can_lead() -> None:
    node = leading()
    node.heard(1.1, 2, Stored(5, 1, 1.0))
    told = node.machine.take(LogAdvanced)[-1]
    assert told.leased_until == pytest.approx(1.0 + 0.4 * LEASE_PART)
    assert told.confirmed_at == 1.0
    leading_role = node.machine.machine.leading
    leading_role.give_up_lease()
    told = leading_role.advanced(1.1)
    assert told.leased_until < 0, "its successor was told to be elected, and may be at any time"
    assert told.confirmed_at == 1.0, "but at that moment a majority followed this node"


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


def test_what_is_pushed_is_cut_to_frames() -> None:
    node = leading(push_bytes=300)
    for follower in (2, 3):
        node.heard(0.0, follower, Pull(5, 1, 5, 100))
    node.machine.take_out()
    entries = [made(n, n, 5) for n in range(2, 22)]
    node.machine.append(0.0, Append(5, entries))
    pushes = node.said(Push)
    assert len(pushes) > 1
    assert [data for push in pushes for data in push.entries] == [entry.data for entry in entries]
    assert all(sum(map(len, push.entries)) <= 300 for push in pushes)
    after = [(push.after, push.after_vote_id) for push in pushes]
    assert after[0] == (1, 5)
    other = following(made(1, 1, 5))
    for push in pushes:
        other.heard(0.0, 2, push)
    assert other.log.tail.end == LogEnd(5, 21)


def test_a_follower_that_is_level_is_pushed_to_without_having_to_ask() -> None:
    node = leading()
    node.heard(0.0, 2, Pull(5, 1, 5, 100))
    node.machine.machine.leading.peer_down(0.0, 2)
    node.heard(0.1, 2, Stored(5, 1, 0.0))
    node.machine.take_out()
    node.machine.append(0.2, Append(5, [made(2, 2, 5)]))
    assert [sent.node_ids for sent in node.machine.take(SendPeers)] == [(2, 3)]


def test_a_node_whose_committed_records_contradict_the_leaders_takes_no_further_part() -> None:
    node = following(made(1, 3, 1), made(4, 6, 1), committed=6)
    node.push(LogEnd(1, 3), made(4, 6, 4), made(7, 7, 5))
    assert "record 6" in str(node.log.contradiction)
    node.heard(0.0, 3, VoteRequest(6, False, True, 9, 100))
    node.push(LogEnd(1, 6), made(7, 7, 5), committed=7)
    node.machine.stand(0.0, Standing(6, None, AskVotes(is_pre=True)))
    assert node.machine.take_out() == [], "it takes nothing, says nothing, votes for nobody and asks for no votes"
    assert node.log.tail.end == LogEnd(1, 6)


def test_a_leader_that_lacks_what_is_committed_here_is_another_history() -> None:
    node = following(made(1, 6, 1), committed=6)
    node.heard(0.0, 2, Diverged(5, 4, 6, 1))
    assert "none of the records from 5 on" in str(node.log.contradiction)
    ahead = following(made(1, 6, 1), made(7, 9, 1), committed=6)
    ahead.heard(0.0, 2, Diverged(5, 6, 9, 1))
    assert ahead.log.contradiction is None, "what was not committed may be another's"
    assert ahead.log.tail.end == LogEnd(1, 6)


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


def test_an_answer_to_what_was_not_sent_yet_extends_no_lease() -> None:
    node = leading(made(1, 3, 1))
    node.written()
    node.machine.take_out()
    node.heard(1.0, 2, Stored(5, 4, 1e9))
    assert node.machine.leading is not None
    assert node.machine.leading.progress[2].echo < 0


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


def test_what_is_not_to_be_read_is_never_stored() -> None:
    for data in (
        encode(5, 4, 1.0, []),
        b"\x00" * 40,
        framed([1, 5, 4, 1.0, [[99, "q"]]]),
        framed([1, 5, 4, 1.0, [b"x"]]),
        framed([1, 5, 4, 1.0, [b""]]),
        framed([2, 5, 4, 1.0, [[1]]]),
        framed([1, 5, 2**43, 1.0, [[10, "q"]]]),
        framed([1, 5, 4, 1.0, [[10, b"\xff\xff"]]]),
    ):
        node = following(made(1, 3, 1))
        node.machine.heard(0.0, PeerSaid(2, Push(5, 3, 1, [data], 4, 0.0), 9, 22))
        assert [type(one) for one in node.machine.take(CutPeer, WriteEntries)] == [CutPeer], data
        assert node.log.tail.end == LogEnd(1, 3)


def framed(value: Any) -> bytes:
    """Something else than an entry, under a checksum that fits."""
    payload = msgspec.msgpack.encode(value)
    return zlib.crc32(payload).to_bytes(4, "big") + payload


def test_entries_begin_where_entries_end_and_are_committed_whole() -> None:
    node = following(made(1, 3, 1), made(4, 6, 1), committed=3)
    node.push(LogEnd(1, 5), made(6, 7, 5))
    assert [type(one) for one in node.machine.take(CutPeer, WriteEntries)] == [CutPeer]
    spans = following(made(1, 3, 1), committed=3)
    spans.push(LogEnd(1, 1), made(2, 5, 1))
    assert [type(one) for one in spans.machine.take(CutPeer, WriteEntries)] == [CutPeer]
    half = following(made(1, 3, 1), made(4, 6, 1), committed=3)
    half.push(LogEnd(1, 6), committed=5)
    assert half.log.committed == 3
    half.push(LogEnd(1, 6), committed=6)
    assert half.log.committed == 6


def test_what_is_pushed_goes_to_all_who_follow_at_once() -> None:
    node = leading()
    for follower in (2, 3):
        node.heard(0.0, follower, Pull(5, 1, 5, 100))
    node.machine.take_out()
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    sent = node.machine.take(SendPeers)
    assert [one.node_ids for one in sent] == [(2, 3)], "encoded once"
