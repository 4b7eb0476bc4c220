"""A leader that may have been replaced does nothing that would be undone."""

import math

from actors.messages.calls import Returned, StatusAsked
from actors.messages.log import Deposed
from quorate.protocol import Action
from tests.actors.queues.test_queue_owner import advanced, leading, produce


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
