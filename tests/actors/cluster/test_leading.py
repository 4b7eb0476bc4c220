"""Leading: what is committed, for how long a leader may believe that it leads, and what it sends to whom."""

import pytest

from actors.cluster.admin import ClusterAdmin
from actors.cluster.leading import LEASE_PART
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.cluster.root_members import Balancing
from actors.messages.election import Standing
from actors.messages.log import Append, Drain, LogAdvanced
from actors.messages.peers import SendPeers
from net.peers.messages import (
    Diverged,
    Pull,
    Push,
    SnapshotNeeded,
    Stored,
)
from storage.entry import LogEnd
from tests.actors.cluster.replication_node import Node, following, leading, made


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


def test_an_answer_to_what_was_not_sent_yet_extends_no_lease() -> None:
    node = leading(made(1, 3, 1))
    node.written()
    node.machine.take_out()
    node.heard(1.0, 2, Stored(5, 4, 1e9))
    assert node.machine.leading is not None
    assert node.machine.leading.progress[2].echo < 0


def test_what_is_pushed_goes_to_all_who_follow_at_once() -> None:
    node = leading()
    for follower in (2, 3):
        node.heard(0.0, follower, Pull(5, 1, 5, 100))
    node.machine.take_out()
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    sent = node.machine.take(SendPeers)
    assert [one.node_ids for one in sent] == [(2, 3)], "encoded once"


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


def test_the_owner_hears_of_its_lease_as_often_as_the_least_patient_follower_ends_it() -> None:
    """A review's: a leader that was set to 10 s told its owner too seldom of leases for a quarter of one."""
    node = leading(timeout_s=10.0)
    until = 0.0
    for step in range(1, 200):
        now = step * 0.01
        node.heard(now, 2, stored(1, now - 0.002, 0.4))
        until = max([until, *(one.leased_until for one in node.machine.take(LogAdvanced))])
        assert until > now, "a lease that is there and not known of"


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
