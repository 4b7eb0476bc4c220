"""Keys that are unique among all messages of a shard, and what is asked by them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.protocol import TIME_MAX_S, Action
from tests.actors.queues.shard import Shard

OF_ALL: dict[str, Any] = {"scope": "all", "retry": 60}


def held(shard: Shard, key: str, **fields: Any) -> dict[str, Any]:
    return shard.ask(Action.CONFIRM, key=key, scope="all", held=True, **fields)


def test_a_key_is_one_in_all_queues_and_free_when_its_message_is_gone() -> None:
    shard = Shard()
    first = shard.ask(Action.PRODUCE, queue="a", data=1, key="k", **OF_ALL)["msg_id"]
    refused = shard.ask(Action.PRODUCE, queue="b", data=2, key="k", **OF_ALL)
    assert (refused["error"], refused["msg_id"]) == ("duplicate_key", first)
    assert "b" not in shard.state.queues
    shard.ask(Action.CONFIRM, msg_id=first)
    assert "msg_id" in shard.ask(Action.PRODUCE, queue="b", data=2, key="k", **OF_ALL)
    shard.state.check()
    shard.replayed().check()


def test_keys_of_a_queue_are_others() -> None:
    shard = Shard()
    own = shard.ask(Action.PRODUCE, queue="a", data=1, key="k", retry=60)["msg_id"]
    other = shard.ask(Action.PRODUCE, queue="a", data=2, key="k", **OF_ALL)["msg_id"]
    assert shard.ask(Action.SHOW, queue="a", key="k")["msg_id"] == own
    found = shard.ask(Action.SHOW, key="k", scope="all")
    assert (found["msg_id"], found["message"]["scope"]) == (other, "all")
    assert shard.ask(Action.PRODUCE, queue="a", data=3, key="k", retry=60)["error"] == "duplicate_key"
    shard.ask(Action.CONFIRM, key="k", scope="all")
    assert shard.ask(Action.SHOW, queue="a", key="k")["msg_id"] == own
    assert shard.ask(Action.SHOW, key="k", scope="all")["error"] == "no_such_message"


def test_a_refusal_waits_until_the_message_that_has_the_key_is_durable() -> None:
    shard = Shard()
    shard.commits = False
    shard.send(Action.PRODUCE, queue="a", data=1, key="k", **OF_ALL)
    second = shard.send(Action.PRODUCE, queue="b", data=2, key="k", **OF_ALL)
    assert second not in shard.replies
    shard.commit()
    assert shard.replies[second]["error"] == "duplicate_key"


def test_items_of_a_batch_say_it_each_or_all_together() -> None:
    shard = Shard()
    items = [{"data": 1, "key": "a", "scope": "all"}, {"data": 2, "key": "b"}]
    ids = shard.ask(Action.PRODUCE, queue="q", messages=items)["msg_ids"]
    assert {key: message.msg_id for key, message in shard.state.keys.items()} == {"a": ids[0]}
    assert (
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1, "key": "c"}, {"data": 2}], **OF_ALL)["error"]
        == "field_error"
    )
    assert (
        shard.ask(Action.PRODUCE, queue="r", messages=[{"data": 1, "key": "a"}], **OF_ALL)["error"] == "duplicate_key"
    )
    twice = [{"data": 1, "key": "d"}, {"data": 2, "key": "d"}]
    assert "twice" in shard.ask(Action.PRODUCE, queue="q", messages=twice, **OF_ALL)["reason"]


def test_scope_without_a_key_is_refused() -> None:
    shard = Shard()
    assert "stands beside a key" in shard.ask(Action.PRODUCE, queue="q", data=1, scope="all")["reason"]


def test_what_is_asked_by_id_is_asked_by_the_key_as_well() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, key="k", **OF_ALL)["msg_id"]
    assert shard.ask(Action.EXTEND, key="k", scope="all", retry=9)["error"] == "not_in_flight"
    shard.ask(Action.CONSUME, queue="q")
    assert shard.ask(Action.EXTEND, key="k", scope="all", retry=90)["extended"] == 1
    assert shard.ask(Action.RELEASE, key="k", scope="all")["released"] == 1
    shard.ask(Action.CONSUME, queue="q")
    assert shard.ask(Action.CONFIRM, key="k", scope="all")["confirmed"] == 1
    assert shard.ask(Action.CONFIRM, key="k", scope="all")["confirmed"] == 0
    for action in (9, 10, 20, 22):
        refused = shard.ask(action, key="k", scope="all", retry=9)
        assert (refused["error"], refused["reason"]) == ("no_such_message", "there is no message with the key 'k'")
    assert msg_id not in shard.state.messages


def test_a_held_confirm_is_about_what_is_in_flight_and_says_where_it_is_otherwise() -> None:
    shard = Shard()
    delayed = shard.ask(Action.PRODUCE, queue="q", data=1, key="late", delay=50, **OF_ALL)["msg_id"]
    shard.ask(Action.PRODUCE, queue="q", data=2, key="k", **OF_ALL)
    told = held(shard, "late")
    assert (told["error"], told["state"], told["msg_id"]) == ("not_in_flight", "delayed", delayed)
    told = held(shard, "k")
    assert (told["error"], told["state"], told.get("deliveries")) == ("not_in_flight", "ready", 0)
    shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(61)
    told = held(shard, "k")
    assert (told["error"], told["state"], told["deliveries"]) == ("not_in_flight", "ready", 1)
    shard.ask(Action.CONSUME, queues=["q"])
    shard.ask(Action.CONSUME, queues=["q"])
    assert held(shard, "k")["confirmed"] == 1
    assert held(shard, "k")["error"] == "no_such_message"
    shard.pass_time(1)
    assert shard.ask(Action.CONFIRM, msg_id=delayed, held=True, queue="other")["error"] == "no_such_message"


def test_a_held_confirm_of_several_confirms_those_that_are_in_flight() -> None:
    shard = Shard()
    ids = [shard.ask(Action.PRODUCE, queue="q", data=n, retry=60)["msg_id"] for n in range(3)]
    shard.ask(Action.CONSUME, queue="q", count=2)
    assert shard.ask(Action.CONFIRM, msg_ids=ids, held=True)["confirmed"] == 2
    assert shard.ask(Action.CONFIRM, msg_ids=ids, held=True)["error"] == "not_in_flight"
    shard.ask(Action.CONSUME, queue="q")
    assert shard.ask(Action.CONFIRM, msg_id=ids[2], held=True, delivery=0)["error"] == "not_in_flight"
    assert shard.ask(Action.CONFIRM, msg_id=ids[2], held=True, delivery=1)["confirmed"] == 1


@pytest.mark.parametrize("way", ["dead letter", "move", "back"])
def test_a_message_keeps_its_key_in_whatever_queue_it_is(way: str) -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    shard.ask(Action.CONFIGURE, queue="other")
    shard.ask(Action.PRODUCE, queue="other", data=0, key="k", retry=60)
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, key="k", ttl=TIME_MAX_S, **OF_ALL)["msg_id"]
    if way == "move":
        assert shard.ask(Action.MOVE, queue="q", to="other", count=9)["moved"] == 1
    else:
        shard.ask(Action.CONSUME, queue="q")
        shard.ask(Action.BURY, msg_id=msg_id)
        assert shard.state.messages[msg_id].queue == "dead"
    if way == "back":
        assert shard.ask(Action.MOVE, queue="dead", count=9)["moved"] == 1
    assert shard.ask(Action.PRODUCE, queue="new", data=2, key="k", **OF_ALL)["msg_id"] == msg_id
    for state in (shard.state, shard.replayed()):
        state.check()
        holder = state.keys.get("k")
        assert holder is not None
        assert holder.msg_id == msg_id


def test_a_number_confirms_nothing_that_has_such_a_key() -> None:
    """A producer that counts had the id of another's message: its second Ack took that one away."""
    shard = Shard()
    keyed = shard.ask(Action.PRODUCE, queue="q", data=1, key="k", **OF_ALL)["msg_id"]
    plain = shard.ask(Action.PRODUCE, queue="q", data=2, retry=60)["msg_id"]
    shard.ask(Action.CONSUME, queue="q", count=2)
    assert shard.ask(Action.CONFIRM, msg_id=keyed, held=True, scope="all")["error"] == "no_such_message"
    assert shard.ask(Action.CONFIRM, msg_id=plain, held=True, scope="all")["confirmed"] == 1
    assert keyed in shard.state.messages


