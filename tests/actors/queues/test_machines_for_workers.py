"""What workers need of a queue: headers, full deliveries, fences, cancelled waits, buried messages. By example."""

from typing import Any

import pytest

from quorate.protocol import Action
from storage import entry_codec
from storage.kinds import as_written, shown
from storage.queue_state import QueueState
from storage.records import Bury, Produce
from tests.actors.queues.shard import Shard

HEADERS = {"traceparent": "00-1-2-01", "content-type": "text/plain"}


def test_headers_are_given_by_consume_peek_show_and_the_log() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x", headers=HEADERS, retry=5)
    shard.ask(
        Action.PRODUCE,
        queue="q",
        messages=[{"data": 1}, {"data": 2, "headers": {"own": "1"}}],
        headers=HEADERS,
        retry=5,
    )
    assert [one["headers"] for one in shard.ask(Action.PEEK, queue="q", count=5)["messages"]] == [
        HEADERS,
        HEADERS,
        {"own": "1"},
    ]
    got = shard.ask(Action.CONSUME, queue="q")
    assert got["headers"] == HEADERS
    assert [one["headers"] for one in shard.ask(Action.CONSUME, queue="q", count=9)["messages"]] == [
        HEADERS,
        {"own": "1"},
    ]
    assert shard.ask(Action.SHOW, msg_id=got["msg_id"])["message"]["headers"] == HEADERS
    produced = [record for record in shard.log if isinstance(record, Produce)]
    assert shown(1, 0.0, produced[0])["headers"] == HEADERS
    assert "headers" not in shown(1, 0.0, Produce("q", 1, b"1", 0.0, 0.0, 0.0, 0.0, 0, None))


def test_headers_count_as_what_a_node_holds() -> None:
    shard = Shard(memory_bytes_max=10_000)
    big = {"name": "x" * 2000}
    assert shard.ask(Action.PRODUCE, queue="q", data="x", headers=big)["code"] == 0
    assert shard.ask(Action.PRODUCE, queue="q", data="x", headers=big)["error"] == "limit_reached"
    shard.ask(Action.CONFIRM, msg_id=shard.state.messages and next(iter(shard.state.messages)))
    assert shard.state.data_bytes == 0


def test_full_gives_what_show_gives() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data={"a": 1}, headers=HEADERS, retry=5, ttl=60, priority=3, key="k")
    reply = shard.ask(Action.CONSUME, queue="q", full=True, consumer="w1")
    shown_by_show = shard.ask(Action.SHOW, msg_id=reply["msg_id"])["message"]
    assert reply["message"] == shown_by_show
    wanted = {"retry": 5, "priority": 3, "key": "k", "deliveries": 1, "state": "in_flight", "consumer": "w1"}
    assert wanted.items() <= shown_by_show.items()
    assert shown_by_show["due_at"] == shard.now + 5
    shard.ask(Action.PRODUCE, queue="q", data="once", retry=0)
    [taken] = shard.ask(Action.CONSUME, queue="q", full=True, count=5)["messages"]
    assert (taken["state"], taken["deliveries"], taken["data"]) == ("taken", 1, "once")
    assert "msg_id" not in shard.ask(Action.CONSUME, queue="q", full=True)


def test_a_late_consumer_can_do_nothing_to_what_another_works_on() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", retry=2)["msg_id"]
    assert shard.ask(Action.CONSUME, queue="q")["deliveries"] == 1
    shard.pass_time(3)
    assert shard.ask(Action.CONSUME, queue="q")["deliveries"] == 2
    for action, more in ((9, {}), (10, {"retry": 50}), (20, {})):
        late = shard.ask(action, msg_id=msg_id, delivery=1, **more)
        assert late["error"] == "not_in_flight", action
        assert "delivered again" in late["reason"]
    assert shard.ask(Action.CONFIRM, msg_id=msg_id, delivery=1)["confirmed"] == 0
    late = shard.ask(Action.CONFIRM, msg_ids=[msg_id, 7], delivery=[1, 1])
    assert (late["confirmed"], late["elsewhere"]) == (0, 1)
    assert shard.ask(Action.EXTEND, msg_id=msg_id, delivery=2, retry=50)["extended"] == 1
    assert shard.ask(Action.CONFIRM, msg_ids=[msg_id], delivery=[2])["confirmed"] == 1


