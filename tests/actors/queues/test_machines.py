"""What a shard's owner promises, one sentence a test."""

from actors.shard.replicated import REPLICATED_S
from quorate.protocol import Action
from storage.queue_state import NewQueue
from tests.actors.queues.shard import Shard


def test_nothing_is_answered_or_shown_before_it_is_committed() -> None:
    shard = Shard()
    shard.commits = False
    produce = shard.send(Action.PRODUCE, queue="q", data="x", retry=5)
    consume = shard.send(Action.CONSUME, queue="q")
    assert produce not in shard.replies
    assert "msg_id" not in shard.replies[consume]
    shard.commit()
    assert shard.replies[produce]["code"] == 0
    assert "msg_id" in shard.replies[shard.send(Action.CONSUME, queue="q")]


def test_a_refusal_that_rests_on_something_uncommitted_waits_for_it() -> None:
    shard = Shard()
    shard.commits = False
    shard.send(Action.PRODUCE, queue="q", data="x", key="k")
    second = shard.send(Action.PRODUCE, queue="q", data="x", key="k")
    assert second not in shard.replies
    shard.commit()
    assert shard.replies[second]["error"] == "duplicate_key"


def test_a_full_queue_refuses_and_a_paused_one_accepts_but_does_not_deliver() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", max_size=2, paused=True)
    assert shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}, {"data": 2}])["code"] == 0
    full = shard.ask(Action.PRODUCE, queue="q", data=3)
    assert (full["error"], full["reason"]) == ("queue_full", "the queue holds 2 of 2 messages")
    assert "msg_id" not in shard.ask(Action.CONSUME, queue="q")
    number = shard.send(Action.CONSUME, queue="q", wait=60)
    shard.ask(Action.CONFIGURE, queue="q", paused=False)
    assert shard.replies[number]["data"] == 1


def test_a_batch_is_stored_as_a_whole_or_not_at_all() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x", key="taken")
    reply = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}, {"data": 2, "key": "taken"}])
    assert reply["error"] == "duplicate_key"
    twice = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1, "key": "n"}, {"data": 2, "key": "n"}])
    assert twice["error"] == "field_error"
    assert shard.ask(Action.MONITOR, queue="q")["size"] == 1


def test_clear_removes_what_is_there_and_remove_takes_the_queue_too() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", max_size=10_000)
    for _ in range(5):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n, "delay": n % 3} for n in range(1000)])
    assert shard.ask(Action.CLEAR, queue="q")["count"] == 5000
    assert shard.ask(Action.MONITOR, queue="q")["size"] == 0
    shard.ask(Action.PRODUCE, queue="q", data="x")
    assert shard.ask(Action.REMOVE, queue="q")["count"] == 1
    assert shard.ask(Action.LIST)["queue_list"] == []
    assert shard.ask(Action.CLEAR, queue="q")["error"] == "no_such_queue"
    shard.state.check()


def test_list_takes_wildcards_or_a_part_of_the_name() -> None:
    shard = Shard()
    for name in ("test1", "test2", "mytest", "other"):
        shard.ask(Action.PRODUCE, queue=name, data="x")

    def names(**fields: str) -> list[str]:
        return [row["name"] for row in shard.ask(Action.LIST, **fields)["queue_list"]]

    assert names(pattern="test*") == ["test1", "test2"]
    assert names(pattern="test") == ["mytest", "test1", "test2"]
    assert names(pattern="test[1]") == ["test1"]
    assert shard.ask(Action.NODE_LIST)["queue_count"] == 4
    assert shard.ask(Action.LIST, pattern="test1")["queue_list"] == [
        {"name": "test1", "size": 1, "ready": 1, "delayed": 0, "in_flight": 0, "max_size": 0}
        | {"max_id": shard.ask(Action.MONITOR, queue="test1")["max_id"], "wait_status": 0, "paused": False}
    ]


def test_a_list_goes_on_behind_a_name_and_says_when_there_are_more() -> None:
    shard = Shard()
    for name in "edcba":
        shard.ask(Action.PRODUCE, queue=name, data="x")
    first = shard.ask(Action.LIST, count=2)
    assert ([row["name"] for row in first["queue_list"]], first["next"], first["queue_count"]) == (["a", "b"], "b", 5)
    last = shard.ask(Action.LIST, after="c")
    assert [row["name"] for row in last["queue_list"]] == ["d", "e"]
    assert "next" not in last
    assert shard.ask(Action.LIST, after=5)["error"] == "field_error"


