"""Pushing: who is sent an entry at once, who later, and what ends the wait."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.membership import Membership
from actors.cluster.progress import Progress
from actors.cluster.pushing import Lateness, Pushing
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.election import Standing
from actors.messages.log import Append, LogAdvanced
from actors.messages.peers import SendPeers
from net.peers.messages import Pull, Push, Stored
from storage import entry_codec
from storage.entry import StoredEntry
from storage.log_tail import LogTail
from storage.records import Member, Members
from tests.actors.cluster.replication_node import AT_ONCE, Node, leading, made

LATENESS = Lateness(seconds=0.01, entries=4, size=10_000)


class Leader:
    """Node 1 of so many voters, of whom all follow; `learners` have no vote."""

    def __init__(self, voters: int = 3, learners: int = 0, lateness: Lateness = LATENESS, window: int = 10_000) -> None:
        nodes = range(1, voters + learners + 1)
        members = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=n <= voters) for n in nodes], [])
        self.log = ReplicatedLog(LogTail([(0, 0)], 0, []), Membership(members.members[0], members), 0)
        self.progress = {n: Progress(0.0, window, 0) for n in nodes if n != 1}
        self.pushing = Pushing(self.log, self.progress, 5, 1 << 20, lateness)
        self.has = dict.fromkeys(nodes, 0)
        for node_id in range(2, voters + 1):
            self.took(node_id, 0.0002 * node_id)
        self.took(1, 0.0001)
        self.pushing.push_late(0.0)

    def took(self, node_id: int, its_s: float) -> None:
        """That is what its answer took, as a rule."""
        its = self.pushing._own if node_id == 1 else self.progress[node_id].under_way
        its.answer_s = its_s

    def append(self, now: float, count: int = 1) -> list[tuple[int, ...]]:
        """So many entries of one record; to whom what was pushed."""
        after = self.log.tail.end
        entries = [made(n, n, 5) for n in range(after.trans_id + 1, after.trans_id + 1 + count)]
        for entry in entries:
            self.log.tail.append(entry)
        return self.sent(self.pushing.append(now, after, entries))

    def sent(self, decisions: Iterable[object]) -> list[tuple[int, ...]]:
        """To whom something went; each gets what follows what it has."""
        to = []
        for one in decisions:
            assert isinstance(one, SendPeers)
            assert isinstance(one.message, Push)
            for node_id in one.node_ids:
                assert self.has[node_id] == one.message.after
                self.has[node_id] += len(one.message.entries)
            to.append(one.node_ids)
        return to

    def writes(self, now: float) -> None:
        """Its own disk has all."""
        self.log.durable = self.log.tail.end.trans_id
        self.pushing.written(now)

    def answers(self, now: float, node_id: int) -> None:
        self.progress[node_id].stored(now, self.has[node_id], now, self.log.tail.end.trans_id, is_full=False)


def test_of_three_one_is_pushed_each_entry_and_the_other_several_at_a_time() -> None:
    leader = Leader()
    assert [leader.append(0.001 * n) for n in range(3)] == [[(2,)]] * 3
    assert leader.append(0.003) == [(2,), (3,)], "it was the fourth that waits"
    assert leader.has == {1: 0, 2: 4, 3: 4}


def test_as_many_wait_as_no_majority_needs() -> None:
    assert Leader(voters=2).append(0.0) == [(2,)]
    assert Leader(voters=4).append(0.0) == [(2, 3)]
    assert Leader(voters=5).append(0.0) == [(2, 3)]
    assert Leader(voters=3, learners=2).append(0.0) == [(2,)], "who has no vote comes late"
    assert Leader(voters=1, learners=1).append(0.0) == []
    assert Leader(lateness=Lateness(seconds=0.0)).append(0.0) == [(2, 3)]


def test_large_entries_do_not_wait() -> None:
    leader = Leader(lateness=Lateness(entries=100, size=10))
    assert leader.append(0.0) == [(2,), (3,)]


def test_where_too_few_can_be_pushed_to_at_once_the_others_do_not_wait() -> None:
    leader = Leader()
    leader.append(0.0)
    leader.progress[2].must_pull(0.0)
    assert leader.append(0.001) == [(3,)], "with what waited"
    assert leader.has[3] == 2
    assert leader.pushing.late == {2}
    assert leader.append(0.002) == [(3,)]


def test_who_has_stored_too_little_has_to_pull_and_the_other_comes_in_its_place() -> None:
    leader = Leader(window=10)
    leader.append(0.0)
    assert leader.progress[2].sent is not None
    assert leader.append(0.0) == [(3,)]
    assert leader.progress[2].sent is None


def test_whose_disk_is_full_comes_late() -> None:
    leader = Leader()
    leader.progress[2].is_full = True
    leader.pushing.push_late(0.0)
    assert leader.append(0.0) == [(3,)]


def test_what_is_in_memory_no_more_is_pulled() -> None:
    leader = Leader()
    leader.append(0.0)
    leader.log.tail.forget(1)
    assert leader.pushing.push_late(0.0) == []
    assert leader.progress[3].sent is None


def test_a_leader_that_has_no_vote_pushes_to_a_majority_of_the_others() -> None:
    leader = Leader(voters=4)
    members = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=n > 1) for n in range(1, 5)], [])
    leader.log.membership.replaced(members)
    leader.pushing.push_late(0.0)
    assert leader.append(0.0) == [(2, 3)]


def test_nobody_waits_for_longer_than_the_time_that_is_set() -> None:
    leader = Leader(lateness=Lateness(seconds=0.01))
    assert leader.pushing.timer(1.0) is None, "nothing waits"
    leader.took(2, 1.0)
    leader.took(3, 1.1)
    leader.took(1, 1.0)
    leader.append(1.0)
    assert leader.pushing.timer(1.004) == 1.01 - 1.004
    assert leader.pushing.timer(1.005) is None, "it runs already"
    leader.append(1.006)
    assert leader.pushing.ring(1.007) == []
    assert leader.pushing.timer(1.007) == 1.01 - 1.007, "the first that waits counts"
    assert leader.sent(leader.pushing.ring(1.01)) == [(3,)]
    assert leader.pushing.timer(1.01) is None
    leader.append(2.0)
    assert leader.pushing.timer(2.0) == 2.01 - 2.0, "anew"


def test_nobody_waits_while_one_that_was_chosen_is_silent_for_twice_its_time() -> None:
    """Of no account is who it is: this node's own disk counts as well."""
    for silent, other in ((2, 1), (1, 2)):
        leader = Leader(lateness=Lateness(seconds=1.0))
        leader.took(2, 0.003)
        leader.took(1, 0.003)
        leader.took(3, 0.004)
        leader.append(1.0)
        assert leader.pushing.timer(1.0) == 0.006
        if other == 1:
            leader.writes(1.003)
        else:
            leader.answers(1.003, 2)
        assert leader.pushing.ring(1.003) == []
        delay_s = leader.pushing.timer(1.004)
        assert delay_s is not None
        assert math.isclose(delay_s, 0.002)
        assert leader.sent(leader.pushing.ring(1.006)) == [(3,)], silent
        assert leader.append(1.007) == ([(3,)] if silent == 2 else [(2, 3)])


