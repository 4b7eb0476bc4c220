"""A leader that may have been replaced does nothing that would be undone."""

import math
from typing import Any

import pytest

import tests.actors.shard.test_queue_owner
from actors.messages.call import Call
from actors.messages.calls import Execute, Returned, StatusAsked
from actors.messages.log import Deposed, Drain, Drained, Propose
from actors.shard.leftovers import LET_GO_MAX
from quorate.protocol import Action, Request
from storage.records import Member, Members, Take
from tests.actors.cranked import CrankedRuntime
from tests.actors.shard.test_put_off import COUNT, asks, hurried, seqs
from tests.actors.shard.test_queue_owner import Owner, advanced, leading, produce


def heard(owner: Owner, committed: int, **changed: Any) -> None:
    """A majority answers, what was sent just now: the lease lasts a second from here."""
    now = owner.runtime.time
    owner.advance(committed, leased_until=now + 1.0, confirmed_at=now, **changed)


def returned(owner: Owner) -> list[Request]:
    return [call.request for message in owner.router.take(Returned) for call in message.calls]


def test_a_leader_whose_lease_is_over_holds_what_it_is_asked_until_it_is_heard() -> None:
    owner = leading()
    owner.advance(1, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time)
    owner.crank(1.0)
    produce(owner)
    owner.ask(Action.NODE_STATUS)
    assert owner.appended() == [], "another may lead by now"
    assert owner.replicator.take(StatusAsked) != [], "what is asked about itself it answers"
    owner.advance(1, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time)
    assert [record.data for record in owner.appended()] == [b"1"]
    owner.advance(2, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time)
    assert [reply.msg_id for reply in owner.replies()] == [2048]


def test_what_was_held_when_the_lease_was_over_goes_to_the_next_leader() -> None:
    owner = leading()
    owner.advance(1, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time)
    owner.crank(1.0)
    produce(owner)
    owner.tell(Deposed(1, 1, 2))
    assert [len(message.calls) for message in owner.router.take(Returned)] == [1]
    assert owner.replies() == []


def test_a_leader_that_has_given_its_lease_up_does_what_it_is_asked() -> None:
    """It was to hand its place over, and nobody took it."""
    owner = leading()
    owner.advance(1, leased_until=-math.inf)
    produce(owner)
    assert [record.data for record in owner.appended()] == [b"1"]


def test_calls_in_order_stay_so_when_the_lease_comes_back() -> None:
    owner = leading()
    owner.advance(1, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time)
    owner.crank(1.0)
    for text in (b"1", b"2"):
        produce(owner, text)
    owner.tell(advanced(1, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time))
    produce(owner, b"3")
    made = [record.data for record in owner.appended()]
    owner.advance(3, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time)
    owner.crank(0.1)
    assert made + [record.data for record in owner.appended()] == [b"1", b"2", b"3"]


def test_where_answers_take_longer_than_a_lease_lasts_it_goes_on_all_the_same() -> None:
    owner = leading()
    owner.advance(1, leased_until=owner.runtime.time + 1.0, confirmed_at=owner.runtime.time)
    owner.crank(2.0)
    produce(owner)
    asked_at = owner.runtime.time
    owner.crank(1.0)
    owner.advance(1, leased_until=owner.runtime.time - 0.5, confirmed_at=asked_at)
    assert [record.data for record in owner.appended()] == [b"1"]


def test_what_time_does_while_the_lease_is_over_does_not_leave_and_its_consumer_goes_to_the_next_leader() -> None:
    """A review's: the message went to who waited for it, and the outcome was unknown, since another led already."""
    for retry in (0.0, 9.0):
        owner = leading()
        produce(owner, delay=1.5, retry=retry)
        heard(owner, 2)
        owner.replies()
        owner.appended()
        owner.ask(Action.CONSUME, queue="q", wait=20.0)
        owner.crank(2.0)
        assert owner.appended() == [], "it is given to the consumer, and the log does not have that"
        assert owner.replies() == []
        owner.tell(Deposed(2, 2, 2))
        owner.crank()
        assert [request.action for request in returned(owner)] == [Action.CONSUME]
        assert owner.replies() == []