def test_peek_changes_nothing_and_shows_what_comes_next() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="later", delay=60)
    shard.ask(Action.PRODUCE, queue="q", data="now")
    shown = shard.ask(Action.PEEK, queue="q", count=5)["messages"]
    assert [(m["data"], m["state"], m["deliveries"]) for m in shown] == [("now", "ready", 0), ("later", "delayed", 0)]
    assert shard.ask(Action.CONSUME, queue="q")["deliveries"] == 1


def test_show_finds_a_message_by_its_key() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data={"a": 1}, key="k")["msg_id"]
    assert shard.ask(Action.SHOW, queue="q", key="k")["message"]["msg_id"] == msg_id
    assert shard.ask(Action.SHOW, queue="q", key="nope")["error"] == "no_such_message"


def test_times_in_the_past_or_the_wrong_way_round_are_time_errors() -> None:
    shard = Shard()
    assert shard.ask(Action.PRODUCE, queue="q", data="x", ttl=1_700_000_000)["error"] == "time_error"
    assert shard.ask(Action.PRODUCE, queue="q", data="x", delay=10, ttl=5)["error"] == "time_error"


def test_absolute_times_are_unix_seconds_as_in_the_original() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x", delay=int(shard.now) + 5, ttl=int(shard.now) + 3600)
    assert "msg_id" not in shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(5)
    assert "msg_id" in shard.ask(Action.CONSUME, queue="q")


def test_a_clock_that_goes_back_does_not_make_time_go_back() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x", delay=5)
    shard.pass_time(6)
    shard.now -= 100
    assert "msg_id" in shard.ask(Action.CONSUME, queue="q")


def test_limits_are_refused_with_their_reason() -> None:
    shard = Shard(queues_max=1, data_bytes_max=10, memory_bytes_max=2000, wait_s_max=5, waiters_max=1)
    assert shard.ask(Action.PRODUCE, queue="q", data="x")["code"] == 0
    assert shard.ask(Action.PRODUCE, queue="q2", data="x")["error"] == "limit_reached"
    assert shard.ask(Action.CONFIGURE, queue="q2", paused=True)["error"] == "limit_reached"
    assert shard.ask(Action.PRODUCE, queue="q", data="x" * 20)["error"] == "too_large"
    assert shard.ask(Action.CONSUME, queue="e", wait=6)["error"] == "field_error"
    shard.send(Action.CONSUME, queue="e", wait=5)
    assert shard.ask(Action.CONSUME, queue="e", wait=5)["error"] == "overloaded"
    for _ in range(5):
        last = shard.ask(Action.PRODUCE, queue="q", data="x")
    assert last["error"] == "limit_reached"


def test_unknown_actions_and_missing_fields_are_refused() -> None:
    shard = Shard()
    assert shard.ask(99)["error"] == "not_supported"
    for action in (1, 2, 4, 5, 6, 11, 13):
        assert shard.ask(action, data="x")["reason"].startswith("queue is missing")
    assert shard.ask(Action.PRODUCE, queue="q")["reason"] == "data is missing"
    assert shard.ask(Action.CONFIRM)["reason"].startswith("msg_id is missing")
    assert shard.ask(Action.PRODUCE, queue="q", data="x", replicate=2)["error"] == "not_supported"


def test_what_is_produced_after_a_remove_is_not_removed_with_it() -> None:
    shard = Shard()
    for _ in range(3):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(1000)])
    shard.ask(Action.CONFIGURE, queue="q", max_size=5000)
    shard.broker.ledger.set_time(shard.now)
    remove = shard.send(Action.REMOVE, queue="q")
    late = shard.ask(Action.PRODUCE, queue="q", data="late")
    assert shard.replies[remove]["count"] == 3000
    assert late["code"] == 0
    assert shard.ask(Action.CONSUME, queue="q")["data"] == "late"


def test_replicate_waits_for_so_many_disks() -> None:
    shard = Shard()
    shard.broker.context.view.nodes = 5
    shard.broker.ledger.replicated.majority = 3
    shard.commits = False
    one, many, default = (shard.send(Action.PRODUCE, queue="q", data="x", replicate=n) for n in (1, 5, None))
    ledger = shard.broker.ledger
    ledger.replicated.durable(shard.state.trans_id, (shard.state.trans_id, 0, 0, 0, 0))
    shard.settle()
    assert one in shard.replies, "the leader's disk is enough"
    assert many not in shard.replies
    shard.commit()
    assert default in shard.replies
    assert many not in shard.replies, "a majority is not"
    ledger.replicated.durable(shard.state.trans_id, (shard.state.trans_id,) * 5)
    shard.settle()
    assert shard.replies[many]["code"] == 0
    assert shard.ask(Action.PRODUCE, queue="q", data="x", replicate=6)["error"] == "not_supported"


