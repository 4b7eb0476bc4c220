"""What a client was told is there before it is committed, the same client sees with its next look."""

from typing import Any

import pytest

from actors.shard.own_writes import WAIT_S
from quorate.protocol import Action
from tests.actors.queues.shard import Shard

LOOKS: list[tuple[int, dict[str, Any]]] = [
    (Action.MONITOR, {"queue": "q"}),
    (Action.PEEK, {"queue": "q"}),
    (Action.SHOW, {"queue": "q", "key": "k"}),
    (Action.LIST, {"pattern": "q"}),
    (Action.SCAN, {"shard": 0, "full": True, "state": "ready"}),
    (Action.CONSUME, {"queue": "q"}),
    (Action.CONSUME, {"queue": "q", "count": 5}),
]


def of_three(**fields: Any) -> tuple[Shard, int]:
    """A leader of three nodes that has answered a produce by its own disk alone."""
    shard = Shard()
    shard.broker.context.view.voters = shard.broker.context.view.nodes = 3
    shard.broker.ledger.replicated.majority = 2
    shard.ask(Action.CONFIGURE, queue="q", max_size=100)
    shard.commits = False
    asked = shard.send(Action.PRODUCE, **{"queue": "q", "key": "k", "retry": 60, "replicate": 1, **fields})
    shard.broker.ledger.replicated.durable(shard.state.trans_id, (shard.state.trans_id,))
    shard.settle()
    reply = shard.replies[asked]
    return shard, (reply.get("msg_ids") or [reply["msg_id"]])[0]


def sees(reply: dict[str, Any]) -> bool:
    rows = reply.get("queue_list") or reply.get("messages") or []
    if reply["action"] == Action.LIST:
        return bool(rows[0]["ready"] == 1)
    return reply.get("ready") == 1 or bool(rows) or "msg_id" in reply


@pytest.mark.parametrize("produced", [{"data": 1}, {"messages": [{"data": 1}]}])
@pytest.mark.parametrize(("action", "fields"), LOOKS)
def test_the_next_look_of_who_produced_waits_for_the_commit_and_sees_it(
    action: int, fields: dict[str, Any], produced: dict[str, Any]
) -> None:
    shard, _ = of_three(**produced)
    asked = shard.send(action, **fields)
    assert asked not in shard.replies
    shard.commits = True
    shard.settle()
    assert sees(shard.replies[asked]), shard.replies[asked]


def test_others_do_not_wait_and_do_not_see_it() -> None:
    shard, _ = of_three(data=1)
    other = Shard()
    looked = shard.send(Action.CONSUME, other, queue="q")
    assert "msg_id" not in shard.replies[looked]
    assert shard.send(Action.CONSUME, queue="q") not in shard.replies


def test_without_a_commit_a_look_is_done_after_a_second_and_sees_nothing() -> None:
    shard, _ = of_three(data=1)
    asked = shard.send(Action.CONSUME, queue="q")
    shard.pass_time(WAIT_S - 0.01)
    assert asked not in shard.replies
    shard.pass_time(0.02)
    assert shard.replies[asked]["code"] == 0
    assert "msg_id" not in shard.replies[asked]


def test_a_lost_lead_gives_the_looks_back_undone() -> None:
    shard, _ = of_three(data=1)
    call = shard.call(Action.CONSUME, queue="q")
    shard.execute([call])
    uncertain, undone = shard.broker.take_open(shard.state.trans_id)
    assert (uncertain, undone) == ([], [call])
    assert not shard.broker.context.own_writes.has_any


def test_nothing_is_remembered_of_what_is_committed() -> None:
    shard, _ = of_three(data=1)
    assert shard.broker.context.own_writes.has_any
    shard.commits = True
    shard.settle()
    assert not shard.broker.context.own_writes.has_any


def test_who_may_not_look_any_more_is_told_so() -> None:
    shard, _ = of_three(data=1)
    call = shard.call(Action.MONITOR, queue="q")
    shard.execute([call])
    assert shard.broker.context.own_writes.take_of(shard) == [call]
    assert shard.broker.context.own_writes.take_of(shard) == []


@pytest.mark.parametrize("action", [Action.LIST, Action.SCAN, Action.CONSUME])
@pytest.mark.parametrize("turns", [0, 1, 2, 99])
def test_reads_that_are_due_together_are_done_in_several_turns_and_given_back_once(action: Action, turns: int) -> None:
    """A hundred and fifty lists of a thousand queues, all in one turn, cost a leader its place."""
    shard, _ = of_three(data=1)
    shard.broker.jobs.set_late(lambda: True)
    calls = [shard.call(action, queue="q") for _ in range(4)]
    shard.execute(calls)
    shard.broker.commit(shard.now, shard.state.trans_id)
    for _ in range(turns):
        shard.broker.go_on(shard.now)
    uncertain, undone = shard.broker.take_open(0)
    answered = [call for call, _ in shard.broker.ledger.take_answers()]
    open_ones = [call.order for call in [*answered, *uncertain, *undone] if call in calls]
    assert sorted(open_ones) == [call.order for call in calls], "each once"
    assert bool(undone) == (turns < 4)