def test_a_delivery_whose_record_a_crash_has_lost_is_confirmed_as_long_as_nobody_had_a_later_one() -> None:
    shard = Shard()
    one, two = (shard.ask(Action.PRODUCE, queue="q", data="x", retry=2)["msg_id"] for _ in range(2))
    assert shard.ask(Action.CONFIRM, msg_id=one, delivery=1)["confirmed"] == 1, "what gave it away is not in this log"
    reply = shard.ask(Action.CONFIRM, msg_ids=[one, two], delivery=[1, 1])
    assert (reply["confirmed"], reply.get("elsewhere")) == (1, None)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"msg_ids": [1024, 2048], "delivery": 1}, "must be a list"),
        ({"msg_ids": [1024, 2048], "delivery": [1]}, "1 numbers for 2"),
        ({"msg_id": 1024, "delivery": [1]}, "beside msg_ids alone"),
        ({"msg_id": 1024, "msg_ids": [2048], "delivery": [1]}, "beside msg_ids alone"),
    ],
)
def test_a_fence_names_one_delivery_for_each_message(named: dict[str, Any], says: str) -> None:
    for action in (3, 9, 10, 20):
        reply = Shard().ask(action, retry=5, **named)
        assert reply["error"] == "field_error"
        assert says in reply["reason"]


def test_what_is_extended_outlives_its_expiry_and_ends_with_its_lease() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", retry=2, ttl=3)["msg_id"]
    shard.ask(Action.CONSUME, queue="q")
    for _ in range(10):
        shard.pass_time(1)
        assert shard.ask(Action.EXTEND, msg_id=msg_id, retry=2)["extended"] == 1
    assert shard.ask(Action.SHOW, msg_id=msg_id)["message"]["state"] == "in_flight"
    shard.pass_time(3)
    assert shard.ask(Action.SHOW, msg_id=msg_id)["error"] == "no_such_message"


def test_what_is_buried_says_where_it_was() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="work", dead_letter="dead")
    msg_id = shard.ask(Action.PRODUCE, queue="work", data="x", retry=60, headers=HEADERS, expire="drop")["msg_id"]
    shard.ask(Action.CONSUME, queue="work")
    assert shard.ask(Action.BURY, msg_id=msg_id, delivery=1, reason="no such user")["buried"] == 1
    dead = {"queue": "work", "at": shard.now, "deliveries": 1, "reason": "no such user"}
    view = shard.ask(Action.SHOW, msg_id=msg_id)["message"]
    assert (view["dead"], view["headers"], view["queue"], view["deliveries_here"]) == (dead, HEADERS, "dead", 0)
    assert "expire" not in view
    assert shard.ask(Action.CONSUME, queue="dead", full=True)["message"]["dead"] == dead
    assert shard.state.data_bytes == shard.replayed().data_bytes
    [bury] = [record for record in shard.log if isinstance(record, Bury)]
    assert shown(1, 0.0, bury)["reason"] == "no such user"


def test_without_a_dead_letter_queue_nothing_is_buried() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="with", dead_letter="dead")
    ids = [shard.ask(Action.PRODUCE, queue=queue, data="x", retry=60)["msg_id"] for queue in ("with", "without")]
    for queue in ("with", "without"):
        shard.ask(Action.CONSUME, queue=queue)
    reply = shard.ask(Action.BURY, msg_ids=ids)
    assert (reply["error"], reply["reason"]) == ("field_error", "queue 'without' has no dead letter queue")
    assert shard.state.queues["with"].in_flight == 1
    assert shard.ask(Action.BURY, msg_id=ids[0])["buried"] == 1
    assert shard.ask(Action.BURY, msg_id=ids[0])["error"] == "not_in_flight"


