"""What of all queues comes first by its time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.messages.call import Call
from actors.queues.scanning import PLACES, SOONEST_LOOKED, SOONEST_NAMES, Soonest
from quorate.protocol import Action, Request
from storage.records import Place
from tests.actors.queues.shard import NOBODY, Shard


def scan(shard: Shard, state: str, **fields: Any) -> list[int]:
    return [one["msg_id"] for one in shard.ask(Action.SCAN, full=True, state=state, sort="due", **fields)["messages"]]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60), st.integers(1, 30))
def test_the_first_by_time_of_all_queues(jobs: list[tuple[int, int]], count: int) -> None:
    shard = Shard()
    delayed: list[tuple[float, int]] = []
    flying: list[tuple[float, int]] = []
    for number, (queue, seconds) in enumerate(jobs):
        msg_id = shard.ask(Action.PRODUCE, queue=f"q{queue}", data=number, delay=seconds or None, retry=50 + seconds)[
            "msg_id"
        ]
        if seconds:
            delayed.append((shard.now + seconds, msg_id))
        else:
            assert shard.ask(Action.CONSUME, queue=f"q{queue}")["msg_id"] == msg_id
            flying.append((shard.now + 50, msg_id))
        shard.now += 0.01
    assert scan(shard, "delayed", count=count) == [msg_id for _, msg_id in sorted(delayed)[:count]]
    assert scan(shard, "in_flight", count=count) == [msg_id for _, msg_id in sorted(flying)[:count]]


def test_very_many_queues_are_looked_at_in_pieces_and_others_have_their_turn() -> None:
    shard = Shard()
    ids = [
        shard.ask(Action.PRODUCE, queue=f"q{n:04}", data=n, delay=1000 - n)["msg_id"]
        for n in range(2 * SOONEST_NAMES + 5)
    ]
    shard.commits = False
    order = shard.send(Action.SCAN, full=True, state="delayed", sort="due", count=3)
    shard.commit()
    assert [one["msg_id"] for one in shard.replies[order]["messages"]] == ids[:-4:-1]


def test_what_stands_behind_very_many_that_end_first_is_found_in_pieces() -> None:
    shard = Shard()
    late = [shard.ask(Action.PRODUCE, queue="b", data=n, delay=1200)["msg_id"] for n in range(5)]
    for n in range(2 * SOONEST_LOOKED // 1000 + 1):
        shard.ask(Action.PRODUCE, queue="b", messages=[{"data": n}] * 1000, ttl=1000, expire="drop")
    others = [shard.ask(Action.PRODUCE, queue=name, data=1, delay=1300)["msg_id"] for name in "ac"]
    shard.pass_time(972)  # they expire soon, and stand before what is due later
    assert scan(shard, "delayed", count=4) == late[:4]
    found: list[list[int]] = []
    soonest = Soonest(shard.state, lambda _, messages: found.append([one.msg_id for one in messages]))
    for is_gone in (False, True):
        search = soonest.look(Call(Request(23, state="delayed"), shard, 1000, NOBODY), Place.DELAYED, 5)
        next(search)
        if is_gone:
            assert shard.ask(Action.REMOVE, queue="b")["count"] > 2 * SOONEST_LOOKED
        for _ in search:
            pass
    assert found == [late, others]


def test_what_is_gone_or_asked_wrong() -> None:
    shard = Shard()
    assert scan(shard, "delayed") == []
    for wrong in ({"sort": "name", "state": "delayed"}, {"sort": "due", "state": "ready"}, {"sort": "due"}):
        assert shard.ask(Action.SCAN, full=True, **wrong)["error"] == "field_error"
    assert shard.ask(Action.SCAN, sort="due", state="delayed")["error"] == "field_error"
    assert PLACES.keys() == {"delayed", "in_flight"}


def test_what_is_in_flight_is_found_at_once_behind_any_delayed_ones() -> None:
    shard = Shard()
    flying = [shard.ask(Action.PRODUCE, queue="b", data=n, retry=5000)["msg_id"] for n in range(5)]
    for _ in flying:
        shard.ask(Action.CONSUME, queue="b")
    for n in range(2 * SOONEST_LOOKED // 1000 + 1):
        shard.ask(Action.PRODUCE, queue="b", messages=[{"data": n}] * 1000, delay=1000)
    call = Call(Request(23, full=True, state="in_flight", sort="due"), shard, 1000, NOBODY)
    shard.execute([call])
    shard.broker.go_on(shard.now)
    assert not shard.broker.has_more
    shard.settle()
    assert [one["msg_id"] for one in shard.replies[1000]["messages"]] == flying
