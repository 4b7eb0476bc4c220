"""What job queues need: rules that the plain model does not know, each with what was found when it did not hold."""

from typing import Any

from msgspec import Raw

from actors.messages.call import Call
from actors.queues.producing import MESSAGE_OVERHEAD_BYTES
from actors.shard.node_view import Limits
from actors.shard.replicated import STALE_MAX
from quorate.protocol import Action, Request
from storage.message_ids import SHARDS_MAX
from storage.queue_state import NewQueue
from storage.records import NACKED, NACKS, Produce
from tests.actors.queues.shard import NOBODY, Shard

KEPT: dict[str, Any] = {"retry": 0, "keep": True, "expire": "bury", "ttl": 1000}


def test_a_message_has_the_id_of_its_record_also_where_room_is_made_for_it_first() -> None:
    """What went made a record between the id's and its own."""
    shard = Shard(memory_bytes_max=6 * MESSAGE_OVERHEAD_BYTES)
    for number in range(4):
        shard.ask(Action.PRODUCE, queue="q", data=number, **KEPT)
        shard.ask(Action.CONSUME, queue="q")
    for number in range(5):
        msg_id = shard.ask(Action.PRODUCE, queue="q", data=number, retry=60)["msg_id"]
        made = shard.log[msg_id // SHARDS_MAX - 1]
        assert isinstance(made, Produce)
        assert made.data == b"%d" % number
    assert set(shard.replayed().messages) == set(shard.state.messages)
    assert shard.ask(Action.PRODUCE, queue="q", data=4, retry=60)["error"] == "limit_reached"


def test_what_was_given_out_at_most_once_is_never_given_out_again_by_a_dead_letter_queue() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    shard.ask(Action.PRODUCE, queue="q", data="seen", **KEPT)
    unseen = shard.ask(Action.PRODUCE, queue="other", data="unseen", **KEPT)["msg_id"]
    shard.ask(Action.CONFIGURE, queue="other", dead_letter="dead")
    shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(1001)
    assert [message["msg_id"] for message in shard.ask(Action.PEEK, queue="dead", count=9)["messages"]] == [unseen]


def test_how_often_it_was_given_back_is_the_same_after_a_replay() -> None:
    """A delivery that ends by time is no record, so the record of the release says which it was."""
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=10)["msg_id"]
    for _ in range(3):
        shard.ask(Action.CONSUME, queue="q")
        shard.pass_time(11)
    shard.ask(Action.CONSUME, queue="q")
    shard.ask(Action.RELEASE, msg_id=msg_id)
    marks = shard.state.messages[msg_id].marks
    assert marks is not None
    assert (marks[NACKS], marks[NACKED]) == (1, 4)
    assert shard.replayed().messages[msg_id].marks == marks


def test_a_queue_that_is_too_long_is_said_before_that_it_is_paused() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data=1, retry=60)
    shard.ask(Action.CONFIGURE, queue="q", paused="in")
    assert shard.ask(Action.PRODUCE, queue="q", data=2, max_ready=1)["error"] == "too_many_ready"
    assert shard.ask(Action.PRODUCE, queue="q", data=2, max_ready=2)["error"] == "paused"
    assert shard.ask(Action.CONFIGURE, queue="q", paused="none")["paused"] in (False, "none")
    assert shard.ask(Action.PRODUCE, queue="q", data=2, max_ready=2)["code"] == 0


def test_deadlines_of_what_is_over_do_not_gather() -> None:
    """A producer that waits for an hour, and is answered at once, left a deadline of an hour behind, each time."""
    shard = Shard()
    replicated = shard.broker.ledger.replicated
    for number in range(5000):
        order = shard.send(Action.PRODUCE, queue="q", data=number, retry=60, replicate=1, wait=3600)
        last = shard.state.trans_id
        replicated.durable(last, (last,))
        shard.settle()
        assert shard.replies[order]["code"] == 0
    assert not replicated.of_messages
    assert len(replicated._deadlines) <= STALE_MAX + 2