def test_a_message_that_is_to_be_dropped_goes_when_it_expires_delivered_or_not() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    for delay, retry in ((0, 60), (0, 2), (1, 60)):
        shard.ask(Action.PRODUCE, queue="q", data="x", delay=delay, ttl=5, retry=retry, expire="drop")
    kept = shard.ask(Action.PRODUCE, queue="q", data="kept", ttl=5, retry=60)["msg_id"]
    shard.ask(Action.CONSUME, queue="q", count=2)
    shard.pass_time(6)
    assert list(shard.state.messages) == [kept]
    assert shard.ask(Action.MONITOR, queue="dead")["exists"] is False
    assert shard.ask(Action.CONSUME, queue="q")["msg_id"] == kept
    shard.state.check()


def test_a_cancelled_wait_is_answered_first_and_takes_no_message() -> None:
    shard = Shard()
    wait = shard.send(Action.CONSUME, queue="q", wait=60, seq=7)
    other = shard.send(Action.CONSUME, queue="q", wait=60, seq=8)
    assert shard.ask(Action.CANCEL, seq=7)["cancelled"] == 1
    assert "msg_id" not in shard.replies[wait]
    assert list(shard.replies) == [wait, 3], "in this order"
    shard.ask(Action.PRODUCE, queue="q", data="x")
    assert "msg_id" in shard.replies[other]
    for seq in (7, 8, "7"):
        assert shard.ask(Action.CANCEL, seq=seq)["cancelled"] == 0
    watch = shard.send(Action.WATCH, queue="q", wait=60, seq="w")
    assert shard.ask(Action.CANCEL, seq="w")["cancelled"] == 1
    assert "count" not in shard.replies[watch]
    assert shard.ask(Action.CANCEL)["error"] == "field_error"


def test_nobody_cancels_what_another_client_waits_for() -> None:
    class Other:
        has_left = is_gone = False
        has_ended = False

    shard = Shard()
    wait = shard.send(Action.CONSUME, client=Other(), queue="q", wait=60, seq=7)
    assert shard.ask(Action.CANCEL, seq=7)["cancelled"] == 0
    assert wait not in shard.replies


def test_settings_that_say_more_are_written_as_far_as_they_do() -> None:
    queue = QueueState("q")
    queue.life.expires_after_s = 60.0
    written = as_written(queue.settings())
    assert isinstance(written, tuple)
    assert len(written) == 9, "as members of the level before read it"
    queue.life.is_transient = True
    written = as_written(queue.settings())
    assert isinstance(written, tuple)
    assert len(written) == 11, "as members of the level before read it"
    queue.life.has_own_ttl = False
    written = as_written(queue.settings())
    assert isinstance(written, tuple)
    assert len(written) == 12, "as versions before system queues read it"
    queue.life.is_system = True
    assert as_written(queue.settings()) == queue.settings()
    bury = Bury("q", "dead", [1], [1], [0.0], [0.0], [3])
    assert entry_codec.decode(entry_codec.encode(1, 1, 0.0, [bury]), "test").records == [bury]


def test_a_monitor_tells_the_settings_and_makes_no_queue() -> None:
    shard = Shard()
    asked = {"max_size": 5, "default_ttl": 60, "default_retry": 7, "max_deliveries": 3, "dead_letter": "d"}
    shard.ask(Action.CONFIGURE, queue="q", expires_after=99, **asked)
    assert shard.ask(Action.MONITOR, queue="q")["settings"] == {
        **asked,
        "paused": False,
        "expires_after": 99,
        "system": False,
    }
    assert shard.ask(Action.MONITOR, queue="other")["exists"] is False