def test_a_moment_of_silence_is_nothing() -> None:
    leader = Leader(lateness=Lateness(seconds=1.0))
    leader.append(1.0)
    assert leader.pushing.timer(1.0) == 0.002, "though they take less than a millisecond"


def test_what_has_waited_is_forgotten_when_it_is_pushed() -> None:
    leader = Leader(lateness=Lateness(seconds=1.0, entries=3, size=130))
    size = len(made(1, 1, 5).data)
    assert 3 * size < 130
    for _ in range(3):
        assert leader.append(0.0) == [(2,)]
        assert leader.append(0.0) == [(2,)]
        assert leader.append(0.0) == [(2,), (3,)], "by the count of entries, each time"


def test_at_the_beginning_of_a_lead_all_are_pushed_at_once_until_it_is_known_who_answers() -> None:
    """One of them may be down, and its link closed before this node led."""
    leader = Leader()
    leader.pushing = Pushing(leader.log, leader.progress, 5, 1 << 20, LATENESS)
    for its in leader.progress.values():
        its.under_way.answer_s = math.inf
    assert leader.append(0.0) == [(2, 3)]
    leader.writes(0.001)
    leader.answers(0.001, 3)
    assert leader.sent(leader.pushing.push_late(0.05)) == []
    assert leader.append(0.06) == [(3,)], "node 2 has said nothing"