def test_a_producer_that_waits_is_told_when_its_message_is_gone() -> None:
    shard = Shard()
    shard.broker.context.view.nodes = shard.broker.context.view.heard = 3
    removed = shard.send(Action.PRODUCE, queue="q", data=1, retry=60, replicate=3, wait=100)
    expired = shard.send(Action.PRODUCE, queue="r", data=1, retry=1, ttl=5, expire="drop", replicate=3, wait=100)
    shard.ask(Action.CLEAR, queue="q")
    assert shard.replies[removed]["error"] == "no_such_message"
    shard.pass_time(6)
    assert shard.replies[expired]["error"] == "no_such_message"
    late = shard.send(Action.PRODUCE, queue="q", data=1, retry=60, replicate=3, wait=5)
    shard.pass_time(6)
    assert shard.replies[late]["error"] == "not_replicated"
    assert not shard.state.messages
    assert not shard.broker.ledger.replicated.of_messages


def test_where_memory_is_short_queues_that_nobody_needs_go_though_nobody_produces() -> None:
    """Found with Disque's own tests: 300 queues of jobs that were delivered once stayed for ever."""
    shard = Shard(memory_bytes_max=1 << 20)
    for number in range(300):
        name = f"q{number}"
        request = Request(
            Action.PRODUCE, name, Raw(b"x"), ttl=1e6, retry=0, keep=True, as_job=True, encoding="plain", expire="bury"
        )
        shard.execute([Call(request, shard, 10_000 + number, NOBODY)])
        shard.settle()
        shard.ask(Action.CONSUME, queue=name)
    shard.ask(Action.PRODUCE, queue="mine", data=1)
    shard.execute([Call(Request(Action.PRODUCE, "empty", Raw(b"1"), as_job=True), shard, 20_000, NOBODY)])
    shard.settle()
    shard.ask(Action.CONSUME, queue="empty")
    shard.pass_time(5)
    shard.broker.pass_time(shard.now)
    shard.settle()
    assert len(shard.state.queues) == 302, "with memory enough all stay for a while"
    shard.broker.set_limits(Limits(memory_bytes_max=1))
    shard.pass_time(10)
    assert list(shard.state.queues) == ["mine"]
    assert set(shard.replayed().queues) == {"mine"}


def test_what_names_a_shard_that_is_not_there_is_refused() -> None:
    """Found: a node of one shard gave the content of shard 0 for any."""
    shard = Shard()
    for number in (1, 7, 1023):
        for action in (Action.SCAN, Action.POSITION):
            reply = shard.ask(action, shard=number)
            assert reply["error"] == "field_error", (action, number)
            assert f"there is no shard {number}" in reply["reason"]
    assert shard.ask(Action.SCAN, shard=0)["code"] == 0


def test_a_pattern_of_nothing_lists_all_as_in_the_original() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="a", data=1)
    assert [row["name"] for row in shard.ask(Action.LIST, pattern="", full=True)["queue_list"]] == ["a"]


def test_to_look_at_a_queue_that_is_not_there_is_no_error_as_in_the_original() -> None:
    shard = Shard(new_queue=NewQueue(max_size=5))
    for action in (Action.MONITOR, Action.NODE_MONITOR):
        reply = shard.ask(action, queue="none", full=True)
        assert (reply["code"], reply["size"], reply["exists"], reply["max_size"]) == (0, 0, False, 5)
    assert not shard.state.queues, "and none is made"
    shard.ask(Action.PRODUCE, queue="none", data=1)
    assert "exists" not in shard.ask(Action.MONITOR, queue="none")


def test_a_job_that_is_added_at_once_waits_for_no_other_node() -> None:
    """ASYNC beside REPLICATE 3: the job is to be on three nodes, and its client waits for one."""
    shard = Shard()
    shard.broker.context.view.nodes = shard.broker.context.view.voters = shard.broker.context.view.heard = 3
    shard.broker.ledger.replicated.majority = 2
    shard.commits = False
    for number, early in enumerate((None, True)):
        request = Request(
            Action.PRODUCE,
            "q",
            Raw(b"1"),
            retry=60.0,
            wait=5.0,
            replicate=3,
            as_job=True,
            encoding="plain",
            early=early,
        )
        shard.execute([Call(request, shard, 30_000 + number, NOBODY)])
    shard.broker.ledger.replicated.durable(shard.state.trans_id, (shard.state.trans_id,))
    shard.settle()
    assert 30_001 in shard.replies
    assert 30_000 not in shard.replies