# -- looking at messages of one state, and ending a delay ----------------------------------------------------------


def test_messages_of_a_state_are_looked_at_page_by_page_while_they_come_and_go() -> None:
    shard = Shard()
    ids = [shard.ask(Action.PRODUCE, queue="q", data=n, retry=60, priority=n % 3)["msg_id"] for n in range(50)]
    later = [shard.ask(Action.PRODUCE, queue="q", data=n, delay=10 + n % 7)["msg_id"] for n in range(20)]
    flying = [one["msg_id"] for one in shard.ask(Action.CONSUME, queue="q", count=20)["messages"]]
    found: dict[str, list[int]] = {}
    for state in ("ready", "delayed", "in_flight"):
        after: str | None = None
        pages = 0
        found[state] = []
        while True:
            more: dict[str, Any] = {} if after is None else {"after": after}
            reply = shard.ask(Action.PEEK, queue="q", state=state, count=7, **more)
            assert all(one["state"] == state for one in reply["messages"])
            found[state] += [one["msg_id"] for one in reply["messages"]]
            pages += 1
            after = reply.get("next")
            if after is None:
                break
            if pages == 1 and state == "ready":  # the last of the page goes: what is behind it stays behind it
                shard.ask(Action.CONFIRM, msg_id=found[state][-1])
        assert pages >= 3
    assert sorted(found["in_flight"]) == sorted(flying)
    assert sorted(found["delayed"]) == sorted(later)
    assert sorted(found["ready"]) == sorted(set(ids) - set(flying))
    assert found["ready"] == sorted(found["ready"], key=lambda msg_id: (-(ids.index(msg_id) % 3), msg_id))


@pytest.mark.parametrize(
    ("more", "field"),
    [({"state": "gone"}, "state"), ({"after": "1:2"}, "state"), ({"state": "ready", "after": "1.0:2"}, "after")]
    + [({"state": "delayed", "after": after}, "after") for after in ("x", 7, "1:2:3", "a:1")],
)
def test_a_state_or_a_place_that_is_none_is_refused(more: dict[str, Any], field: str) -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data="x")
    reply = shard.ask(Action.PEEK, queue="q", **more)
    assert reply["error"] == "field_error"
    assert reply["reason"].startswith(field)


def test_a_page_ends_where_it_has_looked_at_enough() -> None:
    shard = Shard()
    for _ in range(12):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(1000)], ttl=20, expire="drop")
    last = shard.ask(Action.PRODUCE, queue="q", data="x", delay=100)["msg_id"]
    after: str | None = None
    pages = 0
    seen: list[int] = []
    while pages == 0 or after is not None:
        more: dict[str, Any] = {} if after is None else {"after": after}
        reply = shard.ask(Action.PEEK, queue="q", state="delayed", count=5, **more)
        seen += [one["msg_id"] for one in reply["messages"]]
        after, pages = reply.get("next"), pages + 1
    assert (seen, pages) == ([last], 3)


def test_a_delay_is_ended_by_a_release_and_not_by_one_of_a_delivery() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", delay=100, retry=5)["msg_id"]
    assert shard.ask(Action.RELEASE, msg_id=msg_id, delivery=0)["error"] == "not_in_flight"
    assert shard.ask(Action.RELEASE, msg_id=msg_id, delay=50)["released"] == 1
    assert shard.ask(Action.SHOW, msg_id=msg_id)["message"]["due_at"] == shard.now + 50
    assert shard.ask(Action.RELEASE, msg_id=msg_id)["released"] == 1
    assert shard.ask(Action.CONSUME, queue="q")["msg_id"] == msg_id
    ready = shard.ask(Action.PRODUCE, queue="q", data="y")["msg_id"]
    assert shard.ask(Action.RELEASE, msg_id=ready)["error"] == "not_in_flight", "it is due already"
    assert shard.replayed().queues["q"].delayed == shard.state.queues["q"].delayed == 0