def test_who_answers_soonest_comes_first_and_a_little_sooner_is_not_enough() -> None:
    leader = Leader()
    leader.took(2, 0.0011)
    leader.took(3, 0.0010)
    leader.pushing.push_late(0.0)
    assert leader.append(0.0) == [(2,)]
    leader.took(3, 0.0008)
    leader.sent(leader.pushing.push_late(0.0))
    assert leader.append(0.0) == [(3,)]


def test_a_slow_disk_of_its_own_is_not_waited_for() -> None:
    leader = Leader()
    leader.took(1, 0.008)
    leader.pushing.push_late(0.0)
    assert leader.append(0.0) == [(2, 3)]
    leader.took(1, 0.0001)
    leader.pushing.push_late(0.0)
    assert leader.append(0.0) == [(2,)]


def test_how_long_answers_take_is_learned_from_them() -> None:
    leader = Leader()
    for n in range(40):
        leader.append(n * 0.01)
        leader.writes(n * 0.01 + 0.004)
        leader.sent(leader.pushing.push_late(n * 0.01))
        leader.answers(n * 0.01 + 0.002, 2)
        leader.answers(n * 0.01 + 0.003, 3)
    took_s = [leader.pushing._own.answer_s, *(its.under_way.answer_s for its in leader.progress.values())]
    assert [round(its_s, 3) for its_s in took_s] == [0.004, 0.002, 0.003]
    leader.append(1.0)
    leader.answers(1.1, 2)
    assert 0.010 < leader.progress[2].under_way.answer_s < 0.013, "one that takes long is not all"


def test_who_did_not_answer_before_it_had_to_pull_is_not_the_first_again() -> None:
    leader = Leader()
    leader.append(1.0)
    leader.progress[2].must_pull(1.5)
    assert leader.progress[2].under_way.answer_s > 0.04
    leader.progress[2].must_pull(1.5)
    assert leader.progress[2].under_way.silent_s(2.0) == 0.0


def test_who_has_no_vote_comes_late_though_it_answers_soonest() -> None:
    leader = Leader(voters=3, learners=1)
    leader.took(4, 0.00001)
    leader.pushing.push_late(0.0)
    assert leader.pushing.late == {3, 4}


def knows(node: Node) -> Node:
    """It leads, and knows how soon its disk and the others answer."""
    pushing = node.machine.machine.leading.pushing
    pushing._own.answer_s = 0.001
    for its in node.machine.machine.leading.progress.values():
        its.under_way.answer_s = 0.001
    pushing.push_late(0.0)
    node.machine.take_out()
    return node


def pushes(node: Node) -> list[tuple[tuple[int, ...], int, int, int]]:
    """To whom, behind which record, of which vote, and how many entries."""
    sent = [(one.node_ids, one.message) for one in node.machine.take(SendPeers) if isinstance(one.message, Push)]
    return [(nodes, push.after, push.after_vote_id, len(push.entries)) for nodes, push in sent if push.entries]


def test_each_of_several_pushes_says_what_stands_before_it() -> None:
    node = knows(leading(made(1, 2, 4), lateness=AT_ONCE, push_bytes=1))
    node.machine.append(0.0, Append(5, [made(4, 4, 5), made(5, 5, 5)]))
    assert pushes(node) == [((2, 3), 3, 5, 1), ((2, 3), 4, 5, 1)]
    old = Node(made(1, 2, 4), lateness=AT_ONCE, push_bytes=1)
    old.machine.stand(0.0, Standing(5, 1))
    old.machine.append(0.0, Append(5, [made(3, 3, 5), made(4, 4, 5)]))
    assert pushes(old) == [((2, 3), 2, 4, 1), ((2, 3), 3, 5, 1)]


def test_pushes_are_filled_up_to_their_bound() -> None:
    size = len(made(2, 2, 5).data)
    node = knows(leading(lateness=AT_ONCE, push_bytes=2 * size))
    node.machine.append(0.0, Append(5, [made(n, n, 5) for n in range(2, 6)]))
    assert [count for _, _, _, count in pushes(node)] == [2, 2]


