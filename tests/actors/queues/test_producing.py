"""What a produce does where its key has a message already: refuses, keeps that, or replaces it."""

from typing import Any

import pytest

from quorate.protocol import Action
from storage.message import Message
from storage.records import BASE_LEVEL, Clear, Produce
from tests.actors.queues.shard import Shard


def produce(shard: Shard, data: Any = 1, **fields: Any) -> dict[str, Any]:
    return shard.ask(Action.PRODUCE, **{"queue": "q", "retry": 60, "key": "k", "data": data, **fields})


def data_of(shard: Shard, key: str = "k") -> Any:
    return shard.ask(Action.SHOW, queue="q", key=key)["message"]["data"]


def checked(shard: Shard) -> None:
    shard.state.check()
    shard.replayed().check()


@pytest.mark.parametrize("how", [None, "refuse"])
def test_a_key_that_a_message_has_is_refused(how: str | None) -> None:
    shard = Shard()
    first = produce(shard)
    refused = produce(shard, 2, **({} if how is None else {"on_duplicate": how}))
    assert (refused["error"], refused["msg_id"]) == ("duplicate_key", first["msg_id"])
    assert data_of(shard) == 1


def test_keep_gives_the_id_that_is_there_and_says_so() -> None:
    shard = Shard()
    first = produce(shard, on_duplicate="keep")
    assert "duplicate" not in first
    again = produce(shard, 2, on_duplicate="keep")
    assert (again["code"], again["msg_id"], again["duplicate"]) == (0, first["msg_id"], True)
    assert data_of(shard) == 1
    assert len(shard.log) == 1


def test_replace_lets_the_old_one_go_and_the_new_one_come_in_one_entry() -> None:
    shard = Shard()
    first = produce(shard, on_duplicate="replace")["msg_id"]
    shard.commits = False
    second = shard.send(Action.PRODUCE, queue="q", retry=60, key="k", data=2, on_duplicate="replace")
    records, together = shard.broker.ledger.take_records()
    assert [type(record) for record in records] == [Clear, Message]
    assert together == [(0, 2)]
    shard.broker.ledger.records = records
    shard.commit()
    made = shard.replies[second]
    assert made["msg_id"] != first
    assert "duplicate" not in made
    assert data_of(shard) == 2
    assert shard.ask(Action.CONFIRM, msg_id=first)["confirmed"] == 0
    assert [one["msg_id"] for one in shard.ask(Action.CONSUME, queue="q", count=9)["messages"]] == [made["msg_id"]]
    shard.commits = True
    checked(shard)


def test_a_message_in_flight_is_replaced_and_its_consumer_confirms_nothing() -> None:
    shard = Shard()
    produce(shard)
    held = shard.ask(Action.CONSUME, queue="q", full=True)["message"]
    made = produce(shard, 2, on_duplicate="replace")["msg_id"]
    assert shard.ask(Action.CONFIRM, msg_id=held["msg_id"], delivery=1)["confirmed"] == 0
    assert shard.ask(Action.CONSUME, queue="q")["msg_id"] == made
    checked(shard)


def test_a_delayed_message_is_put_off_again_and_again() -> None:
    shard = Shard()
    for number in range(5):
        produce(shard, number, delay=2, on_duplicate="replace")
        shard.pass_time(1)
        assert "msg_id" not in shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(1)
    assert shard.ask(Action.CONSUME, queue="q")["data"] == 4
    assert "msg_id" not in shard.ask(Action.CONSUME, queue="q")
    checked(shard)


def test_a_full_queue_takes_what_replaces() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", max_size=2)
    produce(shard)
    produce(shard, key="other")
    assert produce(shard, key="third")["error"] == "queue_full"
    assert produce(shard, 2, on_duplicate="replace")["code"] == 0
    assert produce(shard, 2, on_duplicate="keep")["duplicate"] is True
    items = [{"data": 3, "key": "k"}, {"data": 3, "key": "new"}]
    assert shard.ask(Action.PRODUCE, queue="q", messages=items, on_duplicate="replace")["error"] == "queue_full"
    assert data_of(shard) == 2
    shard.ask(Action.CONFIGURE, queue="q", max_size=1)
    assert produce(shard, 5, on_duplicate="replace")["code"] == 0


