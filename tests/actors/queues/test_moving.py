"""Messages that are moved by request: dead letters back to where they came from. By example."""

from typing import Any

import msgspec
import pytest

from actors.messages.call import Call
from actors.messages.rights import Principal, Rights
from actors.queues.moving import MOVE_SCAN
from net.protocols.session import RequestLimits
from quorate.protocol import Action, Request
from storage.records import Move
from tests.actors.queues.shard import NOBODY, Shard
from tests.net.protocols.decoding import decoded


def with_dead_letters(count: int = 3, **fields: Any) -> tuple[Shard, list[int]]:
    """Messages of `q`, buried in `dead`."""
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    ids = [shard.ask(Action.PRODUCE, queue="q", data=n, retry=9, **fields)["msg_id"] for n in range(count)]
    shard.ask(Action.CONSUME, queue="q", count=count)
    assert shard.ask(Action.BURY, msg_ids=ids)["buried"] == count
    return shard, ids


def test_dead_letters_go_back_to_where_they_came_from_and_are_as_new() -> None:
    shard, ids = with_dead_letters(headers={"a": "b"}, priority=2)
    shard.pass_time(5)
    reply = shard.ask(Action.MOVE, queue="dead", count=10)
    assert (reply["moved"], reply["stayed"], reply.get("reason")) == (3, 0, None)
    assert shard.ask(Action.MONITOR, queue="dead")["size"] == 0
    message = shard.ask(Action.SHOW, msg_id=ids[0])["message"]
    wanted = {
        "queue": "q",
        "deliveries": 1,
        "deliveries_here": 0,
        "state": "ready",
        "headers": {"a": "b"},
        "priority": 2,
        "retry": 9,
    }
    assert wanted.items() <= message.items()
    assert "dead" not in message
    assert (message["due_at"], message["expires_at"]) == (shard.now, shard.now + 3600)
    assert [one["msg_id"] for one in shard.ask(Action.CONSUME, queue="q", count=5)["messages"]] == ids
    assert [len(record.msg_ids) for record in shard.log if isinstance(record, Move)] == [3]
    shard.state.check()
    shard.replayed().check()


def test_a_waiting_consumer_gets_what_is_moved_to_its_queue() -> None:
    shard, ids = with_dead_letters(1)
    waiting = shard.send(Action.CONSUME, queue="q", wait=30)
    shard.ask(Action.MOVE, queue="dead", msg_ids=ids)
    assert shard.replies[waiting]["msg_id"] == ids[0]


def test_what_is_in_somebodys_hands_stays_and_so_does_what_is_no_dead_letter() -> None:
    shard, ids = with_dead_letters(2)
    assert shard.ask(Action.CONSUME, queue="dead")["msg_id"] == ids[0]
    plain = shard.ask(Action.PRODUCE, queue="dead", data="x")["msg_id"]
    reply = shard.ask(Action.MOVE, queue="dead", msg_ids=[*ids, plain, 1, ids[1]])
    assert (reply["moved"], reply["stayed"]) == (1, 1), "who is not there is not looked at"
    assert "no dead letter" in reply["reason"]
    assert shard.ask(Action.MOVE, queue="dead", to="other", msg_id=plain, create=True)["moved"] == 1
    assert shard.ask(Action.MONITOR, queue="other")["ready"] == 1


def test_keys_are_kept_and_one_that_is_taken_holds_its_message_back() -> None:
    shard = Shard()
    for queue, key in (("a", "k1"), ("a", "k2"), ("b", "k1"), ("c", "k2")):
        shard.ask(Action.PRODUCE, queue=queue, data=queue, key=key)
    reply = shard.ask(Action.MOVE, queue="a", to="b", count=10)
    assert (reply["moved"], reply["stayed"]) == (1, 1)
    assert "has the key 'k1'" in reply["reason"]
    assert shard.ask(Action.PRODUCE, queue="b", data="x", key="k2")["error"] == "duplicate_key"
    assert shard.ask(Action.PRODUCE, queue="a", data="x", key="k2")["code"] == 0
    reply = shard.ask(Action.MOVE, queue="c", to="b", count=10)
    assert (reply["moved"], reply["stayed"]) == (0, 1)
    assert shard.ask(Action.SHOW, queue="b", key="k2")["message"]["data"] == "a"
    shard.state.check()


def test_a_full_queue_takes_as_many_as_it_has_room_for() -> None:
    shard, ids = with_dead_letters(4)
    shard.ask(Action.CONFIGURE, queue="q", max_size=2)
    reply = shard.ask(Action.MOVE, queue="dead", count=10)
    assert (reply["moved"], reply["stayed"], reply["reason"]) == (2, 2, f"message {ids[2]}: 'q' is full")


def test_a_delay_goes_along() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="a", data="x", delay=50)["msg_id"]
    assert shard.ask(Action.MOVE, queue="a", to="b", msg_id=msg_id, create=True)["moved"] == 1
    message = shard.ask(Action.SHOW, msg_id=msg_id)["message"]
    assert (message["state"], message["due_at"]) == ("delayed", shard.now + 50)
    shard.pass_time(50)
    assert shard.ask(Action.CONSUME, queue="b")["msg_id"] == msg_id