def test_whose_window_is_full_between_two_pushes_is_sent_no_more() -> None:
    node = knows(leading(lateness=AT_ONCE, push_bytes=1, window_bytes=1))
    for node_id in (2, 3):
        node.heard(0.0, node_id, Stored(5, 1, 0.0))
    node.machine.take_out()
    node.machine.append(0.0, Append(5, [made(2, 2, 5), made(3, 3, 5)]))
    assert pushes(node) == [((2, 3), 1, 5, 1)]
    assert node.machine.take(SendPeers) == [], "nobody is sent the other, and nobody is no address"


def test_where_too_few_are_known_nobody_comes_late() -> None:
    leader = Leader()
    leader.progress[2].must_pull(0.0)
    leader.progress[3].is_full = True
    leader.pushing.push_late(0.0)
    assert leader.pushing.late == frozenset()


def test_as_many_are_needed_as_were_chosen_beside_a_quick_disk_of_its_own() -> None:
    leader = Leader(voters=5)
    leader.took(1, 0.1)
    leader.pushing.push_late(0.0)
    leader.progress[2].must_pull(0.0)
    assert leader.append(0.0) == [(3, 4), (5,)], "three were to be pushed to at once"


def test_several_entries_at_once_count_as_several() -> None:
    assert Leader().append(0.0, 4) == [(2,), (3,)]
    size = len(made(1, 1, 5).data)
    leader = Leader(lateness=Lateness(entries=100, size=2 * size))
    assert leader.append(0.0) == [(2,)]
    assert leader.append(0.0) == [(2,), (3,)], "by their bytes"


def test_its_own_disk_is_silent_until_it_has_the_last_of_what_was_appended() -> None:
    leader = Leader()
    leader.append(1.0, 3)
    leader.log.durable = 1
    leader.pushing.written(1.001)
    assert leader.pushing._own.silent_s(1.002) > 0.0
    leader.writes(1.003)
    assert leader.pushing._own.silent_s(1.004) == 0.0


def test_a_timer_rings_a_moment_early_and_what_is_past_is_due_at_once() -> None:
    leader = Leader(lateness=Lateness(seconds=1.0))
    leader.append(1.0)
    assert leader.pushing.ring(1.0009) == []
    assert leader.sent(leader.pushing.ring(1.0015)) == [(3,)]
    leader = Leader(lateness=Lateness(seconds=1.0))
    leader.append(1.0)
    assert leader.pushing.timer(2.0) == 0.0


def test_who_was_chosen_meanwhile_may_want_an_earlier_timer() -> None:
    leader = Leader(lateness=Lateness(seconds=0.1))
    for node_id in (1, 2):
        leader.took(node_id, 0.04)
    leader.took(3, 1.0)
    leader.pushing.push_late(0.0)
    leader.append(1.0)
    first = leader.pushing.timer(1.0)
    assert first is not None
    assert math.isclose(first, 0.08)
    leader.answers(1.0, 2)
    leader.writes(1.0)
    for node_id in (1, 2):
        leader.took(node_id, 0.0005)
    leader.append(1.001)
    second = leader.pushing.timer(1.001)
    assert second is not None
    assert math.isclose(second, 0.002)
    assert leader.pushing.timer(1.001) is None


def test_who_pulls_what_it_was_pushed_holds_up_nobody() -> None:
    """Its silence is forgotten then, though others waited for it. Seen by a review: for all of `late_push_ms`."""
    node = knows(leading(lateness=LATENESS))
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    assert pushes(node) == [((2,), 1, 5, 1)]
    node.log.tail.forget(1)
    node.heard(0.0006, 2, Pull(5, 0, 0, 1000))
    assert pushes(node) == [((3,), 1, 5, 1)]
    node.machine.append(0.001, Append(5, [made(3, 3, 5)]))
    assert pushes(node) == [((3,), 2, 5, 1)], "not to one that pulls"


def test_the_first_of_a_closed_link_has_to_pull() -> None:
    node = knows(leading(lateness=LATENESS))
    leads = node.machine.machine.leading
    leads.peer_down(0.0, 2)
    assert leads.progress[2].sent is None


