"""A call that raises before a record is made ends itself, and nothing else; behind a record it ends the worker.

Each action is made to raise at every line that it runs, one after the other; compiled code can't be, so these tests are
for the interpreted one.
"""

import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import actors.shard.broker
from actors.messages.call import Call
from actors.shard.failed_calls import FailedCalls, Failure
from quorate.protocol import Action
from tests.actors.queues.shard import Shard, delivery_of

IS_COMPILED = not str(actors.shard.broker.__file__).endswith(".py")
interpreted = pytest.mark.skipif(IS_COMPILED, reason="lines of compiled code can't be made to raise")

ROOMS = ("/actors/", "/storage/")
STEPS_MAX = 3_000

REQUESTS: list[dict[str, Any]] = [
    {"action": Action.PRODUCE, "queue": "a", "data": 1, "key": "new"},
    {"action": Action.PRODUCE, "queue": "fresh", "data": 1, "headers": {"a": "b"}},
    {"action": Action.PRODUCE, "queue": "a", "messages": [{"data": 1}, {"data": 2}]},
    {"action": Action.CONSUME, "queue": "a"},
    {"action": Action.CONSUME, "queue": "empty", "wait": 5},
    {"action": Action.CONSUME, "queues": ["empty", "also"], "wait": 5, "count": 3},
    {"action": Action.CONSUME, "queues": ["a", "b"], "count": 3, "in_turn": True},
    {"action": Action.WATCH, "queue": "a"},
    {"action": Action.WATCH, "queue": "empty", "wait": 5},
    {"action": Action.CONFIRM, "msg_id": 2048},
    {"action": Action.CONFIRM, "msg_ids": [2048, 3072], "delivery": [1, 1]},
    {"action": Action.CONFIRM, "key": "k", "scope": "all", "held": True},
    {"action": Action.RELEASE, "msg_id": 2048, "delay": 3},
    {"action": Action.EXTEND, "msg_id": 2048, "retry": 30},
    {"action": Action.BURY, "msg_id": 2048, "reason": "because"},
    {"action": Action.WITHHOLD, "msg_id": 3072, "delay": 4},
    {"action": Action.MOVE, "queue": "a", "to": "b", "count": 5},
    {"action": Action.MOVE, "queue": "a", "to": "new", "msg_ids": [3072], "create": True},
    {"action": Action.CONFIGURE, "queue": "a", "max_size": 5},
    {"action": Action.CLEAR, "queue": "a"},
    {"action": Action.REMOVE, "queue": "b"},
    {"action": Action.LIST, "pattern": "a*"},
    {"action": Action.LIST, "full": True, "sums": True, "sort": "ready"},
    {"action": Action.MONITOR, "queue": "a", "full": True},
    {"action": Action.PEEK, "queue": "a", "count": 5},
    {"action": Action.PEEK, "queue": "a", "state": "ready", "count": 1},
    {"action": Action.SHOW, "msg_id": 2048},
    {"action": Action.FIND, "key": "k", "scope": "all"},
    {"action": Action.SCAN, "shard": 0},
    {"action": Action.SCAN, "shard": 0, "full": True, "state": "ready"},
    {"action": Action.SCAN, "shard": 0, "full": True, "state": "delayed", "sort": "due"},
    {"action": Action.LEADER},
    {"action": Action.POSITION, "reader": "r", "trans_id": 1},
    {"action": Action.CANCEL, "seq": 77},
    {"action": Action.NODE_METRICS},
    {"action": Action.NODE_STATUS},
]


class PlantedError(Exception):
    """Raised by a line that the test chose."""


def prepared() -> Shard:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="a", dead_letter="a.dead")
    more: list[dict[str, Any]] = [{"key": "k", "scope": "all"}, {"retry": 60}, {"delay": 60, "queue": "b"}]
    for data, fields in enumerate(more):
        shard.ask(Action.PRODUCE, **{"queue": "a", "data": data, "retry": 60, **fields})
    shard.ask(Action.CONSUME, queue="a")
    shard.send(Action.CONSUME, queue="c", wait=20, seq=77)
    return shard


