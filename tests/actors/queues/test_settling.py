"""Confirm, release, extend, withhold and bury; of many messages in pieces."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages.rights import ANONYMOUS, ITSELF, Principal, Rights
from quorate.protocol import Action
from storage.records import Confirm
from tests.actors.queues.shard import Shard


def in_pieces(piece: int = 2) -> Shard:
    """A host that is late whenever it looks."""
    shard = Shard(settle_piece=piece)
    shard.broker.jobs.set_late(lambda: True)
    return shard


def test_confirming_an_unknown_id_is_code_0_and_confirmed_0() -> None:
    assert Shard().ask(Action.CONFIRM, msg_id=99, queue="q") == {
        "action": 3,
        "code": 0,
        "queue": "q",
        "msg_id": 99,
        "confirmed": 0,
    }


def test_confirming_many_counts_those_that_were_there() -> None:
    shard = Shard()
    ids = shard.ask(Action.PRODUCE, queue="a", messages=[{"data": n} for n in range(3)])["msg_ids"]
    ids += shard.ask(Action.PRODUCE, queue="b", messages=[{"data": n} for n in range(2)])["msg_ids"]
    assert shard.ask(Action.CONFIRM, msg_ids=[*ids, ids[0], 12345])["confirmed"] == 5


def test_extending_never_makes_the_retry_time_earlier() -> None:
    shard = Shard()
    msg_id = shard.ask(Action.PRODUCE, queue="q", data="x", retry=60)["msg_id"]
    due_at = shard.now + 60
    shard.ask(Action.CONSUME, queue="q")
    assert shard.ask(Action.EXTEND, msg_id=msg_id, retry=5)["extended"] == 1
    assert shard.ask(Action.SHOW, msg_id=msg_id)["message"]["due_at"] == due_at


FLYING, WAITING = 8, 4
MANY = st.lists(
    st.tuples(
        st.sampled_from(
            [Action.CONFIRM, Action.RELEASE, Action.EXTEND, Action.WITHHOLD, Action.BURY, "held", "discard"]
        ),
        st.lists(st.integers(0, FLYING + WAITING + 1), min_size=1, max_size=9),
        st.sampled_from([None, 0, 1, 2]),
        st.sampled_from([None, 5]),
    ),
    min_size=1,
    max_size=6,
)


@given(MANY, st.integers(1, 4))
def test_what_is_done_in_pieces_is_the_same_and_so_is_the_answer(steps: list[tuple[Any, ...]], piece: int) -> None:
    shards = [Shard(), in_pieces(piece)]
    ids: list[int] = []
    for shard in shards:
        shard.ask(Action.CONFIGURE, queue="a", dead_letter="dead")
        one = {"data": "x", "retry": 30, "ttl": 100}
        ids = shard.ask(Action.PRODUCE, queue="a", messages=[one] * (FLYING - 2))["msg_ids"]
        ids += shard.ask(Action.PRODUCE, queue="b", messages=[one] * 2)["msg_ids"]
        shard.ask(Action.CONSUME, queue="a", count=FLYING - 2)
        shard.ask(Action.CONSUME, queue="b", count=2)
        ids += shard.ask(Action.PRODUCE, queue="b", messages=[one, one, one, {**one, "delay": 9}])["msg_ids"]
    for what, places, delivery, delay in steps:
        named = list(dict.fromkeys(places))
        fields: dict[str, Any] = {"msg_ids": [(*ids, 7, 8)[place] for place in named]}
        if delivery is not None and what != Action.WITHHOLD:
            fields["delivery"] = [delivery] * len(named)
        if what in (Action.RELEASE, Action.WITHHOLD):
            fields["delay"] = delay
        if what == Action.EXTEND:
            fields["retry"] = 50
        action = Action.CONFIRM if what in ("held", "discard") else what
        if what in ("held", "discard"):
            fields[what] = True
        whole, cut = [shard.ask(action, **fields) for shard in shards]
        assert whole == cut
        assert facts(shards[0]) == facts(shards[1])
    assert {m.msg_id for m in shards[1].replayed().messages.values()} == {one[0] for one in facts(shards[1])}


def facts(shard: Shard) -> list[tuple[Any, ...]]:
    """Each live message, but for the numbers of its records."""
    live = shard.state.messages.values()
    return [(m.msg_id, m.queue, m.place, m.due_at - shard.now, m.deliveries, m.marks) for m in live]


def test_each_piece_is_a_record_and_one_answer_counts_them() -> None:
    shard = in_pieces()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(5)])["msg_ids"]
    shard.commits = False
    order = shard.send(Action.CONFIRM, msg_ids=ids)
    assert [len(one.msg_ids) for one in shard.broker.ledger.records if isinstance(one, Confirm)] == [2, 2, 1]
    assert order not in shard.replies
    shard.commit()
    assert shard.replies[order]["confirmed"] == 5


def test_who_is_not_late_does_all_of_it_at_once() -> None:
    shard = Shard(settle_piece=2)
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(5)])["msg_ids"]
    shard.execute([shard.call(Action.CONFIRM, msg_ids=ids)])
    assert not shard.state.messages


def open_calls(shard: Shard, logged: int) -> tuple[list[int], list[int]]:
    """The orders of the calls that the log may hold something of, and of those that it certainly does not."""
    uncertain, undone = shard.broker.take_open(logged)
    assert not shard.broker.has_more
    assert not shard.broker.jobs.strangers.jobs
    return sorted(call.order for call in uncertain), sorted(call.order for call in undone)


def cut_calls() -> tuple[Shard, list[int]]:
    """Give the orders of calls about the messages of records 1 to 19, and none is committed: a confirm that is
    answered, in records 20 to 22, a release whose first piece is record 23, one behind it, a stranger's confirm whose
    first piece is record 24, and a small one, record 25."""
    shard = in_pieces()
    one = {"data": 1, "retry": 60}
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[one] * 4 + [{**one, "delay": 9}] * 15)["msg_ids"]
    shard.commits = False
    confirm = shard.call(Action.CONFIRM, msg_id=ids[0], msg_ids=ids[1:5])
    release, later = [shard.call(Action.RELEASE, msg_ids=ids[at : at + 3]) for at in (5, 8)]
    strange, small = shard.call(Action.CONFIRM, msg_ids=ids[11:14]), shard.call(Action.CONFIRM, msg_ids=ids[14:15])
    strange.principal = Principal(ANONYMOUS, ITSELF.rights)
    shard.execute([confirm])
    shard.broker.go_on(shard.now)
    shard.broker.go_on(shard.now)
    shard.execute([release, later, strange, small])
    assert shard.state.trans_id == 19 + 6
    return shard, [call.order for call in (confirm, release, later, strange, small)]


def test_the_log_may_hold_something_of_a_call_whose_first_piece_has_left_for_it() -> None:
    for logged, begun in ((19, 0), (20, 1), (22, 1), (23, 2), (24, 3), (25, 4)):
        shard, (confirm, release, later, strange, small) = cut_calls()
        order = [confirm, release, strange, small]
        assert open_calls(shard, logged) == (sorted(order[:begun]), sorted([*order[begun:], later])), logged


def test_the_log_may_hold_one_queue_of_a_small_call_and_not_the_other() -> None:
    for logged, is_begun in ((4, False), (5, True), (6, True)):
        shard = Shard()
        ids = shard.ask(Action.PRODUCE, queue="a", messages=[{"data": 1}] * 2)["msg_ids"]
        ids += shard.ask(Action.PRODUCE, queue="b", messages=[{"data": 1}] * 2)["msg_ids"]
        shard.commits = False
        order = shard.send(Action.CONFIRM, msg_ids=ids)
        assert shard.state.trans_id == 6
        assert open_calls(shard, logged) == (([order], []) if is_begun else ([], [order]))


def test_the_log_may_hold_one_queue_of_a_move_by_count_and_not_the_other() -> None:
    shard = Shard()
    for queue in ("a", "b"):
        shard.ask(Action.CONFIGURE, queue=queue, dead_letter="dead", max_deliveries=1)
        shard.ask(Action.PRODUCE, queue=queue, data=1, retry=60)
        shard.ask(Action.BURY, msg_id=shard.ask(Action.CONSUME, queue=queue)["msg_id"])
    shard.commits = False
    before = shard.state.trans_id
    order = shard.send(Action.MOVE, queue="dead", count=2)
    assert shard.state.trans_id == before + 2
    assert open_calls(shard, before + 1) == ([order], [])


def test_what_is_committed_of_a_call_that_was_cut_is_forgotten() -> None:
    shard, _ = cut_calls()
    answered = shard.broker.jobs._answered
    assert [first for _, first, _ in answered] == [20]
    shard.commit()
    assert not answered


def test_large_calls_of_several_clients_take_turns() -> None:
    shard = in_pieces()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(12)])["msg_ids"]
    calls = [shard.call(Action.CONFIRM, Shard(), msg_ids=ids[at : at + 4]) for at in (0, 4, 8)]
    shard.execute(calls)
    assert [msg_id in shard.state.messages for msg_id in ids] == [False] * 2 + [True] * 10, "a turn has time for one"
    for _ in range(3):
        shard.broker.go_on(shard.now)
    assert [msg_id in shard.state.messages for msg_id in ids] == [False] * 6 + [True] * 2 + [False] * 2 + [True] * 2
    shard.settle()
    assert [shard.replies[call.order]["confirmed"] for call in calls] == [4, 4, 4]


def test_large_calls_of_one_client_are_done_in_their_order() -> None:
    """One that was begun later was done first, with messages that the one before it was about to confirm."""
    shard = in_pieces()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n, "retry": 60} for n in range(6)])["msg_ids"]
    confirm, withhold = shard.call(Action.CONFIRM, msg_ids=ids), shard.call(Action.WITHHOLD, msg_ids=ids)
    shard.execute([confirm, withhold])
    shard.settle()
    assert [shard.replies[call.order].get(name) for call, name in ((confirm, "confirmed"), (withhold, "withheld"))] == [
        6,
        0,
    ]


def test_what_stands_behind_another_is_done_for_a_client_that_has_ended_its_side() -> None:
    """It may read on, and to stand in line is not to be late: see docs/guarantees.md."""
    shard, client = in_pieces(), Shard()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(12)])["msg_ids"]
    calls = [shard.call(Action.CONFIRM, client, msg_ids=ids[:6])]
    calls += [shard.call(Action.MOVE, client, queue="q", to="other", create=True, msg_ids=ids[6:])]
    shard.execute(calls)
    client.has_left = True
    shard.settle()
    assert [shard.replies[call.order]["code"] for call in calls] == [0, 0]
    assert shard.state.queues["other"].size == 6


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_stands_behind_another_is_judged_again_in_its_turn(is_gone: bool) -> None:
    shard, client = in_pieces(), Shard()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(12)])["msg_ids"]
    first = shard.call(Action.CONFIRM, client, msg_ids=ids[:6])
    behind = shard.call(Action.MOVE, client, queue="q", to="other", create=True, msg_ids=ids[6:])
    shard.execute([first, behind])
    if is_gone:
        client.is_gone = True
    else:
        shard.broker.jobs.rejudge(client, Principal("none", Rights({})))
    shard.settle()
    assert shard.replies[behind.order]["error"] == ("given_up" if is_gone else "not_allowed")
    assert "other" not in shard.state.queues


def test_an_id_that_stands_there_twice_is_done_once_also_in_another_piece() -> None:
    shard = in_pieces()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n, "retry": 60} for n in range(4)])["msg_ids"]
    shard.ask(Action.CONSUME, queue="q", count=4)
    reply = shard.ask(Action.RELEASE, msg_id=ids[0], msg_ids=[*ids, *ids])
    assert reply["released"] == 4
    shard.ask(Action.CONSUME, queue="q", count=4)
    assert shard.ask(Action.CONFIRM, msg_ids=[*ids, *ids], delivery=[2] * 4 + [1] * 4)["confirmed"] == 4


def test_a_move_in_pieces_counts_all_and_stops_where_there_are_enough() -> None:
    for shard in (Shard(), in_pieces()):
        ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(9)])["msg_ids"]
        shard.ask(Action.CONFIGURE, queue="small", max_size=3)
        reply = shard.ask(Action.MOVE, queue="q", to="small", msg_ids=[*ids[:5], 7])
        assert (reply["moved"], reply["stayed"]) == (3, 2)
        assert reply["reason"] == f"message {ids[3]}: 'small' is full"
        reply = shard.ask(Action.MOVE, queue="q", to="new", create=True, msg_ids=ids, count=5)
        assert (reply["moved"], reply["stayed"]) == (5, 0)
        assert shard.state.queues["new"].size == 5


def test_who_is_refused_is_told_what_stood_there_when_it_was_looked_at() -> None:
    shard = in_pieces()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(3)])["msg_ids"]
    held = shard.call(Action.CONFIRM, msg_ids=ids, held=True)
    shard.execute([held, shard.call(Action.CONFIRM, msg_id=ids[0])])
    shard.settle()
    reply = shard.replies[held.order]
    assert (reply["error"], reply["msg_id"], reply["state"]) == ("not_in_flight", ids[0], "ready")


def test_what_is_under_way_goes_on_by_what_its_client_may_do_now() -> None:
    shard = in_pieces()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(12)])["msg_ids"]
    mine, others = shard.call(Action.CONFIRM, msg_ids=ids[:6]), shard.call(Action.CONFIRM, Shard(), msg_ids=ids[6:])
    shard.execute([mine, others])
    shard.broker.jobs.rejudge(shard, Principal("none", Rights({})))
    shard.settle()
    assert [shard.replies[call.order]["confirmed"] for call in (mine, others)] == [2, 6]
    assert [*shard.state.messages] == ids[2:6], "a piece of it, and no more"


@given(
    st.lists(st.tuples(st.sampled_from(["ready", "flying", "delayed", "k"]), st.integers(-1, 1)), max_size=14),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([0, 3]),
)
def test_a_move_of_the_first_is_the_same_in_pieces(
    made: list[tuple[str, int]], count: int, piece: int, max_size: int
) -> None:
    shards = [Shard(), in_pieces(piece)]
    for shard in shards:
        shard.ask(Action.CONFIGURE, queue="to", max_size=max_size)
        shard.ask(Action.PRODUCE, queue="to", data="x", key="k")
        flying = [priority for kind, priority in made if kind == "flying"]
        for priority in flying:
            shard.ask(Action.PRODUCE, queue="from", data="x", priority=priority, retry=60)
        shard.ask(Action.CONSUME, queue="from", count=len(flying) or 1)
        for kind, priority in made:
            if kind != "flying":
                key, delay = ("k" if kind == "k" else None), (9 if kind == "delayed" else 0)
                shard.ask(Action.PRODUCE, queue="from", data="x", priority=priority, key=key, delay=delay)
    after: str | None = None
    for _ in range(20):
        whole, cut = [
            shard.ask(Action.MOVE, queue="from", to="to", count=count, **({"after": after} if after else {}))
            for shard in shards
        ]
        assert whole == cut
        assert facts(shards[0]) == facts(shards[1])
        after = whole.get("next")
        if after is None:
            return
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_queue_that_loses_its_dead_letters_between_two_pieces_keeps_the_rest(pieces: int) -> None:
    shard = in_pieces()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n, "retry": 60} for n in range(5)])["msg_ids"]
    shard.ask(Action.CONSUME, queue="q", count=5)
    bury, later = [shard.call(Action.BURY, msg_ids=[7, 8, *ids]) for _ in range(2)]
    shard.execute([bury])
    if pieces == 2:
        shard.broker.go_on(shard.now)
    shard.execute([later, shard.call(Action.CONFIGURE, queue="q", dead_letter=None)])
    shard.settle()
    buried = 2 if pieces == 2 else 0
    assert shard.replies[bury.order].get("buried", 0) == buried
    assert [shard.state.messages[msg_id].queue for msg_id in ids] == ["dead"] * buried + ["q"] * (5 - buried)
    refused = [shard.replies[one.order].get("reason") for one in (bury, later)]
    assert refused == [None if buried else "queue 'q' has no dead letter queue", "queue 'q' has no dead letter queue"]


def test_a_message_whose_time_is_over_between_two_pieces_is_not_in_hand_any_more() -> None:
    shard = in_pieces()
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n, "retry": 5} for n in range(3)])["msg_ids"]
    shard.ask(Action.CONSUME, queue="q", count=3)
    release = shard.call(Action.RELEASE, msg_ids=ids, delivery=[1, 1, 1])
    shard.execute([release])
    shard.now += 6
    shard.broker.pass_time(shard.now)
    shard.settle()
    assert shard.replies[release.order]["released"] == 2


def test_what_strangers_ask_for_goes_on_only_when_it_is_their_turn() -> None:
    shard = Shard(settle_piece=2)
    ids = shard.ask(Action.PRODUCE, queue="q", messages=[{"data": n} for n in range(5)])["msg_ids"]
    call = shard.call(Action.CONFIRM, msg_ids=ids)
    call.principal = Principal(ANONYMOUS, ITSELF.rights)
    shard.execute([call])
    shard.settle()
    assert not shard.broker.has_more
    left = [len(shard.state.messages)]
    while shard.broker.jobs.strangers.jobs:
        shard.broker.go_on_stranger()
        left.append(len(shard.state.messages))
    assert left == [3, 1, 0]
    shard.settle()
    assert shard.replies[call.order]["confirmed"] == 5