def test_whether_a_key_is_there() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data=1, key="k", **OF_ALL)
    assert shard.ask(Action.FIND, key="k", scope="all") == {"action": 25, "code": 0}
    assert shard.ask(Action.FIND, key="other", scope="all")["error"] == "no_such_message"
    assert shard.ask(Action.FIND, key="k")["error"] == "field_error"


def test_a_state_lets_go_of_its_keys_in_pieces() -> None:
    shard = Shard()
    for number in range(30):
        shard.ask(Action.PRODUCE, queue="q", data=1, key=f"k{number}", **OF_ALL)
        shard.ask(Action.PRODUCE, queue="q", data=1, key=f"k{number}", retry=9)
    pieces = 1
    while not shard.state.take_apart(10):
        pieces += 1
    assert pieces > 10
    assert not shard.state.keys


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["produce", "plain", "consume", "confirm", "held", "clear", "remove", "time", "bury", "move"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["k1", "k2", "k3"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_a_key_has_one_message(steps: list[tuple[str, str, str]]) -> None:
    """As a dict of the messages that live says it; and the log says the same."""
    shard = Shard()
    for name in ("a", "b"):
        shard.ask(Action.CONFIGURE, queue=name, dead_letter="dead")
    for step, queue, key in steps:
        known = {m.key: m.msg_id for m in shard.state.messages.values() if (m.marks or {}).get("scope")}
        if step == "produce":
            reply = shard.ask(Action.PRODUCE, queue=queue, data=1, key=key, ttl=20, **OF_ALL)
            assert (reply.get("error") == "duplicate_key") == (key in known)
        elif step == "plain":
            shard.ask(Action.PRODUCE, queue=queue, data=1, key=key, retry=5, ttl=20)
        elif step == "consume":
            shard.ask(Action.CONSUME, queue=queue)
        elif step == "confirm":
            assert (shard.ask(Action.CONFIRM, key=key, scope="all").get("confirmed") == 1) == (key in known)
        elif step == "held":
            held(shard, key)
        elif step == "clear":
            shard.ask(Action.CLEAR, queue=queue)
        elif step == "remove":
            shard.ask(Action.REMOVE, queue="dead")
        elif step == "bury":
            shard.ask(Action.BURY, key=key, scope="all")
        elif step == "move":
            shard.ask(Action.MOVE, queue="dead", to=queue, count=5)
        else:
            shard.pass_time(15)
        shard.state.check()
    again = shard.replayed()
    again.check()
    assert dict(again.keys.items()).keys() == dict(shard.state.keys.items()).keys()
