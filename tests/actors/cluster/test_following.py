"""Following: what a follower takes, says to have and drops, and how it comes to what it lacks."""

import zlib
from typing import Any

import msgspec
import pytest

from actors.cluster.decisions import WriteEntries
from actors.cluster.following import Pace
from actors.messages.election import AskVotes, Standing
from actors.messages.peers import CutPeer, PeerSaid
from net.peers.messages import (
    Diverged,
    Pull,
    Push,
    Stored,
    VoteRequest,
)
from storage.entry import LogEnd
from storage.entry_codec import encode
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


def test_a_follower_says_what_it_promises() -> None:
    node = following(made(1, 3, 1))
    node.heard(0.1, 2, Push(5, 3, 1, [], 0, 0.1))
    assert [one.promise_s for one in node.said(Stored)] == [0.4]


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


@pytest.mark.parametrize("rate", [1, 2, 4, 100])
def test_a_node_that_is_behind_pulls_at_any_rate_that_can_be_set(rate: int) -> None:
    pace = Pace(rate, 0.0)
    pulled = 0
    for step in range(1000):
        if (allowed := int(pace.allowed(step / 10))) >= 1:
            pace.spend(allowed)
            pulled += allowed
    assert rate * 80 <= pulled <= rate * 105
