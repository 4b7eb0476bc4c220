"""Show by queue and key, which may wait for a message with that key, or for another one."""

from typing import Any

import pytest

from actors.messages.rights import Principal, Rights
from quorate.protocol import Action
from tests.actors.queues.shard import Shard, delivery_of

WAITS: dict[str, Any] = {"queue": "q", "key": "k", "wait": 5}


class Leaver:
    """A client that may leave."""

    has_left = is_gone = has_ended = False

    def answer(self, order: int, request: object, reply: object) -> None:
        raise AssertionError("answers are taken from the ledger")


def put(shard: Shard, data: Any = 1, **fields: Any) -> int:
    fields = {"queue": "q", "key": "k", "retry": 60, "data": data, "on_duplicate": "replace", **fields}
    return int(shard.ask(Action.PRODUCE, **fields)["msg_id"])


def test_what_is_there_is_answered_at_once() -> None:
    shard = Shard()
    msg_id = put(shard)
    assert shard.ask(Action.SHOW, **WAITS)["msg_id"] == msg_id


def test_it_is_answered_when_a_message_with_the_key_is_durable() -> None:
    shard = Shard()
    order = shard.send(Action.SHOW, **WAITS)
    other = shard.send(Action.SHOW, **{**WAITS, "key": "other"})
    shard.commits = False
    shard.send(Action.PRODUCE, queue="q", key="k", data="new", retry=60)
    assert order not in shard.replies
    shard.commit()
    assert shard.replies[order]["message"]["data"] == "new"
    assert other not in shard.replies


def test_another_message_than_the_one_that_is_known_is_waited_for() -> None:
    shard = Shard()
    first = put(shard)
    order = shard.send(Action.SHOW, **WAITS, unless=first)
    shard.ask(Action.CONSUME, queue="q")
    shard.ask(Action.RELEASE, msg_id=first)
    assert order not in shard.replies
    second = put(shard, 2)
    assert shard.replies[order]["msg_id"] == second
    assert shard.ask(Action.SHOW, queue="q", key="k", unless=first)["msg_id"] == second
    assert shard.ask(Action.SHOW, queue="q", key="k", unless=second)["error"] == "no_such_message"


def test_a_wait_ends_with_no_such_message() -> None:
    shard = Shard()
    order = shard.send(Action.SHOW, **WAITS)
    shard.pass_time(4.9)
    assert order not in shard.replies
    shard.pass_time(0.2)
    assert shard.replies[order]["error"] == "no_such_message"
    put(shard)


def test_a_message_that_is_moved_there_counts() -> None:
    shard = Shard()
    put(shard, queue="from")
    order = shard.send(Action.SHOW, **WAITS)
    shard.ask(Action.MOVE, queue="from", to="q", count=9, create=True)
    assert shard.replies[order]["message"]["queue"] == "q"


def test_many_that_wait_are_answered_in_several_turns() -> None:
    shard = Shard(waits_per_client_max=1000)
    orders = [shard.send(Action.SHOW, **WAITS) for _ in range(500)]
    shard.commits = False
    shard.send(Action.PRODUCE, queue="q", key="k", data=1, retry=60)
    shard.commit()
    assert sum(order in shard.replies for order in orders) == 200
    shard.commits = True
    shard.pass_time(0.1)
    assert {shard.replies[order]["code"] for order in orders} == {0}


def test_a_wait_can_be_cancelled() -> None:
    shard = Shard()
    order = shard.send(Action.SHOW, **WAITS, seq=7)
    assert shard.ask(Action.CANCEL, seq=7)["cancelled"] == 1
    assert shard.replies[order]["error"] == "no_such_message"
    assert shard.ask(Action.CANCEL, seq=7)["cancelled"] == 0


def test_who_leaves_waits_no_more() -> None:
    shard, client = Shard(), Leaver()
    order = shard.send(Action.SHOW, client, **WAITS)
    client.has_left = True
    shard.broker.forget(client)
    shard.settle()
    assert shard.replies[order]["error"] == "no_such_message"
    late = shard.send(Action.SHOW, client, **WAITS)
    assert shard.replies[late]["error"] == "no_such_message"


def test_who_may_not_look_any_more_is_told() -> None:
    shard, client = Shard(), Leaver()
    order = shard.send(Action.SHOW, client, **WAITS)
    shard.broker.rejudge(client, Principal("ada", Rights({"look": ["other"]})))
    shard.settle()
    assert shard.replies[order]["error"] == "not_allowed"


def test_a_leader_that_serves_no_more_hands_the_waits_over_with_what_is_left_of_their_time() -> None:
    shard = Shard()
    shard.send(Action.SHOW, **WAITS)
    shard.pass_time(2)
    [waiting] = shard.broker.take_waiting(shard.now)
    call = waiting.take()
    assert call.request.wait == pytest.approx(3)
    assert len(waiting) == 0


def test_waits_for_keys_count_among_the_waits() -> None:
    shard = Shard(waits_per_client_max=2)
    shard.send(Action.SHOW, **WAITS)
    shard.send(Action.CONSUME, queue="q", wait=5)
    assert shard.ask(Action.SHOW, **WAITS)["error"] == "overloaded"
    assert shard.ask(Action.CONSUME, queue="q", wait=5)["error"] == "overloaded"
    assert Shard(wait_s_max=3).ask(Action.SHOW, **WAITS)["error"] == "field_error"


@pytest.mark.parametrize("named", [{"msg_id": 1024}, {"key": "k", "scope": "all"}])
def test_only_queue_and_key_are_waited_for(named: dict[str, Any]) -> None:
    assert Shard().ask(Action.SHOW, **named, wait=5)["error"] == "field_error"
    assert Shard().ask(Action.SHOW, **named, unless=7)["error"] == "field_error"
    assert Shard().ask(Action.SHOW, **named, wait=0)["error"] == "no_such_message"


def test_the_message_is_shown_in_the_state_that_it_comes_into() -> None:
    shard = Shard()
    order = shard.send(Action.SHOW, **WAITS)
    put(shard, delay=50)
    assert shard.replies[order]["message"]["state"] == "delayed"


def test_it_is_shown_before_a_consumer_takes_it() -> None:
    shard = Shard()
    shard.send(Action.CONSUME, queue="q", wait=5)
    order = shard.send(Action.SHOW, **WAITS)
    put(shard, retry=0)
    assert shard.replies[order]["code"] == 0


def test_large_messages_are_shown_a_few_a_turn() -> None:
    shard = Shard(waits_per_client_max=100)
    orders = [shard.send(Action.SHOW, **WAITS) for _ in range(20)]
    shard.commits = False
    shard.send(Action.PRODUCE, queue="q", key="k", data="x" * 900_000, retry=60)
    shard.commit()
    assert sum(order in shard.replies for order in orders) <= 2
    shard.commits = True
    shard.pass_time(0.1)
    assert all(order in shard.replies for order in orders)


def test_what_is_given_back_is_not_looked_at_by_those_who_know_it() -> None:
    shard = Shard(waits_per_client_max=1000)
    msg_id = put(shard)
    for _ in range(300):
        shard.send(Action.SHOW, **WAITS, unless=msg_id)
    looked: list[Any] = []
    delivery_of(shard.broker).on_keyed = looked.append
    shard.ask(Action.CONSUME, queue="q")
    shard.ask(Action.RELEASE, msg_id=msg_id)
    assert not looked