def test_those_behind_many_that_stay_are_found_and_looking_for_them_ends() -> None:
    shard, _ = with_dead_letters(2)
    for _ in range(MOVE_SCAN // 1000 - 1):
        shard.ask(Action.PRODUCE, queue="dead", messages=[{"data": n} for n in range(1000)], priority=100)
    reply = shard.ask(Action.MOVE, queue="dead", count=1)
    assert (reply["moved"], reply["stayed"]) == (1, MOVE_SCAN - 1000)
    shard.ask(Action.PRODUCE, queue="dead", messages=[{"data": n} for n in range(1000)], priority=100)
    reply = shard.ask(Action.MOVE, queue="dead", count=1)
    assert (reply["moved"], reply["stayed"]) == (0, MOVE_SCAN)


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"count": 1}, "field_error", "queue is missing"),
        ({"queue": "dead"}, "field_error", "msg_ids is missing"),
        ({"queue": "dead", "to": "dead", "count": 1}, "field_error", "to is the queue itself"),
        ({"queue": "none", "count": 1}, "no_such_queue", "'none'"),
        ({"queue": "dead", "to": "none", "count": 1}, "no_such_queue", "create"),
    ],
)
def test_what_can_not_be_moved_is_refused(fields: dict[str, Any], error: str, says: str) -> None:
    shard, _ = with_dead_letters(1)
    reply = shard.ask(Action.MOVE, **fields)
    assert reply["error"] == error
    assert says in reply["reason"]
    assert shard.ask(Action.MONITOR, queue="dead")["size"] == 1


def test_nothing_moves_into_a_queue_that_is_gone_unless_it_is_to_be_made() -> None:
    shard, _ = with_dead_letters(1)
    shard.ask(Action.REMOVE, queue="q")
    reply = shard.ask(Action.MOVE, queue="dead", count=1)
    assert (reply["moved"], reply["stayed"]) == (0, 1)
    assert "nothing says to create it" in reply["reason"]
    assert shard.ask(Action.MOVE, queue="dead", count=1, create=True)["moved"] == 1
    assert shard.ask(Action.MONITOR, queue="q")["size"] == 1


def test_a_queue_is_made_only_where_there_may_be_one_more() -> None:
    shard = Shard(queues_max=1)
    shard.ask(Action.PRODUCE, queue="a", data="x")
    reply = shard.ask(Action.MOVE, queue="a", to="b", count=1, create=True)
    assert (reply["moved"], reply["stayed"]) == (0, 1)
    assert "1 queues already" in reply["reason"]


def test_who_may_not_produce_where_they_came_from_moves_none_back() -> None:
    shard, ids = with_dead_letters(1)
    request = decoded(msgspec.json.encode({"action": 21, "queue": "dead", "count": 5}), RequestLimits())
    assert isinstance(request, Request)
    who = Principal("ann", Rights({"consume": ["*"], "produce": ["other*"]}))
    shard.execute([Call(request, shard, 999, NOBODY, principal=who)])
    shard.settle()
    reply = shard.replies[999]
    assert (reply["moved"], reply["stayed"]) == (0, 1)
    assert "produce" in reply["reason"]
    assert shard.ask(Action.SHOW, msg_id=ids[0])["message"]["queue"] == "dead"


def test_a_move_of_all_goes_on_behind_those_that_can_not_move() -> None:
    """At the head of the queue are more than one request looks at, and all of them stay."""
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="dead")
    stays = [shard.ask(Action.PRODUCE, queue="dead", data=n)["msg_id"] for n in range(MOVE_SCAN + 2)]
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    late = shard.ask(Action.PRODUCE, queue="q", data=1, retry=9)["msg_id"]
    shard.ask(Action.CONSUME, queue="q")
    shard.ask(Action.BURY, msg_id=late)
    first = shard.ask(Action.MOVE, queue="dead", count=1000)
    assert (first["moved"], first["stayed"]) == (0, MOVE_SCAN)
    second = shard.ask(Action.MOVE, queue="dead", count=1000, after=first["next"])
    assert (second["moved"], second["stayed"]) == (1, len(stays) - MOVE_SCAN)
    assert "next" not in second


def test_a_move_of_some_tells_where_the_rest_begins_also_among_those_that_wait() -> None:
    shard, ids = with_dead_letters(3)
    shard.ask(Action.PRODUCE, queue="dead", data="later", delay=60)
    first = shard.ask(Action.MOVE, queue="dead", to="q", count=2)
    assert first["moved"] == 2
    second = shard.ask(Action.MOVE, queue="dead", to="q", count=1, after=first["next"])
    assert second["moved"] == 1
    third = shard.ask(Action.MOVE, queue="dead", to="q", count=9, after=second["next"])
    assert (third["moved"], third.get("next")) == (1, None)
    assert shard.ask(Action.MOVE, queue="dead", to="q", count=9, after="7")["error"] == "field_error"
    shard.state.check()
    assert ids


def test_a_queue_that_a_move_makes_has_a_name_that_a_produce_could_have_made() -> None:
    refused = decoded(msgspec.json.encode({"action": 21, "queue": "q", "to": "a\nb", "count": 1}), RequestLimits())
    assert not isinstance(refused, Request)


def test_what_is_to_be_dropped_at_its_expiry_moves_once() -> None:
    """While it is ready it stands among those that wait for their time, too. (Simulation: seed 37, three nodes.)"""
    shard, ids = with_dead_letters(2)
    shard.ask(Action.PRODUCE, queue="dead", data=1, expire="drop", ttl=50)
    shard.ask(Action.PRODUCE, queue="dead", data=1, delay=20)
    reply = shard.ask(Action.MOVE, queue="dead", to="other", create=True, count=10)
    assert (reply["moved"], reply["stayed"]) == (4, 0)
    assert shard.ask(Action.MONITOR, queue="other")["size"] == 4
    shard.state.check()
    assert ids
