"""What a full list tells beside the counts: what became of messages, and for how long they wait."""

import random

from quorate.protocol import Action
from tests.actors.queues.shard import Shard


def row(shard: Shard, name: str) -> dict[str, object]:
    rows = shard.ask(Action.LIST, full=True)["queue_list"]
    return next(one for one in rows if one["name"] == name)


def test_a_full_list_counts_what_became_of_messages() -> None:
    shard = Shard()
    begun = shard.now
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    ids = [shard.ask(Action.PRODUCE, queue="q", data=n, retry=5)["msg_id"] for n in range(6)]
    shard.ask(Action.PRODUCE, queue="q", data="once")
    shard.ask(Action.CONSUME, queue="q", count=7)
    shard.ask(Action.RELEASE, msg_id=ids[0])
    shard.ask(Action.CONSUME, queue="q")
    shard.ask(Action.CONFIRM, msg_ids=ids[:2])
    shard.ask(Action.BURY, msg_ids=ids[2:4])
    shard.ask(Action.MOVE, queue="dead", msg_id=ids[2])
    found = row(shard, "q")
    wanted = {"produced": 7, "delivered": 8, "redelivered": 1, "confirmed": 2, "released": 1, "buried": 2}
    wanted |= {"taken": 1, "arrived": 1}
    assert found["totals"] == {"since": begun, **wanted}
    assert (found["dead_letter"], found["dead_letters"]) == ("dead", 1)
    assert row(shard, "dead")["totals"] == {"since": begun, "moved": 1, "arrived": 2}
    assert "totals" not in shard.ask(Action.LIST)["queue_list"][0]


def test_a_removed_queue_is_counted_anew() -> None:
    shard = Shard()
    shard.ask(Action.PRODUCE, queue="q", data=1)
    shard.ask(Action.REMOVE, queue="q")
    shard.ask(Action.PRODUCE, queue="q", data=1)
    assert row(shard, "q")["totals"] == {"since": 1_800_000_000.0, "produced": 1}


def test_the_oldest_is_found_whatever_its_priority() -> None:
    shard, draw = Shard(), random.Random(3)
    since: dict[int, float] = {}
    for n in range(300):
        shard.pass_time(1)
        since[shard.ask(Action.PRODUCE, queue="q", data=n, retry=60, priority=draw.randint(0, 15))["msg_id"]] = (
            shard.now
        )
        if draw.random() < 0.4:
            got = shard.ask(Action.CONSUME, queue="q")["msg_id"]
            shard.ask(Action.CONFIRM, msg_id=got)
            del since[got]
        shard.ask(Action.PRODUCE, queue="q", data=n, delay=10_000, retry=60)
    assert row(shard, "q")["oldest"] == min(since.values())
    shard.ask(Action.PRODUCE, queue="empty", data=1)
    shard.ask(Action.CONSUME, queue="empty")
    assert "oldest" not in row(shard, "empty")
