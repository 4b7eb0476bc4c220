"""Queues that nobody uses go, with what is in them: never too early, and not much too late."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.queues.idle_queues import IdleQueues
from quorate.protocol import Action
from storage.queue_state import QueueState
from storage.records import Clear, Remove
from tests.actors.queues.shard import Shard, broker_of

AFTER_S = 10.0

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("consume"), st.sampled_from([0.0, 3.0, 25.0])),
        st.tuples(st.just("watch"), st.sampled_from([0.0, 3.0])),
        st.tuples(st.just("produce"), st.sampled_from([0, 4, 30])),
        st.tuples(st.just("configure"), st.just(0)),
        st.tuples(st.just("extend"), st.just(15)),
        st.tuples(st.just("time"), st.sampled_from([0.5, 4.0, 9.0, 11.0])),
    ),
    max_size=25,
)


FOUND: list[tuple[str, Any]] = [("produce", 4), ("consume", 0.0), ("consume", 25.0), ("time", 4.0), ("time", 11.0)]
"""Who waits is served by a message that comes again, and waits no longer."""


@given(STEPS)
@example(FOUND)
def test_a_queue_goes_when_nobody_has_used_it_for_so_long(steps: list[tuple[str, Any]]) -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", expires_after=AFTER_S)
    used_at = shard.now
    waits: dict[int, float] = {}
    held: list[int] = []
    for name, value in steps:
        if "q" not in shard.state.queues:
            return
        if name == "consume":
            used_at = shard.now
            order = shard.send(Action.CONSUME, queue="q", wait=value)
            waits[order] = shard.now + value
            reply = shard.replies.get(order)
            if reply is not None and "msg_id" in reply:
                held.append(reply["msg_id"])
        elif name == "watch":
            used_at = shard.now
            waits[shard.send(Action.WATCH, queue="q", wait=value)] = shard.now + value
        elif name == "produce":
            shard.ask(Action.PRODUCE, queue="q", data=1, retry=value, ttl=1000)
        elif name == "configure":
            used_at = shard.now
            shard.ask(Action.CONFIGURE, queue="q")
        elif name == "extend" and held:
            shard.ask(Action.EXTEND, msg_ids=held, retry=value)
        elif name == "time":
            before = shard.now
            until = before + value
            while shard.now < until:
                flying = shard.state.queues["q"].in_hand
                flies_until = max((at for at, _ in flying), default=0.0)
                waits_until = max((at for order, at in waits.items() if order not in shard.replies), default=0.0)
                shard.pass_time(0.5)
                if "q" not in shard.state.queues:
                    assert shard.now >= used_at + AFTER_S - 1e-6
                    assert shard.now >= waits_until
                    assert shard.now >= flies_until
                    assert not shard.state.messages
                    return
    shard.pass_time(1000)
    assert "q" not in shard.state.queues
    assert isinstance(shard.log[-1], Remove)


def test_it_goes_with_what_is_in_it_by_records_and_others_stay() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", expires_after=60)
    shard.ask(Action.CONFIGURE, queue="kept", expires_after=60)
    shard.ask(Action.CONFIGURE, queue="kept", expires_after=0)
    for _ in range(3):
        shard.ask(Action.PRODUCE, queue="q", messages=[{"data": 1}] * 1000)
    shard.ask(Action.PRODUCE, queue="kept", data=1)
    shard.pass_time(59)
    assert shard.ask(Action.MONITOR, queue="q")["size"] == 3000, (
        "who only produces keeps no queue, but nothing goes early"
    )
    shard.pass_time(2)
    assert shard.ask(Action.MONITOR, queue="q")["exists"] is False
    assert [type(record) for record in shard.log[-3:]] == [Clear, Clear, Remove]
    assert shard.ask(Action.MONITOR, queue="kept")["settings"]["expires_after"] == 0
    assert "q" not in shard.replayed().queues
    shard.state.check()


def test_a_new_leader_counts_from_when_it_looks() -> None:
    """The state says nothing of when a queue was used; a node that was down for a day must not drop it at once."""
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", expires_after=60)
    shard.now += 86_400
    shard.broker = broker_of(shard.state)
    shard.pass_time(59)
    assert "q" in shard.state.queues
    shard.pass_time(2)
    assert "q" not in shard.state.queues


def test_one_that_waits_keeps_its_queue_until_it_has_waited_and_then_as_long_as_that() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", expires_after=10)
    shard.send(Action.CONSUME, queue="q", wait=35)
    shard.pass_time(44)
    assert "q" in shard.state.queues
    shard.pass_time(11)
    assert "q" not in shard.state.queues


def test_what_is_in_flight_keeps_its_queue() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", expires_after=10)
    msg_id = shard.ask(Action.PRODUCE, queue="q", data=1, retry=100)["msg_id"]
    shard.ask(Action.CONSUME, queue="q")
    shard.pass_time(95)
    assert shard.ask(Action.CONFIRM, msg_id=msg_id)["confirmed"] == 1
    shard.pass_time(21)
    assert "q" not in shard.state.queues


def test_where_memory_is_short_the_least_used_go_first_and_only_those_that_may() -> None:
    now = 1_000_000.0
    queues = {name: QueueState(name) for name in ("old", "busy", "used", "new", "mine")}
    idle = IdleQueues(queues, lambda name: name == "busy", now)
    idle.set_idle_s(100.0, now)
    for at, name in enumerate(["old", "busy", "used", "new"]):
        queues[name].life.is_transient = True
        idle.made(queues[name], now + at)
    queues["used"].life.used_at = now + 50
    gone = []
    while names := idle.short(now + 60, 2):
        gone += names
        for name in names:
            del queues[name]
    assert gone == ["old", "new", "used"]
    assert set(queues) == {"busy", "mine"}


@pytest.mark.parametrize("use", [{"action": 2, "queue": "q"}, {"action": 5, "queue": "q", "max_size": 500_000}])
def test_a_queue_that_is_used_while_it_goes_stays_with_what_is_left_of_it(use: dict[str, Any]) -> None:
    """It went with what a consumer held, and with settings that somebody was told of."""
    shard = Shard()
    shard.ask(5, queue="q", expires_after=5)
    for _ in range(5):
        shard.ask(1, queue="q", messages=[{"data": 1, "retry": 60}] * 1000)
    shard.broker.jobs.set_late(lambda: True)
    shard.now += 6
    shard.broker.pass_time(shard.now)
    shard.broker.go_on(shard.now)
    assert shard.state.queues["q"].size == 3000
    shard.commits = False
    shard.send(**use)
    shard.commits = True
    shard.settle()
    assert shard.state.queues["q"].size == 3000


def test_a_queue_that_is_configured_before_its_turn_to_go_comes_stays() -> None:
    shard = Shard()
    shard.ask(5, queue="q", expires_after=5)
    shard.ask(1, queue="q", data=1)
    shard.now += 6
    shard.broker.pass_time(shard.now)
    shard.send(5, queue="q", expires_after=0)
    assert shard.state.queues["q"].size == 1


def test_many_queues_that_go_at_the_same_moment_go_in_many_turns() -> None:
    """A hundred of three thousand messages each took half a second in one turn, and a leader its place."""
    shard = Shard()
    for name in range(10):
        shard.ask(5, queue=f"q{name}", expires_after=5)
        shard.ask(1, queue=f"q{name}", messages=[{"data": 1}] * 1000)
    shard.broker.jobs.set_late(lambda: True)
    shard.now += 6
    before = shard.state.trans_id
    shard.broker.pass_time(shard.now)
    assert shard.state.trans_id == before
    turns = 0
    while shard.broker.has_more:
        turns += 1
        shard.broker.go_on(shard.now)
    assert (turns, len(shard.state.queues)) == (10, 0)
