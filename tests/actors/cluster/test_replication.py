"""Replication: the rules that are hard to meet by chance, one a test. The rest is the simulator's."""

from typing import Any

import pytest

from actors.cluster.membership import Membership
from actors.cluster.replicated_log import LOG_WRITER, OWNER, PEERS
from actors.cluster.replication import Replication
from actors.messages.election import CastVote
from actors.messages.log import Append, LogAdvanced
from actors.messages.peers import SendPeers
from net.peers.messages import Diverged, Pull, Push, SnapshotNeeded, Stored, Vote
from storage.entry import StoredEntry, encode
from storage.log_tail import LogEnd, LogTail
from storage.records import Member, Members, Remove

THREE = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=True) for n in (1, 2, 3)], [])


def made(first: int, last: int, vote_id: int) -> StoredEntry:
    records: list[Any] = [Remove(f"q{n}") for n in range(first, last + 1)]
    return StoredEntry(first, last, vote_id, encode(vote_id, first, 1.0, records))


class Node:
    """Node 1 of three, driven by hand: what it writes is on its disk when `written` is called."""

    def __init__(self, *entries: StoredEntry, committed: int = 0, vote_id: int = 1) -> None:
        tail = LogTail([(0, 0)], 0, list(entries))
        membership = Membership(THREE.members[0], THREE)
        self.machine = Replication(tail, membership, committed, vote_id, 0.4, 100_000, 0.0)
        self.writes = 0

    def take(self, to: str) -> list[Any]:
        """What the machine has for somebody; all else stays."""
        found = [message for where, message in self.machine.out if where is to]
        self.machine.out = [(where, message) for where, message in self.machine.out if where is not to]
        return found

    def said(self, kind: type) -> list[Any]:
        """What was said to other nodes, of that kind."""
        return [sent.message for sent in self.take(PEERS) if isinstance(sent.message, kind)]

    def written(self) -> None:
        """All that was to be written is on the disk."""
        self.writes += sum(len(entries) for entries in self.take(LOG_WRITER))
        self.machine.written(0.0, self.writes, 1e9)

    def push(self, after: LogEnd, *entries: StoredEntry, committed: int = 0, vote_id: int = 5) -> None:
        data = [entry.data for entry in entries]
        self.machine.push(0.0, 2, Push(vote_id, after.trans_id, after.vote_id, data, committed, 0.0))


def following(*entries: StoredEntry, committed: int = 0) -> Node:
    node = Node(*entries, committed=committed)
    node.machine.follow(0.0, 5, 2)
    node.machine.out.clear()
    return node


def leading(*entries: StoredEntry) -> Node:
    node = Node(*entries)
    node.machine.lead(0.0, 5)
    first = node.machine.tail.end.trans_id + 1
    node.machine.append(0.0, Append(5, [made(first, first, 5)]))
    node.written()
    node.machine.out.clear()
    return node


def test_stored_is_said_when_the_disk_has_it_and_only_of_what_agrees() -> None:
    node = following(made(1, 3, 1), made(4, 6, 1))
    node.push(LogEnd(1, 3), made(4, 4, 5))
    assert node.said(Stored) == []
    node.written()
    assert [stored.trans_id for stored in node.said(Stored)] == [4]
    assert node.machine.tail.end == LogEnd(5, 4), "what the leader contradicts is gone"


def test_a_push_that_does_not_follow_changes_nothing_and_is_answered_by_a_pull() -> None:
    node = following(made(1, 3, 1))
    node.machine.push(1.0, 2, Push(5, 9, 5, [made(10, 10, 5).data], 0, 1.0))
    assert node.machine.tail.end == LogEnd(1, 3)
    assert node.said(Pull) == [Pull(5, 3, 1, 20_000)]
    node = following(made(1, 3, 1))
    node.push(LogEnd(4, 3), made(4, 4, 5))
    assert node.machine.tail.end == LogEnd(1, 3)


def test_nothing_of_an_older_vote_is_taken() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 4, 4), vote_id=4)
    assert node.machine.tail.end == LogEnd(1, 3)
    assert [stored.vote_id for stored in node.said(Stored)] == [5], "the former leader learns of the new vote"


def test_a_write_that_was_cut_off_does_not_count_for_what_took_its_place() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 6, 5))
    pending = node.take(LOG_WRITER)
    node.machine.follow(0.0, 6, 3)
    node.machine.push(0.0, 3, Push(6, 3, 1, [made(4, 6, 6).data], 0, 0.0))
    node.machine.written(0.0, len(pending[0]), 1e9)
    assert node.machine.stored == 3, "the disk has the old records 4 to 6, not these"
    node.writes = len(pending[0])
    node.written()
    assert node.machine.stored == 6


