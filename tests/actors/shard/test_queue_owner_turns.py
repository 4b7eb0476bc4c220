"""No turn of the owner is long, whatever is asked and however much is due at once."""

import tracemalloc
from typing import Any

import pytest

from actors.messages.call import Call
from actors.messages.rights import ANONYMOUS, Principal, Rights
from actors.queues.consuming import WAITED_NAMES_MAX
from actors.queues.delivery import TURN_WORK_MAX
from actors.queues.listing import MATCH_STEPS
from quorate.actions import Right
from quorate.protocol import Action, Reply, Request
from storage.records import Bury, Expire
from tests.actors.queues.shard import NOBODY, Shard


class Asker:
    """A client of its own."""

    has_left = is_gone = False

    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Answers are taken from the ledger."""


def execute(
    shard: Shard, request: Request, order: int = 0, client: Any = None, principal: Principal | None = None
) -> None:
    call = Call(request, client or shard, order, NOBODY)
    if principal is not None:
        call.principal = principal
    shard.execute([call])


def turns(shard: Shard) -> int:
    """Let everything that is due happen; how many turns it took."""
    count = 0
    while shard.broker.next_event_at <= shard.now:
        count += 1
        assert count < 10_000
        shard.broker.pass_time(shard.now)
        shard.settle()
    return count


def delivered(shard: Shard, count: int) -> None:
    """So many messages that were delivered once, and are ready again."""
    for _ in range(count // 1000):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1, "retry": 1}] * 1000)
    for _ in range(count // 1000):
        shard.ask(Action.CONSUME, queue="q", count=1000)
    shard.pass_time(1.0)
    turns(shard)


def test_messages_that_may_not_go_out_any_more_are_ended_some_at_a_time() -> None:
    """400,000 of them took a second in one turn, and the lead."""
    shard = Shard()
    delivered(shard, 5000)
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=1)
    before = len(shard.log)
    execute(shard, Request(2, queue="q"), 900)
    shard.settle()
    [ended] = [record for record in shard.log[before:] if isinstance(record, Expire)]
    assert len(ended.msg_ids) == TURN_WORK_MAX
    assert "msg_id" not in shard.replies[900]
    execute(shard, Request(2, queue="q", wait=60.0), 901)
    last = shard.ask(Action.PRODUCE, queue="q", data="new", retry=9)["msg_id"]
    assert turns(shard) >= 3
    assert shard.replies[901]["msg_id"] == last, "who waits gets what is behind them"
    ended_in_all = [len(record.msg_ids) for record in shard.log[before:] if isinstance(record, Expire)]
    assert sum(ended_in_all) == 5000
    assert max(ended_in_all) <= TURN_WORK_MAX
    shard.state.check()


def test_they_are_ended_also_where_nobody_waits_for_what_is_behind_them() -> None:
    shard = Shard()
    delivered(shard, 3000)
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=1)
    shard.ask(Action.PRODUCE, queue="q", data="new", retry=9)
    assert "msg_id" not in shard.ask(Action.CONSUME, queue="q"), "not in this turn"
    turns(shard)
    assert shard.ask(Action.MONITOR, queue="q")["size"] == 1
    assert shard.ask(Action.CONSUME, queue="q")["data"] == "new"
    shard.state.check()


def test_so_they_are_where_they_are_buried() -> None:
    shard = Shard()
    delivered(shard, 3000)
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=1, dead_letter="dead")
    execute(shard, Request(2, queue="q", wait=60.0), 900)
    turns(shard)
    buried = [len(record.msg_ids) for record in shard.log if isinstance(record, Bury)]
    assert sum(buried) == 3000
    assert max(buried) <= TURN_WORK_MAX
    assert shard.ask(Action.MONITOR, queue="dead")["ready"] == 3000
    shard.state.check()


def test_consumers_are_served_in_order_over_several_turns_and_nobody_gets_before_them() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", paused=True)
    count = 3 * TURN_WORK_MAX
    for order in range(count):
        execute(shard, Request(2, queue="q", wait=60.0), 10_000 + order, Asker())
    for _ in range(4):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}] * 1000)
    shard.ask(Action.CONFIGURE, queue="q", paused=False)
    served = sum(1 for order in range(count) if 10_000 + order in shard.replies)
    assert served == TURN_WORK_MAX
    execute(shard, Request(2, queue="q", wait=60.0), 99_999)
    shard.settle()
    assert 99_999 not in shard.replies
    assert turns(shard) >= 2
    ids = [shard.replies[10_000 + order]["msg_id"] for order in range(count)]
    assert ids == sorted(ids)
    assert shard.replies[99_999]["msg_id"] > ids[-1]


@pytest.mark.parametrize("is_soon", [True, False])
def test_when_those_in_line_have_left_the_next_does_not_wait_behind_them(is_soon: bool) -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", paused=True)
    crowd = [Asker() for _ in range(TURN_WORK_MAX + 10)]
    for order, client in enumerate(crowd):
        execute(shard, Request(2, queue="q", wait=60.0), 10_000 + order, client)
    for _ in range(2):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}] * 1000)
    shard.ask(Action.CONFIGURE, queue="q", paused=False)
    for client in crowd:
        shard.broker.forget(client)
    shard.settle()
    if not is_soon:
        turns(shard)
    execute(shard, Request(2, queue="q", wait=60.0), 99_999)
    shard.settle()
    assert "msg_id" in shard.replies[99_999]


def test_waits_that_end_at_one_moment_end_some_at_a_time() -> None:
    shard = Shard()
    count = 3 * TURN_WORK_MAX
    for order in range(count):
        execute(shard, Request(2, queue="q", wait=5.0), 10_000 + order, Asker())
    shard.now += 5.0
    shard.broker.pass_time(shard.now)
    shard.settle()
    assert len(shard.replies) == TURN_WORK_MAX
    assert turns(shard) == 2
    assert len(shard.replies) == count


def test_a_client_waits_for_so_many_queues_and_strangers_leave_room_for_others() -> None:
    """One connection took all places with fifty requests of a thousand names each."""
    shard = Shard(waiters_max=5000)
    names = [f"q{number}" for number in range(WAITED_NAMES_MAX)]
    greedy = Asker()
    execute(shard, Request(2, queues=names, wait=60.0), 1, greedy)
    execute(shard, Request(2, queues=["one"], wait=60.0), 2, greedy)
    shard.settle()
    assert shard.replies[2]["error"] == "overloaded"
    stranger = Principal(ANONYMOUS, Rights({Right.CONSUME: ("*",)}))
    for order in range(3, 8):
        execute(shard, Request(2, queues=names, wait=60.0), order, Asker(), stranger)
    shard.settle()
    assert [order in shard.replies for order in range(3, 8)] == [False, False, False, True, True][:5]
    execute(shard, Request(2, queue="q", wait=60.0), 20, Asker())
    shard.settle()
    assert 20 not in shard.replies, "it waits"


def listed(shard: Shard, pattern: str, order: int, principal: Principal | None = None) -> None:
    execute(shard, Request(7, pattern=pattern), order, Asker(), principal)


def test_lists_with_patterns_that_take_long_go_one_piece_at_a_time() -> None:
    shard = Shard()
    shard.broker.jobs.set_late(lambda: True)
    for number in range(1000):
        shard.state.queue(f"{'a' * 240}{number:04}")
    pattern = f"*{'a' * 120}b*"
    for order in range(3):
        listed(shard, pattern, order)
    assert len(shard.broker.jobs.looks.jobs) == 3, "not in the turn in which they come"
    turns = 0
    while shard.broker.has_more:
        turns += 1
        shard.broker.go_on(shard.now)
    assert turns >= 3 * 1000 // (MATCH_STEPS // (240 * 120) + 1), "one piece a turn"
    shard.settle()
    assert [shard.replies[order]["queue_count"] for order in range(3)] == [0, 0, 0]


def test_names_that_a_client_may_not_look_at_are_not_compared() -> None:
    shard = Shard()
    for number in range(1000):
        shard.state.queue(f"q{number:04}")
    listed(shard, "*0", 1, Principal("x", Rights({Right.LOOK: ("q00*",)})))
    listed(shard, "*0", 2, Principal("y", Rights({})))
    shard.settle()
    assert shard.replies[1]["queue_count"] == 10
    assert shard.replies[2]["queue_count"] == 0


def test_a_peek_looks_at_some_of_what_waits_and_at_nothing_that_is_in_flight() -> None:
    shard = Shard()
    for _ in range(8):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1, "retry": 5000}] * 1000)
        shard.ask(Action.CONSUME, queue="q", count=1000)
    assert shard.ask(Action.PEEK, queue="q", count=5)["messages"] == []
    shard.ask(Action.PRODUCE, queue="q", data="later", delay=3000)
    shard.ask(Action.PRODUCE, queue="q", data="last", delay=9000)
    assert [one["state"] for one in shard.ask(Action.PEEK, queue="q", count=5)["messages"]] == ["delayed"] * 2
    for _ in range(6):
        shard.ask(Action.PRODUCE, queue="ends", messages=[{"data": 1}] * 1000, ttl=20, expire="drop", priority=1)
    shard.ask(Action.PRODUCE, queue="ends", data="later", delay=3000)
    assert shard.ask(Action.PEEK, queue="ends", state="delayed", count=5)["messages"] == []
    assert shard.ask(Action.PEEK, queue="ends", state="delayed", count=5)["next"] is not None


def test_a_peek_of_one_makes_nothing_of_all_that_are_ready() -> None:
    """Compiled, a list of all was made first: 160 ms with 600,000, and the lead was lost. Its memory shows it."""
    shard = Shard()
    for _ in range(20):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}] * 1000)
    shard.ask(Action.PEEK, queue="q", count=1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert len(shard.ask(Action.PEEK, queue="q", count=1)["messages"]) == 1
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most - before < 40_000, "20,000 references are 160,000 bytes"