def test_what_time_did_while_the_lease_was_over_leaves_when_a_majority_is_heard() -> None:
    owner = leading()
    produce(owner, delay=1.5, retry=0.0)
    heard(owner, 2)
    owner.replies()
    owner.appended()
    owner.ask(Action.CONSUME, queue="q", wait=20.0)
    owner.crank(2.0)
    assert owner.appended() == []
    heard(owner, 2)
    assert [type(record) for record in owner.appended()] == [Take]
    heard(owner, 3)
    assert [reply.msg_id for reply in owner.replies()] == [2048]


def test_a_commit_that_is_heard_late_gives_its_message_to_nobody_for_certain() -> None:
    owner = leading()
    heard(owner, 1)
    owner.ask(Action.CONSUME, queue="q", wait=20.0)
    produce(owner, retry=9.0)
    owner.appended()
    owner.crank(1.5)
    now = owner.runtime.time
    owner.advance(2, leased_until=now - 0.2, confirmed_at=now - 1.2)
    assert [(reply.code, reply.msg_id) for reply in owner.replies()] == [(0, 2048)], "the producer's: it is committed"
    owner.crank(0.1)
    assert owner.appended() == []
    owner.tell(Deposed(2, 2, 2))
    owner.crank()
    assert [request.action for request in returned(owner)] == [Action.CONSUME]
    assert owner.replies() == []


def test_records_of_the_cluster_wait_for_a_majority_too_and_are_not_forgotten() -> None:
    owner = leading()
    heard(owner, 1)
    owner.crank(1.5)
    members = Members("", 9, [Member(1, "a", 1, 11, True)], [])
    owner.tell(Propose(5, members))
    assert owner.appended() == []
    heard(owner, 1)
    assert owner.appended() == [members]


def test_a_leader_that_is_to_hand_over_does_what_it_held_first() -> None:
    """A review's: it told that all was done, and did then what it had put off before."""
    owner = hurried()
    heard(owner, 1)
    owner.actor.actor_ref.tell(asks(owner, max_size=5))
    owner.runtime._turns.popleft().take_turn()
    assert owner.actor._admission.has_calls, "they are put off"
    owner.actor.actor_ref.tell(Drain(5))
    owner.runtime.time += 1.5
    owner.crank(0.5)
    now = owner.runtime.time
    owner.advance(owner.actor._appender.machine.logged, leased_until=now - 0.5, confirmed_at=now - 1.5)
    assert owner.actor._ledger.is_settled, "what had been done is committed"
    assert owner.actor._admission.holds_any
    assert owner.replicator.take(Drained) == []
    committed = 1
    while not owner.replicator.take(Drained):
        committed = owner.actor._appender.machine.logged
        owner.appended()
        heard(owner, committed)
    assert owner.appended() == []
    assert seqs(owner) == list(range(COUNT))
    assert owner.actor._ledger.is_settled


def test_calls_that_go_back_stay_in_their_order_though_others_come_meanwhile() -> None:
    owner = leading()
    heard(owner, 1)
    owner.crank(1.0)
    count = LET_GO_MAX + 150
    calls = [Call(Request(Action.PRODUCE, queue="q"), owner, seq, owner.asker) for seq in range(count + 50)]
    owner.tell(Execute(calls[:count]))
    owner.actor.actor_ref.tell(Deposed(1, 1, 2))
    owner.actor.actor_ref.tell(Execute(calls[count:]))
    owner.crank(0.1)
    back = [call for message in owner.router.take(Returned) for call in message.calls]
    assert [call.order for call in back] == list(range(count + 50))


class Stalls(CrankedRuntime):
    """A process that is put aside for `stall_s` between any two readings of its clocks."""

    stall_s = 0.0

    def now(self) -> float:
        found = super().now()
        self.time += self.stall_s
        return found

    def monotonic(self) -> float:
        found = super().monotonic()
        self.time += self.stall_s
        return found


def test_a_leaders_clock_is_not_ahead_after_it_was_put_aside_between_two_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stayed ahead by that as long as it led, and messages came early."""
    monkeypatch.setattr(tests.actors.shard.test_queue_owner, "CrankedRuntime", Stalls)
    host = Owner()
    runtime: Any = host.runtime
    for stall_s in (0.5, 0.02, 0.5):
        runtime.stall_s = stall_s
        host.actor._now()
        runtime.stall_s = 0.0
        for _ in range(3):
            runtime.time += 1.0
            wall = runtime.now()
            assert abs(host.actor._now() - wall) < 1e-6
