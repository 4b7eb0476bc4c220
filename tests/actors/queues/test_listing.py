"""Lists that are sorted, and what all queues have together: against what a plain sort says."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages.call import Call
from actors.messages.rights import ITSELF, Principal, Rights
from actors.messages.sorting import OF_FULL, SORTS, rank
from actors.queues.listing import LIST_NAMES
from actors.queues.scanning import SUMMED_AT_ONCE
from quorate.actions import Right
from quorate.protocol import Action, Request
from tests.actors.queues.shard import NOBODY, Shard, queries_of


def filled(sizes: list[int]) -> Shard:
    """Queues of so many messages, some delayed, some in flight, some with dead letters."""
    shard = Shard()
    for number, size in enumerate(sizes):
        name = f"q{number:02}"
        if number % 3 == 0:
            shard.ask(Action.CONFIGURE, queue=name, dead_letter=f"{name}.dead", paused=number % 2 == 0)
        for n in range(size):
            shard.now += 1
            message = shard.ask(Action.PRODUCE, queue=name, data=n, retry=60, delay=50 if n % 4 == 3 else 0)
            if n % 4 == 1 and "msg_id" in (taken := shard.ask(Action.CONSUME, queue=name)) and number % 3 == 0:
                shard.ask(Action.BURY, msg_id=taken["msg_id"])
            assert message["code"] == 0
    return shard


def value(row: dict[str, Any], sort: str) -> float | None:
    if sort in row["totals"] or sort not in (*SORTS[:7], "oldest", "dead_letters", "came", "left"):
        return float(row["totals"].get(sort, 0))
    return None if row.get(sort) is None else float(row[sort])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.sampled_from(SORTS), st.booleans(), st.integers(1, 5))
def test_pages_of_a_sorted_list_are_a_plain_sort_of_all(sizes: list[int], sort: str, down: bool, count: int) -> None:
    shard = filled(sizes)
    everything = shard.ask(Action.LIST, full=True)["queue_list"]
    if sort == "name":
        wanted = sorted((row["name"] for row in everything), reverse=down)
    else:
        order = [(rank(value(row, sort), is_descending=down), row["name"]) for row in everything]
        wanted = [name for _, name in sorted(order)]
    found: list[str] = []
    after: str | None = None
    while True:
        page = shard.ask(Action.LIST, full=True, sort=sort, descending=down, count=count, after=after)
        found += [row["name"] for row in page["queue_list"]]
        assert page["queue_count"] == len(everything)
        after = page.get("next")
        if after is None:
            break
        assert len(page["queue_list"]) == count
    assert found == wanted


def test_a_sorted_list_of_very_many_is_made_in_pieces() -> None:
    shard = Shard()
    for number in range(LIST_NAMES):
        shard.state.queue(f"q{number:05}")
    shard.ask(Action.PRODUCE, queue="q03000", data=1)
    shard.execute([])
    call = shard.send(Action.LIST, sort="size", descending=True, count=2)
    assert [row["name"] for row in shard.replies[call]["queue_list"]] == ["q03000", "q00000"]
    assert shard.ask(Action.LIST, pattern="q0[01]*", descending=True, count=2)["next"] == "q01998"


def test_what_no_message_is_ready_in_comes_last_both_ways() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="empty")
    shard.ask(Action.PRODUCE, queue="old", data=1)
    shard.now += 5
    shard.ask(Action.PRODUCE, queue="new", data=1)
    for down, names in ((False, ["old", "new", "empty"]), (True, ["new", "old", "empty"])):
        rows = shard.ask(Action.LIST, full=True, sort="oldest", descending=down)["queue_list"]
        assert [row["name"] for row in rows] == names
    assert rank(None, is_descending=True) == math.inf


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"sort": "colour"}, "colour"),
        ({"sort": "oldest"}, "full"),
        ({"sort": "ready", "after": "q1"}, "after"),
        ({"sort": "ready", "after": "x:q1"}, "after"),
        ({"after": 7}, "name of a queue"),
    ],
)
def test_an_order_that_there_is_not_is_refused(fields: dict[str, Any], word: str) -> None:
    reply = Shard().ask(Action.LIST, **fields)
    assert (reply["code"], reply["error"]) == (-1, "field_error")
    assert word in reply["reason"]


def test_sums_are_of_all_queues_and_tell_rates_from_the_second_time_on() -> None:
    shard = filled([3, 0, 5, 8])
    rows = shard.ask(Action.LIST, full=True)["queue_list"]
    first = shard.ask(Action.LIST, sums=True, count=1)
    [sums] = first["sums"]
    for state in ("ready", "delayed", "in_flight"):
        assert sums["messages"][state] == sum(row[state] for row in rows)
    of_use = [row for row in rows if not row["name"].endswith(".dead") and not row["paused"]]
    assert sums["oldest"] == min(row["oldest"] for row in of_use if row.get("oldest"))
    assert sums["totals"]["produced"] == 16
    assert sums["dead_letters"] == sum(row.get("dead_letters") or 0 for row in rows) > 0
    assert len(first["queue_list"]) == 1
    assert "came" not in first["queue_list"][0], "nobody has looked before"
    for n in range(8):
        shard.ask(Action.PRODUCE, queue="q02", data=n)
    shard.pass_time(4)
    shard.ask(Action.LIST, sums=True)
    [row] = shard.ask(Action.LIST, full=True, sort="came", descending=True, count=1)["queue_list"]
    assert (row["name"], row["came"], row["left"]) == ("q02", 2.0, 0.0)
    assert shard.ask(Action.MONITOR, queue="q02", full=True)["row"]["came"] == 2.0
    shard.pass_time(61)
    [row] = shard.ask(Action.LIST, full=True, count=1)["queue_list"]
    assert "came" not in row, "that was long ago"


def test_totals_of_all_do_not_fall_when_a_queue_goes() -> None:
    shard = filled([4, 4])
    shard.ask(Action.REMOVE, queue="q01")
    shard.pass_time(2)
    assert shard.ask(Action.LIST, sums=True)["sums"][0]["totals"]["produced"] == 8


def test_sums_of_very_many_are_made_in_pieces_and_once_for_all_who_ask() -> None:
    shard = Shard()
    for number in range(SUMMED_AT_ONCE * 2 + 1):
        shard.state.queue(f"q{number:05}")
    shard.ask(Action.PRODUCE, queue="q00001", data=1)
    shard.broker.jobs.set_late(lambda: True)
    summing = queries_of(shard.broker)._summing
    done: list[int] = []
    summing._done = lambda call, sums: done.append(sums.ready)
    for _ in range(3):
        summing.ask(Call(Request(7, sums=True), shard, 0, NOBODY))
    turns = 0
    while shard.broker.has_more:
        assert len(done) <= max(0, turns - 3), "each is answered in a turn of its own"
        shard.broker.go_on(shard.now)
        turns += 1
    assert (turns, done) == (2 * 3 - 1 + 2, [1, 1, 1]), "the first time queues for dead letters are looked for before"
    assert set(OF_FULL) < set(SORTS)


def test_what_leaves_and_arrives_counts_however_it_does() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    shard.ask(Action.LIST, sums=True)
    for n in range(8):
        shard.ask(Action.PRODUCE, queue="q", data=n, retry=0 if n < 4 else 60)
    shard.ask(Action.CONSUME, queue="q", count=2)
    buried = [one["msg_id"] for one in shard.ask(Action.CONSUME, queue="q", count=4)["messages"]][2:]
    assert shard.ask(Action.BURY, msg_ids=buried)["buried"] == 2
    shard.ask(Action.CLEAR, queue="q")
    shard.pass_time(2)
    shard.ask(Action.LIST, sums=True)
    rows = {row["name"]: row for row in shard.ask(Action.LIST, full=True)["queue_list"]}
    assert (rows["q"]["came"], rows["q"]["left"], rows["q"]["size"]) == (4.0, 4.0, 0)
    assert (rows["dead"]["came"], rows["dead"]["totals"]["arrived"]) == (1.0, 2)
    assert {name: rows["q"]["totals"][name] for name in ("taken", "cleared", "buried")} == {
        "taken": 4,
        "cleared": 2,
        "buried": 2,
    }


def test_sums_that_have_failed_keep_nobody_waiting_who_asks_later() -> None:
    shard = Shard()
    for number in range(SUMMED_AT_ONCE * 2):
        shard.state.queue(f"q{number:05}")
    shard.broker.jobs.set_late(lambda: True)
    call = shard.call(Action.LIST, sums=True)
    shard.execute([call])
    lost = shard.state.queues.pop("q00600")  # as a bug would
    shard.settle()
    assert shard.replies[call.order]["error"] == "internal_error"
    shard.state.queues["q00600"] = lost
    assert shard.ask(Action.LIST, sums=True)["sums"]


def test_a_list_whose_client_may_look_at_more_meanwhile_has_each_queue_once() -> None:
    shard = Shard()
    for number in range(2 * LIST_NAMES):
        shard.state.queue(f"q{number:05}")
    shard.broker.jobs.set_late(lambda: True)
    call = shard.call(Action.LIST, count=20)
    call.principal = Principal("one", Rights({Right.LOOK: ["q*"]}))
    shard.execute([call])
    shard.broker.go_on(shard.now)
    shard.broker.jobs.rejudge(shard, ITSELF)
    shard.settle()
    names = [row["name"] for row in shard.replies[call.order]["queue_list"]]
    assert names == [f"q{number:05}" for number in range(20)]