def test_an_answer_that_comes_late_cuts_nothing() -> None:
    node = following(made(1, 5, 1), made(6, 7, 1))
    late = Diverged(5, 5, 7, 1)
    node.machine.diverged(0.0, 2, late)
    assert node.machine.tail.end == LogEnd(1, 5)
    node.push(LogEnd(1, 5), made(6, 9, 5))
    node.written()
    node.machine.diverged(0.0, 2, late)
    assert node.machine.tail.end == LogEnd(5, 9), "these were said to be stored"


def test_what_is_committed_is_never_dropped() -> None:
    node = following(made(1, 3, 1), committed=3)
    with pytest.raises(AssertionError, match="would be dropped"):
        node.machine._cut(2)


def test_entries_of_an_older_vote_are_committed_only_with_one_of_the_own() -> None:
    node = Node(made(1, 3, 1))
    node.machine.lead(0.0, 5)
    node.machine.stored_by(0.0, 2, Stored(5, 3, 0.0))
    assert node.machine.committed == 0, "they are on a majority, and may still be lost (Raft's figure 8)"
    node.machine.append(0.0, Append(5, [made(4, 4, 5)]))
    node.written()
    node.machine.stored_by(0.0, 2, Stored(5, 4, 0.0))
    assert node.machine.committed == 4


def test_the_leaders_own_disk_counts_only_when_it_has_the_entry() -> None:
    node = leading()
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    node.machine.stored_by(0.0, 2, Stored(5, 2, 0.0))
    assert node.machine.committed == 1
    node.written()
    assert node.machine.committed == 2


def test_a_vote_is_not_cast_for_a_log_that_ours_has_passed_meanwhile() -> None:
    node = following(made(1, 3, 1))
    node.push(LogEnd(1, 3), made(4, 4, 5))
    node.machine.cast_vote(CastVote(3, Vote(6, False, True), LogEnd(1, 3)))
    assert node.said(Vote) == [Vote(6, False, False)]
    node.push(LogEnd(5, 4), made(5, 5, 5))
    assert node.machine.tail.end == LogEnd(5, 4), "and nothing of the older vote is taken any more"


def test_a_follower_is_told_how_far_it_may_agree() -> None:
    node = leading(made(1, 4, 1), made(5, 6, 3))
    node.machine.pulled_by(0.0, 2, Pull(5, 9, 2, 100))
    assert node.said(Diverged) == [Diverged(5, 4, 9, 2)]
    node.machine.trimmed = 5
    node.machine.pulled_by(0.0, 2, Pull(5, 3, 1, 100))
    assert node.said(SnapshotNeeded) == [SnapshotNeeded(5, 5)]
    node.machine.pulled_by(0.0, 2, Pull(5, 6, 2, 100))
    assert node.said(Diverged) == [Diverged(5, 5, 6, 2)], (
        "where they part is not kept any more: one entry after the other"
    )


def test_logs_that_part_at_a_record_that_an_older_vote_made_here_come_together() -> None:
    node = leading(made(1, 9, 2))
    node.machine.pulled_by(0.0, 2, Pull(5, 5, 3, 100))
    assert node.said(Diverged) == [Diverged(5, 4, 5, 3)], "its record 5 is of vote 3, ours of vote 2"


def test_a_leader_knows_for_how_long_no_other_can_lead() -> None:
    node = leading()
    node.machine.stored_by(1.1, 2, Stored(5, 1, 1.0))
    told = [message for message in node.take(OWNER) if isinstance(message, LogAdvanced)][-1]
    assert told.leased_until == pytest.approx(1.0 + 0.4 * 0.7)
    node.machine.is_lease_given_up = True
    node.machine.tell_owner(1.1)
    assert node.take(OWNER)[-1].leased_until < 0, "its successor was told to be elected, and may be at any time"


def test_what_is_pushed_goes_to_all_who_follow_at_once() -> None:
    node = leading()
    for follower in (2, 3):
        node.machine.pulled_by(0.0, follower, Pull(5, 1, 5, 100))
    node.machine.out.clear()
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    sent = [one for one in node.take(PEERS) if isinstance(one, SendPeers)]
    assert [one.node_ids for one in sent] == [(2, 3)], "encoded once"
