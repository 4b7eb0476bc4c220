"""What of all queues comes first by its time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.messages.call import Call
from actors.queues import soonest
from actors.queues.soonest import SOONEST_LOOKED, SOONEST_NAMES
from quorate.protocol import Request
from tests.actors.queues.shard import NOBODY, Shard


def scan(shard: Shard, state: str, **fields: Any) -> list[int]:
    return [one["msg_id"] for one in shard.ask(23, full=True, state=state, sort="due", **fields)["messages"]]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60), st.integers(1, 30))
def test_the_first_by_time_of_all_queues(jobs: list[tuple[int, int]], count: int) -> None:
    shard = Shard()
    delayed: list[tuple[float, int]] = []
    flying: list[tuple[float, int]] = []
    for number, (queue, seconds) in enumerate(jobs):
        msg_id = shard.ask(1, queue=f"q{queue}", data=number, delay=seconds or None, retry=50 + seconds)["msg_id"]
        if seconds:
            delayed.append((shard.now + seconds, msg_id))
        else:
            assert shard.ask(2, queue=f"q{queue}")["msg_id"] == msg_id
            flying.append((shard.now + 50, msg_id))
        shard.now += 0.01
    assert scan(shard, "delayed", count=count) == [msg_id for _, msg_id in sorted(delayed)[:count]]
    assert scan(shard, "in_flight", count=count) == [msg_id for _, msg_id in sorted(flying)[:count]]


def test_very_many_queues_are_looked_at_in_pieces_and_others_have_their_turn() -> None:
    shard = Shard()
    ids = [shard.ask(1, queue=f"q{n:04}", data=n, delay=1000 - n)["msg_id"] for n in range(2 * SOONEST_NAMES + 5)]
    shard.commits = False
    order = shard.send(23, full=True, state="delayed", sort="due", count=3)
    shard.commit()
    assert [one["msg_id"] for one in shard.replies[order]["messages"]] == ids[:-4:-1]


def test_what_stands_behind_very_many_of_the_other_state_is_found_in_pieces() -> None:
    shard = Shard()
    flying = [shard.ask(1, queue="b", data=n, retry=5000)["msg_id"] for n in range(5)]
    for _ in flying:
        shard.ask(2, queue="b")
    for n in range(2 * SOONEST_LOOKED // 1000 + 1):
        shard.ask(1, queue="b", messages=[{"data": n}] * 1000, delay=1000)
    shard.ask(1, queue="a", data=1, delay=900)
    shard.ask(1, queue="c", data=1, delay=900)
    assert scan(shard, "in_flight", count=4) == flying[:4]
    for is_gone in (False, True):
        request = Request(23, full=True, state="in_flight", sort="due")
        call = Call(request, shard, 1000 + is_gone, NOBODY)
        shard.broker.execute(shard.now, [call])
        shard.broker.go_on(shard.now)
        if is_gone:
            shard.broker.execute(shard.now, [Call(Request(13, "b"), shard, 2000, NOBODY)])
        assert shard.broker.has_more
        shard.settle()
        found = shard.replies[1000 + is_gone].get("messages") or []
        assert [one["msg_id"] for one in found] == ([] if is_gone else flying)


def test_what_is_gone_or_asked_wrong() -> None:
    shard = Shard()
    assert scan(shard, "delayed") == []
    for wrong in ({"sort": "name", "state": "delayed"}, {"sort": "due", "state": "ready"}, {"sort": "due"}):
        assert shard.ask(23, full=True, **wrong)["error"] == "field_error"
    assert shard.ask(23, sort="due", state="delayed")["error"] == "field_error"
    assert soonest.PLACES.keys() == {"delayed", "in_flight"}
