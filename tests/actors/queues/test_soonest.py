"""What of all queues comes first by its time."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.queues import soonest
from actors.queues.soonest import SOONEST_NAMES
from tests.actors.queues.shard import Shard


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


def test_what_is_gone_or_asked_wrong() -> None:
    shard = Shard()
    assert scan(shard, "delayed") == []
    for wrong in ({"sort": "name", "state": "delayed"}, {"sort": "due", "state": "ready"}, {"sort": "due"}):
        assert shard.ask(23, full=True, **wrong)["error"] == "field_error"
    assert shard.ask(23, sort="due", state="delayed")["error"] == "field_error"
    assert soonest.PLACES.keys() == {"delayed", "in_flight"}