def seen(shard: Shard) -> dict[str, Any]:
    """What a client could notice of an owner, but for when a queue was last used."""
    ledger, lines = shard.broker.ledger, delivery_of(shard.broker).lines
    state = shard.state
    return {
        "trans_id": state.trans_id,
        "queues": {
            name: (queue.settings(), queue.size, queue.max_id, list(queue.ready), list(queue.waiting), queue.unplaced)
            for name, queue in state.queues.items()
        },
        "messages": {m.msg_id: (m.place, m.due_at, m.deliveries, m.key) for m in state.messages.values()},
        "kept": list(state.kept),
        "keys": sorted(state.keys.keys()) if hasattr(state.keys, "keys") else [key for key, _ in state.keys.items()],
        "records": list(ledger.records),
        "parked": ledger.parked_count,
        "counts": ledger.counting.all.produced,
        "waiters": [(w.call.order, w.queues, w.deadline) for w in lines.all()],
        "lines": {name: lines.length(name) for name in ("a", "b", "c", "empty", "also")},
        "named": (lines.named, lines.named_by_strangers),
        "deadline": lines.next_deadline,
        "asked": len(shard.broker.context.asked),
        "jobs": (len(shard.broker.jobs.known.jobs), len(shard.broker.jobs.strangers.jobs)),
    }


def raising_at(step: int) -> tuple[Callable[..., Any], list[int]]:
    """Make a tracer that raises at the `step`th line that the rooms run; and how many it has counted."""
    count = [0]

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            count[0] += 1
            if count[0] == step:
                raise PlantedError(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return local

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        ours = any(room in name for room in ROOMS) and "/tests/" not in name
        return local if ours and frame.f_code.co_name not in ("_end_failed", "_do", "execute") else None

    return tracer, count


@interpreted
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda fields: f"{fields['action']}-{len(fields)}")
def test_an_action_that_raises_at_any_step_changes_nothing_or_ends_the_worker(request_: dict[str, Any]) -> None:
    answered = ended = 0
    fields = {name: value for name, value in request_.items() if name != "action"}
    for step in range(1, STEPS_MAX):
        shard = prepared()
        before = seen(shard)
        call = shard.call(request_["action"], **fields)
        shard.broker.begin(shard.now)
        tracer, count = raising_at(step)
        sys.settrace(tracer)
        try:
            shard.broker.execute(call)
        except PlantedError:
            ended += 1
            begun = shard.broker.ledger.has_begun or shard.state.trans_id != before["trans_id"]
            assert begun, "only what a record was begun for ends the worker"
        finally:
            sys.settrace(None)
        if count[0] < step:
            break
        if shard.broker.failures:
            answered += 1
            failures = list(shard.broker.failures)
            shard.broker.failures.clear()
            answers = [reply for one, reply in shard.broker.ledger.answers if one is call]
            after = seen(shard)
            has_answer = len(answers) == 1 or shard.broker.ledger.has_answer(call)
            if not answers or answers[0].error != "internal_error":  # it was answered before it raised
                before["parked"] = after["parked"]
                before["waiters"], before["lines"] = after["waiters"], after["lines"]
                before["named"], before["deadline"] = after["named"], after["deadline"]
            assert has_answer, failures
            assert after == before, failures
            shard.state.check()
            shard.broker.ledger.take_answers()
            assert shard.ask(Action.MONITOR, queue="a")["size"] == 2, "the owner serves on"
    assert answered, "no step raised"
    assert step < STEPS_MAX - 1


def test_one_traceback_a_minute_is_logged_with_names_of_fields_and_without_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shard = Shard()
    call: Call = shard.call(Action.CONFIRM, msg_id=4096, queue="secret")
    failed = FailedCalls()
    with caplog.at_level(logging.ERROR, "quorate.queues"):
        for now in (0.5, 1.0, 60.0, 60.6, 61.0):
            failed.note(now, [Failure(call, ValueError("x"))])
    assert failed.count == 5
    assert len(caplog.records) == 2
    text = caplog.text
    for said in ("action 3 (confirm)", "queue, msg_id", "2 more"):
        assert said in text
    for value in ("secret", "4096"):
        assert value not in text