def test_new_members_end_the_wait_and_count() -> None:
    node = knows(leading(lateness=LATENESS))
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    four = Members("", 9, [Member(n, f"n{n}", 1, n * 11, is_voter=True) for n in (1, 2, 3, 4)], [])
    data = entry_codec.encode(5, 3, 1.0, [four])
    node.machine.take_out()
    node.machine.append(0.0, Append(5, [StoredEntry(3, 3, 5, data, True)]))
    sent = [(one.node_ids, len(one.message.entries)) for one in node.machine.take(SendPeers)]
    assert sent == [((2,), 1), ((3,), 2)]
    node.machine.append(0.0, Append(5, [made(4, 4, 5)]))
    assert [one.node_ids for one in node.machine.take(SendPeers)] == [(2, 3)], "the fourth has to pull first"


def test_when_a_link_closes_what_waits_for_another_is_pushed() -> None:
    node = knows(leading(lateness=LATENESS))
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    leads = node.machine.machine.leading
    assert [one.node_ids for one in leads.peer_down(0.0, 2)] == [(3,)]
    assert leads.peer_down(0.0, 7) == []


def test_a_heartbeat_ends_the_wait_and_chooses_anew() -> None:
    node = knows(leading(lateness=LATENESS))
    node.machine.append(0.0, Append(5, [made(2, 2, 5)]))
    leads = node.machine.machine.leading
    leads.progress[3].under_way.answer_s = 0.0005
    node.machine.take_out()
    node.machine.tick(0.0)
    assert [one.node_ids for one in node.machine.take(SendPeers) if one.message.entries] == [(3,)]
    assert leads.pushing.late == {2}


@pytest.mark.parametrize("lateness", [LATENESS, AT_ONCE])
def test_each_answer_is_told_where_somebody_counts_them(lateness: Lateness) -> None:
    """Some wait for all nodes to have what they sent."""
    node = knows(leading(lateness=lateness))
    node.machine.append(0.0, Append(5, [made(2, 2, 5)], is_counted=True))
    node.machine.append(0.0, Append(5, [made(3, 3, 5)]))
    node.machine.machine.leading.pushing.push_late(0.0)
    node.written()
    node.machine.take_out()
    told = []
    for node_id, trans_id in ((2, 1), (2, 2), (3, 1), (3, 2), (3, 2), (3, 3), (2, 3)):
        node.heard(0.0, node_id, Stored(5, trans_id, 0.0))
        told.append([one.replicas for one in node.machine.take(LogAdvanced)])
    assert told[:4] == [[(3, 1, 0)], [(3, 2, 0)], [(3, 2, 1)], [(3, 2, 2)]]
    assert told[4:] == [[], [(3, 3, 2)], []], "it is no news, it is committed by it, nobody counts it"


@given(st.data())
def test_whatever_happens_all_that_is_not_pulled_arrives_in_order(data: st.DataObject) -> None:
    leader = Leader(voters=data.draw(st.sampled_from([2, 3, 5])), window=data.draw(st.sampled_from([50, 10_000])))
    now, asked_at = 0.0, math.inf
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from([0.0, 0.002, 0.02]))
        if now >= asked_at:
            leader.sent(leader.pushing.ring(now))
            asked_at = math.inf
        node_id = data.draw(st.sampled_from(sorted(leader.progress)))
        step = data.draw(st.sampled_from(["append", "append", "answer", "written", "gone", "back"]))
        if step == "append":
            to = {one for nodes in leader.append(now, data.draw(st.integers(1, 3))) for one in nodes}
            able = [its for its in leader.progress.values() if its.sent is not None]
            end = leader.log.tail.end.trans_id
            assert sum(its.sent == end for its in able) >= min(len(leader.has) // 2, len(able)), to
        elif step == "answer" and leader.progress[node_id].sent is not None:
            leader.answers(now, node_id)
        elif step == "written":
            leader.writes(now)
        elif step == "gone":
            leader.progress[node_id].must_pull(now)
            leader.sent(leader.pushing.push_late(now))
        elif step == "back" and leader.progress[node_id].sent is None:
            leader.has[node_id] = leader.log.tail.end.trans_id
            leader.answers(now, node_id)
        if (delay_s := leader.pushing.timer(now)) is not None:
            asked_at = now + delay_s
            assert delay_s < 0.011
    leader.sent(leader.pushing.push_late(now))
    for node_id, its in leader.progress.items():
        if its.sent is not None:
            assert its.sent == leader.has[node_id] == leader.log.tail.end.trans_id
