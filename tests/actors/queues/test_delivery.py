"""Delivery: which message goes to whom, when, and what becomes of it when its time is over."""

import pytest

from quorate.protocol import Action
from tests.actors.gateway.test_routing import Somebody
from tests.actors.queues.shard import Shard


def test_an_at_most_once_delivery_is_answered_when_it_is_committed() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x", retry=0)
    shard.commits = False
    consume = shard.send(Action.CONSUME, queue="q")
    assert consume not in shard.replies
    shard.commit()
    assert shard.replies[consume]["data"] == "x"
    assert not shard.state.messages


@pytest.mark.parametrize("committed", [False, True])
def test_an_at_least_once_delivery_waits_for_its_commit_only_with_committed_leases(committed: bool) -> None:
    shard = Shard(lease_committed=committed)
    shard.ask(Action.PRODUCE, queue="q", data="x", retry=5)
    shard.commits = False
    consume = shard.send(Action.CONSUME, queue="q")
    assert (consume in shard.replies) != committed
    shard.commit()
    assert shard.replies[consume]["deliveries"] == 1


def test_waiting_consumers_are_served_in_the_order_they_came_whatever_queue_wakes_them() -> None:
    shard = Shard()
    first = shard.send(Action.CONSUME, queues=["a", "b"], wait=60)
    second = shard.send(Action.CONSUME, queue="a", wait=60)
    third = shard.send(Action.CONSUME, queue="b", wait=60)
    shard.ask(Action.PRODUCE, queue="b", data="1", retry=9)
    shard.ask(Action.PRODUCE, queue="a", data="2", retry=9)
    shard.ask(Action.PRODUCE, queue="b", data="3", retry=9)
    assert [shard.replies[n]["data"] for n in (first, second, third)] == ["1", "2", "3"]
    assert shard.ask(Action.MONITOR, queue="a")["wait_status"] == 0


def test_a_consumer_that_went_away_is_skipped_and_its_message_goes_to_the_next() -> None:
    shard = Shard()
    gone = Somebody()
    shard.send(Action.CONSUME, client=gone, queue="q", wait=60)
    stays = shard.send(Action.CONSUME, queue="q", wait=60)
    shard.broker.forget(gone)
    shard.ask(Action.PRODUCE, queue="q", data="x", retry=0)
    assert shard.replies[stays]["data"] == "x"


def test_a_consumer_that_waited_in_vain_gets_code_0_and_no_message() -> None:
    shard = Shard()
    number = shard.send(Action.CONSUME, queue="q", wait=2)
    shard.pass_time(1.9)
    assert number not in shard.replies
    shard.pass_time(0.2)
    assert shard.replies[number] == {"action": 2, "code": 0, "queue": "q"}


def test_a_batch_fills_up_for_a_waiting_consumer() -> None:
    shard = Shard()
    number = shard.send(Action.CONSUME, queue="q", wait=2, count=10)
    shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n, "retry": 5} for n in range(4)])
    assert [m["data"] for m in shard.replies[number]["messages"]] == [0, 1, 2, 3]


def test_a_message_past_its_ttl_that_was_never_delivered_stays_and_is_delivered_once() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x", ttl=5, retry=3)
    shard.pass_time(100)
    assert shard.ask(Action.CONSUME, queue="q")["deliveries"] == 1
    assert shard.ask(Action.MONITOR, queue="q")["in_flight"] == 1
    shard.pass_time(3)
    assert shard.ask(Action.MONITOR, queue="q")["size"] == 0


def test_a_message_that_can_not_be_retried_before_it_expires_waits_for_its_confirmation_until_then() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", ttl=10, retry=8)["msg_id"]
    shard.pass_time(5)
    shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(4.9)
    assert shard.ask(Action.SHOW, msg_id=msg_id)["message"]["state"] == "in_flight"
    shard.pass_time(0.2)
    assert shard.ask(Action.CONFIRM, msg_id=msg_id)["confirmed"] == 0


def test_a_message_goes_to_the_dead_letter_queue_after_max_deliveries() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=2, dead_letter="dead")
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", retry=1, key="k")["msg_id"]
    for deliveries in (1, 2):
        assert shard.ask(Action.CONSUME, queue="q")["deliveries"] == deliveries
        shard.pass_time(1)
    assert "msg_id" not in shard.ask(Action.CONSUME, queue="q")
    assert shard.ask(Action.PRODUCE, queue="q", data="y", key="k")["code"] == 0, "the key is free again"
    assert shard.ask(Action.CONSUME, queue="dead")["msg_id"] == msg_id


def test_a_consumer_may_wait_on_a_queue_and_on_its_dead_letter_queue() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    first = shard.ask(Action.PRODUCE, queue="q", data="1", retry=1)["msg_id"]
    shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(1)
    second = shard.ask(Action.PRODUCE, queue="q", data="2", retry=1)["msg_id"]
    shard.ask(Action.CONFIGURE, queue="q", paused=True, max_deliveries=1)
    numbers = [shard.send(Action.CONSUME, queues=["q", "dead"], wait=60) for _ in range(3)]
    shard.ask(Action.CONFIGURE, queue="q", paused=False)
    served = [shard.replies[number]["msg_id"] for number in numbers if number in shard.replies]
    assert sorted(served) == [first, second]
    shard.state.check()


def test_a_batch_stops_where_its_reply_would_grow_too_large() -> None:
    shard = Shard(memory_bytes_max=1 << 30)
    for _ in range(6):
        shard.ask(Action.PRODUCE, queue="q", data="x" * 1_000_000, retry=5)
    assert len(shard.ask(Action.CONSUME, queue="q", count=6)["messages"]) == 4
    assert len(shard.ask(Action.PEEK, queue="q", count=6)["messages"]) == 2


def test_a_leader_that_may_have_a_rival_delivers_only_what_is_committed() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x", retry=5)
    shard.commits = False
    shard.broker.ledger.lease.is_held = False
    consume = shard.send(Action.CONSUME, queue="q")
    assert consume not in shard.replies
    shard.commit()
    assert shard.replies[consume]["data"] == "x"


@pytest.mark.parametrize("offset", [0.0, -1.0])
def test_a_message_that_expires_when_it_is_due_is_delivered_once(offset: float) -> None:
    shard = Shard()
    now = shard.now + offset
    assert shard.ask(Action.PRODUCE, queue="q", data="x", delay=now, ttl=now)["code"] == 0
    assert shard.ask(Action.PRODUCE, queue="q", data="y", ttl=now)["code"] == 0
    assert [shard.ask(Action.CONSUME, queue="q")["data"] for _ in range(2)] == ["x", "y"]
    assert "msg_id" not in shard.ask(Action.CONSUME, queue="q")
    assert shard.ask(Action.PRODUCE, queue="q", data="z", delay=now, ttl=now - 1)["error"] == "time_error"


def test_a_delivery_notes_who_it_went_to() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", retry=9)["msg_id"]
    shard.ask(Action.CONSUME, queue="q", consumer="worker 7")
    assert shard.ask(Action.SHOW, msg_id=msg_id)["message"]["consumer"] == "worker 7"
    assert shard.replayed().messages[msg_id].marks == {"consumer": "worker 7"}