def test_nodes_that_do_not_vote_are_no_majority() -> None:
    """Three that vote and one that does not yet: that one and the leader have the record, and it may be lost."""
    shard = Shard()
    shard.commits = False
    ledger = shard.broker.ledger
    shard.broker.context.view.nodes = 4
    ledger.replicated.majority = 2
    number = shard.send(Action.PRODUCE, queue="q", data=1, replicate=2)
    one = shard.send(Action.PRODUCE, queue="q", data=1, replicate=1)
    last = shard.state.trans_id
    ledger.replicated.durable(last, (last, last, 0, 0))
    shard._take_answers()
    assert shard.replies[one]["code"] == 0
    assert number not in shard.replies
    ledger.lease.pass_time(REPLICATED_S)
    ledger.replicated.durable(last, (last, last, 0, 0))
    shard._take_answers()
    assert shard.replies[number]["error"] == "unknown_outcome"


def test_a_new_queues_limit_is_in_the_log_and_not_that_of_who_replays_it() -> None:
    shard = Shard(new_queue=NewQueue(2))
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x")["msg_id"]
    assert shard.ask(Action.SHOW, msg_id=msg_id)["message"]["queue"] == "q"
    assert shard.replayed().queues["q"].max_size == 2
    shard.ask(Action.PRODUCE, queue="q", data="y")
    assert shard.ask(Action.PRODUCE, queue="q", data="z")["error"] == "queue_full"


def test_a_dead_letter_queue_that_is_made_so_has_the_limit_of_a_new_queue() -> None:
    shard = Shard(new_queue=NewQueue(7))
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=1, dead_letter="dead")
    shard.ask(Action.PRODUCE, queue="q", data="x", retry=1)
    shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(1.5)
    assert shard.ask(Action.MONITOR, queue="dead")["max_size"] == 7
    assert shard.replayed().queues["dead"].max_size == 7


def test_plain_bytes_go_through_as_they_came() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="AAH/", encoding="base64", retry=9)
    assert shard.ask(Action.PEEK, queue="q")["messages"][0]["encoding"] == "base64"
    taken = shard.ask(Action.CONSUME, queue="q", count=1)["messages"][0]
    assert (taken["data"], taken["encoding"]) == ("AAH/", "base64")
    assert shard.ask(Action.SHOW, msg_id=taken["msg_id"])["message"]["data"] == "AAH/"
    assert [bytes(m.data) for m in shard.replayed().messages.values()] == [b"\x00\x01\xff"]
    shard.ask(Action.PRODUCE, queue="q", data="AAH/", encoding="base64")
    alone = shard.ask(Action.CONSUME, queue="q")
    assert (alone["data"], alone["encoding"]) == ("AAH/", "base64")


def test_what_was_true_is_told_when_a_majority_has_confirmed_the_leader_since() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x")
    ledger = shard.broker.ledger
    ledger.renew_lease(5.0, 4.0)
    ledger.lease.pass_time(6.0)
    look = shard.send(Action.MONITOR, queue="q")
    assert look not in shard.replies, "another node may lead by now"
    ledger.renew_lease(5.0, 5.9)
    shard.settle()
    assert look not in shard.replies, "a majority followed this node before it looked, not after"
    ledger.renew_lease(5.0, 6.0)
    shard.settle()
    assert shard.replies[look]["size"] == 1


def test_a_node_may_set_what_a_new_queue_is_set_to() -> None:
    """It stands in the log, so that another leader's own settings change nothing of a queue that is there."""
    shard = Shard(new_queue=NewQueue(0, 60.0, 5.0))
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x")["msg_id"]
    message = shard.ask(Action.SHOW, msg_id=msg_id)["message"]
    assert (message["retry"], message["expires_at"]) == (5, shard.now + 60)
    assert shard.replayed().queues["q"].settings() == shard.state.queues["q"].settings()
    assert shard.ask(Action.MONITOR, queue="q")["settings"]["default_retry"] == 5
    assert shard.ask(Action.CONFIGURE, queue="other", max_size=3)["default_ttl"] == 60
    assert shard.ask(Action.CONFIGURE, queue="other", default_ttl=0)["default_ttl"] == 60
    second = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": "y"}, {"data": "z", "retry": 0}])["msg_ids"]
    assert [shard.ask(Action.SHOW, msg_id=one)["message"]["retry"] for one in second] == [5, 0]
