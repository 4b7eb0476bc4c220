"""The ledger alone: what a reply says was true of committed state, and of no other leader's."""

import math
from typing import Any

from actors.messages.call import Call
from actors.shard.lease import Lease
from actors.shard.ledger import Ledger
from quorate.protocol import Action, Reply, Request
from storage.message import Message
from storage.message_ids import message_id
from storage.records import Remove
from storage.state import ShardState
from tests.actors.queues.shard import NOBODY

NOW = 1_800_000_000.0


class Client:
    has_left = is_gone = False
    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        raise AssertionError("answers are taken from the ledger")


def call(order: int, action: int = Action.PRODUCE) -> Call:
    return Call(Request(action), Client(), order, NOBODY)


def reply() -> Reply:
    return Reply(action=1, code=0)


def answered(ledger: Ledger) -> list[int]:
    """The orders of the calls whose answers may leave."""
    return [one.order for one, _ in ledger.take_answers()]


def with_records(count: int) -> Ledger:
    """One that has made so many records; none of them is committed."""
    ledger = Ledger(ShardState())
    ledger.set_time(NOW)
    for _ in range(count):
        ledger.append(Remove("q"))
    return ledger


def message(trans_id: int) -> Message:
    return Message("q", message_id(trans_id, 0), b"1", NOW, NOW, NOW + 60, 5.0, 0, None)


def test_a_reply_waits_for_all_that_was_applied_when_it_was_made() -> None:
    ledger = with_records(1)
    ledger.answer_when_committed(call(1), reply())
    ledger.append(Remove("q"))
    ledger.answer_when_committed(call(2), reply())
    assert answered(ledger) == []
    assert ledger.parked_count == 2
    ledger.commit(1)
    assert answered(ledger) == [1]
    ledger.commit(2)
    assert answered(ledger) == [2]
    assert not ledger.is_awaited


def test_where_all_is_committed_a_reply_leaves_at_once() -> None:
    ledger = with_records(0)
    ledger.answer_when_committed(call(1), reply())
    assert answered(ledger) == [1]


def test_a_commit_does_not_go_back() -> None:
    ledger = with_records(2)
    ledger.commit(2)
    ledger.commit(1)
    assert ledger.is_settled


def test_the_clock_of_a_log_does_not_go_back() -> None:
    ledger = with_records(0)
    ledger.set_time(NOW - 5)
    assert ledger.now == NOW


def test_a_look_at_committed_state_waits_until_no_other_can_have_led() -> None:
    ledger = with_records(1)
    ledger.lease.pass_time(10.0)
    ledger.renew_lease(until=9.0, confirmed_at=8.0)
    ledger.answer_when_committed(call(1, Action.SHOW), reply())
    ledger.commit(1)
    assert answered(ledger) == [], "it is committed, and another may have led when it was said"
    ledger.renew_lease(until=9.0, confirmed_at=10.0)
    assert answered(ledger) == [1], "what was said before a majority answered was true when it was said"


def is_doubtful(lease: Lease, now: float) -> bool:
    lease.pass_time(now)
    return lease.is_doubtful


def test_a_lead_is_doubtful_when_time_has_ended_its_lease_until_a_majority_answers_what_was_sent_since() -> None:
    lease = Lease()
    assert not is_doubtful(lease, 10.0), "a node alone has a lease for ever"
    lease.renew(until=12.0, confirmed_at=10.0)
    assert not is_doubtful(lease, 11.9)
    assert is_doubtful(lease, 12.5)
    lease.renew(until=12.4, confirmed_at=12.4)
    assert is_doubtful(lease, 12.6), "that was sent before"
    lease.renew(until=12.5, confirmed_at=12.5)
    assert not is_doubtful(lease, 13.0), "however long answers take, it goes on"
    lease.renew(until=14.0, confirmed_at=13.0)
    assert not is_doubtful(lease, 13.5)
    assert is_doubtful(lease, 14.0)
    lease.renew(until=-math.inf, confirmed_at=12.0)
    assert not is_doubtful(lease, 20.0), "none, or given up: it is not waited for"
    assert not lease.is_held


def test_a_lead_whose_lease_is_never_held_is_doubtful_again_when_its_process_stood_still() -> None:
    lease = Lease()
    assert not is_doubtful(lease, 10.0)
    lease.renew(until=12.0, confirmed_at=10.0)
    assert is_doubtful(lease, 12.5)
    assert is_doubtful(lease, 14.4)
    lease.renew(until=14.3, confirmed_at=12.6)
    for now in (14.7, 16.0, 17.5):
        assert not is_doubtful(lease, now), "answers take long"
    assert is_doubtful(lease, 20.1), "it looked at the time all along, and did not now"
    lease.renew(until=21.7, confirmed_at=20.0)
    assert is_doubtful(lease, 21.75), "that was sent before"
    lease.renew(until=21.9, confirmed_at=20.2)
    assert not is_doubtful(lease, 21.8)


def test_what_was_written_is_told_without_a_lease() -> None:
    """It is committed, whoever leads now."""
    ledger = with_records(1)
    ledger.lease.pass_time(10.0)
    ledger.renew_lease(until=9.0, confirmed_at=8.0)
    ledger.answer_when_committed(call(1, Action.PRODUCE), reply())
    ledger.commit(1)
    assert answered(ledger) == [1]


def test_looks_that_wait_for_the_lease_are_told_in_order_when_it_is_held_again() -> None:
    ledger = with_records(0)
    ledger.lease.pass_time(10.0)
    ledger.renew_lease(until=9.0, confirmed_at=8.0)
    for order in (1, 2):
        ledger.answer_when_committed(call(order, Action.SHOW), reply())
    assert answered(ledger) == []
    ledger.renew_lease(until=11.0, confirmed_at=8.0)
    assert answered(ledger) == [1, 2]


def test_a_message_may_be_given_to_somebody_when_it_is_committed_and_not_before() -> None:
    ledger = with_records(0)
    made = [message(1), message(2)]
    for one in made:
        ledger.append(one)
        ledger.produced(one)
    assert ledger.uncommitted_ids == [one.msg_id for one in made]
    assert ledger.uncommitted_due("q", 10) == 2
    assert ledger.commit(1) == made[:1]
    assert ledger.commit(2) == made[1:]
    assert ledger.uncommitted_ids == []


def test_what_is_to_follow_a_commit_follows_it_and_at_once_where_there_is_nothing_to_wait_for() -> None:
    ledger, done = with_records(1), []
    ledger.after_commit(lambda: done.append("first"))
    assert done == []
    ledger.commit(1)
    ledger.after_commit(lambda: done.append("second"))
    assert done == ["first", "second"]


def test_records_that_belong_together_are_handed_over_as_such() -> None:
    ledger = with_records(1)
    ledger.append_together([Remove("q"), Remove("q")])
    records, together = ledger.take_records()
    assert (len(records), together) == (3, [(1, 3)])
    assert ledger.take_records() == ([], [])


def test_who_leads_no_more_gives_up_all_that_is_open_with_what_it_waits_for() -> None:
    ledger = with_records(2)
    ledger.answer_when_committed(call(1), reply())
    ledger.after_commit(lambda: None)
    ledger.lease.pass_time(10.0)
    ledger.renew_lease(until=9.0, confirmed_at=8.0)
    ledger.answer_if_leased(call(2, Action.SHOW), reply())
    opened: list[tuple[int, Any]] = [(trans_id, one.order) for trans_id, one, _ in ledger.take_open()]
    assert opened == [(2, 1), (0, 2)]
    assert not ledger.is_awaited
    assert ledger.take_open() == []