def test_each_item_of_a_batch_says_what_it_does() -> None:
    shard = Shard()
    there = [produce(shard, name, key=name)["msg_id"] for name in "abc"]
    items: list[dict[str, Any]] = [
        {"data": 1, "key": "new"},
        {"data": 2, "key": "a", "on_duplicate": "keep"},
        {"data": 3, "key": "b"},
        {"data": 4},
        {"data": 5, "key": "c", "on_duplicate": "keep"},
    ]
    refused = shard.ask(Action.PRODUCE, queue="q", messages=items, retry=60, on_duplicate="replace")
    assert refused["reason"] == "messages[3].on_duplicate is 'replace', and there is no key"
    items[3]["key"] = "d"
    reply = shard.ask(Action.PRODUCE, queue="q", messages=items, retry=60, on_duplicate="replace")
    assert reply["duplicates"] == [1, 4]
    assert (reply["msg_ids"][1], reply["msg_ids"][4]) == (there[0], there[2])
    assert {key: data_of(shard, key) for key in ("new", "a", "b", "c", "d")} == {
        "new": 1,
        "a": "a",
        "b": 3,
        "c": "c",
        "d": 4,
    }
    for msg_id in reply["msg_ids"]:
        assert shard.state.messages[msg_id].msg_id == msg_id
    assert there[1] not in shard.state.messages
    assert sum(isinstance(record, Produce) for record in shard.log) == 6
    checked(shard)


def test_a_batch_with_one_that_is_refused_changes_nothing() -> None:
    shard = Shard()
    produce(shard, "a", key="a")
    produce(shard, "b", key="b")
    before = shard.state.trans_id
    items = [{"data": 1, "key": "a", "on_duplicate": "replace"}, {"data": 2, "key": "b"}]
    assert shard.ask(Action.PRODUCE, queue="q", messages=items)["error"] == "duplicate_key"
    assert (shard.state.trans_id, data_of(shard, "a")) == (before, "a")


@pytest.mark.parametrize("how", ["keep", "replace"])
def test_a_key_of_all_that_another_queue_has_is_refused(how: str) -> None:
    shard = Shard()
    there = produce(shard, queue="other", scope="all")["msg_id"]
    refused = produce(shard, 2, scope="all", on_duplicate=how)
    assert (refused["error"], refused["msg_id"]) == ("duplicate_key", there)
    own = produce(shard, 3, queue="other", scope="all", on_duplicate=how)
    assert own["code"] == 0
    assert (own["msg_id"] == there) == (how == "keep")
    checked(shard)


def test_what_says_it_has_a_key() -> None:
    refused = Shard().ask(Action.PRODUCE, queue="q", data=1, on_duplicate="replace")
    assert refused["reason"] == "on_duplicate is 'replace', and there is no key"


def test_a_cluster_of_an_older_level_refuses_it() -> None:
    shard = Shard()
    shard.broker.ledger.level = BASE_LEVEL
    assert produce(shard, on_duplicate="keep")["error"] == "not_supported"
    assert produce(shard)["code"] == 0


def test_what_waits_for_the_commit_is_kept_and_replaced_like_what_is_durable() -> None:
    shard = Shard()
    shard.commits = False
    first = shard.send(Action.PRODUCE, queue="q", data=1, key="k", retry=60)
    kept = shard.send(Action.PRODUCE, queue="q", data=2, key="k", retry=60, on_duplicate="keep")
    new = shard.send(Action.PRODUCE, queue="q", data=3, key="k", retry=60, on_duplicate="replace")
    assert not shard.replies
    shard.commit()
    assert shard.replies[kept]["msg_id"] == shard.replies[first]["msg_id"]
    assert shard.ask(Action.CONSUME, queue="q", count=5)["messages"][0]["msg_id"] == shard.replies[new]["msg_id"]
    shard.commits = True
    checked(shard)


@pytest.mark.parametrize("how", ["keep", "replace"])
def test_a_limit_on_ready_messages_is_about_what_is_added(how: str) -> None:
    shard = Shard()
    produce(shard)
    assert produce(shard, 2, max_ready=1, on_duplicate=how)["code"] == 0
    assert produce(shard, 2, key="new", max_ready=1, on_duplicate=how)["error"] == "too_many_ready"


def test_a_queue_that_takes_nothing_in_keeps_what_it_has() -> None:
    shard = Shard()
    msg_id = produce(shard)["msg_id"]
    shard.ask(Action.CONFIGURE, queue="q", paused="in")
    assert produce(shard, 2, on_duplicate="keep")["msg_id"] == msg_id
    assert produce(shard, 2, on_duplicate="replace")["error"] == "paused"
    assert data_of(shard) == 1


def test_what_has_replaced_another_stays_also_where_it_is_not_on_so_many_nodes_in_time() -> None:
    shard = Shard()
    shard.broker.context.view.nodes = shard.broker.context.view.voters = 3
    produce(shard)
    shard.commits = False
    shard.send(Action.PRODUCE, queue="q", data=2, key="k", retry=60, on_duplicate="replace", replicate=3, wait=1)
    shard.pass_time(5)
    shard.commit()
    assert [message.data for message in shard.state.messages.values()] == [b"2"]
