"""Transactions by hand: all of the operations, or nothing, whatever the operations are."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.protocol import Action
from storage.state import ShardState
from storage.undo import STEPS_MAX
from tests.actors.queues.shard import Shard, delivery_of
from tests.actors.streams.test_grouping import append, heartbeat, with_topic
from tests.examples import examples
from tests.storage.facts import facts
from tests.storage.topic_records import topic_facts

PRODUCE, CONFIRM, RELEASE, BURY = (int(one) for one in (Action.PRODUCE, Action.CONFIRM, Action.RELEASE, Action.BURY))
APPEND, COMMIT = int(Action.APPEND), int(Action.COMMIT)


def whole(shard: Shard, state: ShardState | None = None) -> tuple[Any, ...]:
    """All that a shard's state says, and where messages stand."""
    state = state or shard.state
    said = facts(state, shard.now)
    said["at"] = (state.trans_id, state.data_bytes)
    orders = [(name, list(queue.ready), list(queue.waiting)) for name, queue in state.queues.items()]
    return said, orders if state is shard.state else None, topic_facts(state)


def transact(shard: Shard, *operations: dict[str, Any]) -> dict[str, Any]:
    return shard.ask(Action.TRANSACTION, operations=list(operations))


def consumed(shard: Shard, queue: str = "q", **fields: Any) -> dict[str, Any]:
    """Produce a message, and take it."""
    shard.ask(Action.PRODUCE, queue=queue, data="job", retry=60, **fields)
    return shard.ask(Action.CONSUME, queue=queue)


def read(shard: Shard, partition: int = 0) -> list[Any]:
    reply = shard.ask(Action.READ, topic="t", partition=partition, offset=0)
    return [one["data"] for one in reply["messages"]]


def test_a_job_is_done_its_results_appended_and_a_position_committed_at_once() -> None:
    shard = with_topic(1)
    job = consumed(shard)
    reply = transact(
        shard,
        {"action": CONFIRM, "msg_id": job["msg_id"], "delivery": 1},
        {"action": APPEND, "topic": "t", "data": "a"},
        {"action": APPEND, "topic": "t", "messages": [{"data": "b"}, {"data": "c"}]},
        {"action": COMMIT, "topic": "t", "group": "g", "positions": {"0": 2}},
        {"action": PRODUCE, "queue": "next", "data": {"of": "job"}, "key": "k"},
    )
    assert reply["code"] == 0
    assert [one["action"] for one in reply["replies"]] == [CONFIRM, APPEND, APPEND, COMMIT, PRODUCE]
    assert reply["replies"][0]["confirmed"] == 1
    assert reply["replies"][2]["offsets"] == [1, 2]
    assert reply["replies"][3]["positions"] == {"0": 2}
    assert read(shard) == ["a", "b", "c"]
    assert shard.ask(Action.CONSUME, queue="next")["msg_id"] == reply["replies"][4]["msg_id"]
    assert whole(shard, shard.replayed())[::2] == whole(shard)[::2]


def test_all_of_it_is_one_entry_and_is_answered_when_that_is_committed() -> None:
    shard = with_topic(1)
    job = consumed(shard)
    shard.commits = False
    other = shard.send(Action.PRODUCE, queue="q", data="before")
    order = shard.send(
        Action.TRANSACTION,
        operations=[
            {"action": CONFIRM, "msg_id": job["msg_id"]},
            {"action": APPEND, "topic": "t", "messages": [{"data": 1}, {"data": 2}]},
        ],
    )
    assert not {other, order} & shard.replies.keys()
    assert shard.broker.ledger.together == [(1, 4)]
    assert not shard.broker.ledger.state.undo.is_on
    shard.commit()
    assert shard.replies[order]["code"] == 0


REFUSED = [
    ({"action": CONFIRM, "msg_id": 999_999}, "no_such_message"),
    ({"action": CONFIRM, "msg_ids": [5 << 13, 999_999]}, "no_such_message"),
    ({"action": APPEND, "topic": "none", "data": 1}, "no_such_topic"),
    ({"action": APPEND, "topic": "t", "data": 1, "expected": 7}, "offset_conflict"),
    ({"action": COMMIT, "topic": "t", "group": "g", "positions": {"5": 1}}, "wrong_partition"),
    ({"action": COMMIT, "topic": "t", "group": "g", "positions": {"0": 1}, "member": "m"}, "unknown_member"),
    ({"action": PRODUCE, "queue": "q"}, "field_error"),
    ({"action": PRODUCE, "queue": "full", "data": 1}, "queue_full"),
    ({"action": PRODUCE, "queue": "q", "data": 1, "key": "taken"}, "duplicate_key"),
    ({"action": BURY, "msg_id": 999_999}, "no_such_message"),
    ({"action": RELEASE}, "field_error"),
]
"""What can't be done in a shard that `with_refusals` made, and the word of the error."""


def with_refusals() -> tuple[Shard, dict[str, Any]]:
    """A shard with what is needed to refuse those, and a message that is in flight."""
    shard = with_topic(1)
    job = consumed(shard)
    shard.ask(Action.CONFIGURE, queue="full", max_size=1)
    shard.ask(Action.PRODUCE, queue="full", data=1)
    shard.ask(Action.PRODUCE, queue="q", data="old", key="taken", delay=100)
    return shard, job


@pytest.mark.parametrize(("refused", "error"), REFUSED)
def test_what_is_refused_leaves_nothing_that_is_to_be_undone(refused: dict[str, Any], error: str) -> None:
    """A leader keeps such steps until a record after them is committed: refusals alone made them more and more."""
    shard, _ = with_refusals()
    undo = shard.state.undo
    undo.turn(shard.state, is_on=True)
    shard.ask(Action.APPEND, topic="t", data="one")
    _, steps = undo.mark()
    assert steps, "what is done leaves some"
    for _ in range(3):
        shard.ask(**refused)
        assert transact(shard, refused)["error"] == error
    assert undo.mark() == (True, steps)


@pytest.mark.parametrize(("refused", "error"), REFUSED)
def test_one_that_can_not_be_done_undoes_all_of_it_and_is_named(refused: dict[str, Any], error: str) -> None:
    shard, job = with_refusals()
    before, records = whole(shard), len(shard.log)
    reply = transact(
        shard,
        {"action": CONFIRM, "msg_id": job["msg_id"]},
        {"action": APPEND, "topic": "t", "data": "a", "producer": "p", "number": 3},
        {"action": PRODUCE, "queue": "new", "data": "b"},
        {"action": COMMIT, "topic": "t", "group": "other", "positions": {"0": 1}},
        refused,
        {"action": PRODUCE, "queue": "never", "data": "c"},
    )
    assert (reply["code"], reply["error"], reply["index"]) == (-1, error, 4)
    assert reply["reason"].startswith("operations[4]: ")
    assert reply["refused"]["error"] == error
    assert whole(shard) == before
    assert len(shard.log) == records
    shard.state.check()
    assert read(shard) == []
    assert shard.ask(Action.CONFIRM, msg_id=job["msg_id"], held=True)["confirmed"] == 1
    assert append(shard, "a", producer="p", number=1)["offsets"] == [0], "the number was not used"


def test_a_message_in_other_hands_is_not_confirmed() -> None:
    shard = Shard()
    first = consumed(shard)
    shard.pass_time(61)
    again = shard.ask(Action.CONSUME, queue="q")
    assert (again["msg_id"], again["deliveries"]) == (first["msg_id"], 2)
    reply = transact(shard, {"action": CONFIRM, "msg_id": first["msg_id"], "delivery": 1})
    assert (reply["error"], reply["index"]) == ("not_in_flight", 0)
    waiting = shard.ask(Action.PRODUCE, queue="q", data="never taken")
    two = transact(shard, {"action": CONFIRM, "msg_ids": [first["msg_id"], waiting["msg_id"]]})
    assert two["error"] == "not_in_flight"
    assert two["reason"] == f"operations[0]: message {waiting['msg_id']} is not in flight"
    assert transact(shard, {"action": CONFIRM, "msg_id": first["msg_id"], "delivery": 2})["code"] == 0
    assert transact(shard, {"action": CONFIRM, "msg_id": first["msg_id"], "delivery": 2})["error"] == "no_such_message"


def test_what_an_operation_finds_is_what_earlier_ones_made() -> None:
    shard = with_topic(1)
    job = consumed(shard)
    reply = transact(
        shard,
        {"action": CONFIRM, "msg_id": job["msg_id"]},
        {"action": CONFIRM, "msg_id": job["msg_id"]},
    )
    assert (reply["error"], reply["index"]) == ("no_such_message", 1)
    reply = transact(
        shard,
        {"action": APPEND, "topic": "t", "data": 1, "expected": 0},
        {"action": APPEND, "topic": "t", "data": 2, "expected": 1},
        {"action": COMMIT, "topic": "t", "group": "g", "positions": {"0": 2}},
    )
    assert reply["code"] == 0


def test_one_that_comes_again_is_known_by_its_numbers() -> None:
    shard = with_topic(1)
    job = consumed(shard)
    operations: list[dict[str, Any]] = [
        {"action": CONFIRM, "msg_id": job["msg_id"], "delivery": 1},
        {"action": APPEND, "topic": "t", "data": "a", "producer": "p", "number": 1},
    ]
    assert "duplicate" not in transact(shard, *operations)
    again = transact(shard, *operations)
    assert (again["code"], again["duplicate"]) == (0, True)
    assert again["replies"][0] is None
    assert again["replies"][1]["offset"] == 0
    assert read(shard) == ["a"]


def test_waiters_get_what_a_transaction_released_and_nothing_of_one_that_was_refused() -> None:
    shard = Shard()
    job = consumed(shard)
    waits = shard.send(Action.CONSUME, queue="q", wait=100)
    released = {"action": RELEASE, "msg_id": job["msg_id"]}
    refused = transact(shard, released, {"action": CONFIRM, "msg_id": 999_999})
    assert refused["index"] == 1
    assert waits not in shard.replies
    assert transact(shard, released)["replies"][0]["released"] == 1
    assert shard.replies[waits]["msg_id"] == job["msg_id"]


def test_a_message_that_is_not_committed_is_shown_to_nobody_when_its_replacement_is_taken_back() -> None:
    shard = Shard()
    shard.commits = False
    first = shard.send(Action.PRODUCE, queue="q", data="first", key="k")
    refused = shard.send(
        Action.TRANSACTION,
        operations=[
            {"action": PRODUCE, "queue": "q", "data": "second", "key": "k", "on_duplicate": "replace"},
            {"action": CONFIRM, "msg_id": 999_999},
        ],
    )
    taken = shard.send(Action.CONSUME, queue="q")
    shard.state.check()
    shard.commit()
    shard.commits = True
    assert shard.replies[refused]["index"] == 1
    assert "msg_id" not in shard.replies[taken]
    assert shard.ask(Action.CONSUME, queue="q")["msg_id"] == shard.replies[first]["msg_id"]


def test_a_thousand_operations_and_names_are_allowed_and_no_more() -> None:
    shard = Shard()
    one = {"action": PRODUCE, "queue": "q", "data": 1, "retry": 60}
    assert len(transact(shard, *[one] * 1000)["replies"]) == 1000
    ids = [shard.ask(Action.CONSUME, queue="q", count=500)["messages"] for _ in range(2)]
    listed = [message["msg_id"] for some in ids for message in some]
    reply = transact(shard, {"action": CONFIRM, "msg_ids": listed}, {"action": CONFIRM, "msg_id": 999_999})
    assert reply["index"] == 1
    assert shard.state.queues["q"].in_flight == 1000
    assert transact(shard, {"action": CONFIRM, "msg_ids": listed})["replies"][0]["confirmed"] == 1000
    assert STEPS_MAX > 3000


def test_no_room_is_said_where_it_is_missing() -> None:
    shard = Shard(queues_max=2)
    shard.ask(Action.PRODUCE, queue="a", data=1)
    new = [{"action": PRODUCE, "queue": name, "data": 1} for name in ("b", "b", "c")]
    refused = transact(shard, *new)
    assert (refused["error"], refused["index"]) == ("limit_reached", 2)
    assert transact(shard, *new[:2])["code"] == 0, "a queue that is new is one, however often it is named"
    small = Shard(memory_bytes_max=2000)
    refused = transact(small, *[{"action": PRODUCE, "queue": "q", "data": "x" * 500}] * 3)
    assert (refused["error"], refused["index"]) == ("limit_reached", 1)
    assert not small.state.queues


def test_where_memory_is_full_a_job_makes_room_for_what_comes_of_it() -> None:
    shard = Shard(memory_bytes_max=10_000)
    while shard.ask(Action.PRODUCE, queue="q", data="x" * 1000, retry=60)["code"] == 0:
        pass
    job = shard.ask(Action.CONSUME, queue="q")
    result = {"action": PRODUCE, "queue": "out", "data": "x" * 1000}
    assert transact(shard, result, {"action": CONFIRM, "msg_id": job["msg_id"]})["error"] == "limit_reached"
    assert transact(shard, {"action": CONFIRM, "msg_id": job["msg_id"]}, result)["code"] == 0


def with_kept(count: int, **limits: Any) -> tuple[Shard, list[int]]:
    shard = Shard(**limits)
    ids = [shard.ask(Action.PRODUCE, queue="q", data="k" * 100, retry=0, keep=True)["msg_id"] for _ in range(count)]
    for _ in ids:
        shard.ask(Action.CONSUME, queue="q")
    return shard, ids


def test_what_is_kept_though_delivered_goes_for_a_transaction_but_for_none_that_never_fits() -> None:
    shard, ids = with_kept(10, memory_bytes_max=8000)
    large = {"action": PRODUCE, "queue": "r", "data": "x" * 2500}
    assert transact(shard, *[large] * 4)["error"] == "limit_reached"
    assert set(shard.state.messages) == {*ids}
    assert transact(shard, {"action": CONFIRM, "msg_id": 999_999}, large)["error"] == "no_such_message"
    assert set(shard.state.messages) == {*ids}
    assert transact(shard, large)["code"] == 0
    assert len(shard.state.messages) < 11


def test_what_is_kept_stays_in_its_order() -> None:
    shard, ids = with_kept(3)
    assert transact(shard, {"action": CONFIRM, "msg_id": ids[2]}, {"action": CONFIRM, "msg_id": 999_999})["index"] == 1
    assert list(shard.state.kept) == ids
    shard.state.check()


def test_numbers_that_others_have_used_do_not_stand_for_what_was_not_done() -> None:
    shard = with_topic(1)
    append(shard, "alone", producer="p", number=5)
    job = consumed(shard)
    reply = transact(
        shard,
        {"action": CONFIRM, "msg_id": job["msg_id"]},
        {"action": APPEND, "topic": "t", "data": "alone", "producer": "p", "number": 5},
    )
    assert (reply["code"], reply.get("duplicate"), reply["replies"][0]["confirmed"]) == (0, None, 1)
    assert reply["replies"][1]["duplicate"] is True
    assert read(shard) == ["alone"]


def test_more_numbers_than_are_known_are_known_to_be_old() -> None:
    shard = with_topic(1)
    operations = [
        {"action": APPEND, "topic": "t", "data": number, "producer": "p", "number": number} for number in range(1, 20)
    ]
    assert transact(shard, *operations)["code"] == 0
    again = transact(shard, *operations)
    assert (again["code"], again["duplicate"]) == (0, True)
    assert [reply and reply["offset"] for reply in again["replies"]] == [None] * 3 + list(range(3, 19))


def test_a_number_stands_once_in_a_transaction() -> None:
    shard = with_topic(1)
    one = {"action": APPEND, "topic": "t", "data": "x", "producer": "p", "number": 1}
    refused = transact(shard, one, {**one, "data": "y"})
    assert (refused["error"], refused["index"]) == ("field_error", 1)
    assert read(shard) == []


def test_what_is_refused_leaves_the_turn_and_the_time_of_a_topic() -> None:
    shard = with_topic(3)
    assert shard.ask(Action.APPEND, topic="t", data=1)["partition"] == 0
    before = shard.ask(Action.TOPIC, command="show", topic="t")
    shard.now += 100
    fails = {"action": CONFIRM, "msg_id": 999_999}
    transact(shard, {"action": APPEND, "topic": "t", "data": 2}, fails)
    assert shard.ask(Action.TOPIC, command="show", topic="t") == before
    assert shard.ask(Action.APPEND, topic="t", data=2)["partition"] == 1


def test_nobody_sees_what_is_given_back_before_it_is_committed() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", dead_letter="dead")
    first, second = consumed(shard), consumed(shard)
    waits = [shard.send(Action.CONSUME, queue=name, wait=100) for name in ("q", "dead")]
    shard.commits = False
    order = shard.send(
        Action.TRANSACTION,
        operations=[
            {"action": RELEASE, "msg_id": first["msg_id"]},
            {"action": BURY, "msg_id": second["msg_id"]},
        ],
    )
    asked = shard.send(Action.CONSUME, queue="q")
    assert not {order, *waits} & shard.replies.keys()
    shard.state.check()
    shard.commits = True
    shard.settle()
    assert "msg_id" not in shard.replies[asked]
    assert [shard.replies[wait]["msg_id"] for wait in waits] == [first["msg_id"], second["msg_id"]]
    assert shard.replies[order]["code"] == 0


def test_what_is_given_back_and_may_not_come_again_ends_when_it_is_committed() -> None:
    shard = Shard()
    shard.ask(Action.CONFIGURE, queue="q", max_deliveries=1)
    job = consumed(shard)
    assert transact(shard, {"action": RELEASE, "msg_id": job["msg_id"], "nack": False})["code"] == 0
    assert not list(shard.state.messages.values())


def test_only_what_is_in_flight_is_given_back() -> None:
    shard = Shard()
    later = shard.ask(Action.PRODUCE, queue="q", data=1, delay=100)
    assert transact(shard, {"action": RELEASE, "msg_id": later["msg_id"]})["error"] == "not_in_flight"


def test_the_id_of_a_message_that_was_taken_back_is_not_told() -> None:
    shard = Shard()
    one = {"action": PRODUCE, "queue": "q", "data": 1, "key": "k"}
    refused = transact(shard, one, one)
    assert (refused["error"], refused["index"]) == ("duplicate_key", 1)
    assert "msg_id" not in refused["refused"]
    assert not any(character.isdigit() for character in refused["refused"]["reason"])


def test_groups_that_are_refused_count_for_nothing() -> None:
    shard = with_topic(3)
    places = shard.state.topics.places
    made = [{"action": COMMIT, "topic": "t", "group": f"g{at}", "positions": {"0": 0}} for at in range(20)]
    assert transact(shard, *made, {"action": CONFIRM, "msg_id": 999_999})["index"] == 20
    assert shard.state.topics.places == places
    shard.state.check()
    assert transact(shard, *made)["code"] == 0
    assert shard.state.topics.places == places + 60


def test_members_commit_in_a_transaction_what_they_have() -> None:
    shard = with_topic(1)
    append(shard, 1, 2, 3)
    heartbeat(shard, "m")
    commit = {"action": COMMIT, "topic": "t", "group": "g", "positions": {"0": 1}}
    assert transact(shard, commit)["error"] == "not_owner"
    assert transact(shard, {**commit, "member": "m"})["code"] == 0


OPERATIONS = st.one_of(
    st.builds(
        lambda queue, key, how: {
            "action": PRODUCE,
            "queue": queue,
            "data": "x",
            "retry": 60,
            **({} if key is None else {"key": key}),
            **({} if key is None or how is None else {"on_duplicate": how}),
        },
        st.sampled_from(["q", "r", "new", "dead"]),
        st.sampled_from([None, None, "k1", "k2"]),
        st.sampled_from([None, "keep", "replace"]),
    ),
    st.builds(lambda at: {"action": CONFIRM, "held_at": at}, st.integers(0, 5)),
    st.builds(
        lambda at, delay: {"action": RELEASE, "held_at": at, "delay": delay}, st.integers(0, 5), st.integers(0, 9)
    ),
    st.builds(lambda at: {"action": BURY, "held_at": at}, st.integers(0, 5)),
    st.builds(
        lambda key, number: {
            "action": APPEND,
            "topic": "t",
            "data": "y",
            "key": key,
            **({} if number is None else {"producer": "p", "number": number}),
        },
        st.sampled_from(["a", "b", "c"]),
        st.one_of(st.none(), st.integers(1, 20)),
    ),
    st.builds(
        lambda index, offset: {"action": COMMIT, "topic": "t", "group": "g", "positions": {str(index): offset}},
        st.integers(0, 2),
        st.integers(0, 5),
    ),
)


ROUNDS = st.tuples(st.booleans(), st.lists(OPERATIONS, min_size=1, max_size=6), st.integers(0, 40))


def _prepared() -> tuple[Shard, list[int]]:
    shard = with_topic(3)
    for name in ("q", "r"):
        shard.ask(Action.CONFIGURE, queue=name, dead_letter="dead", max_deliveries=3)
    held: list[int] = []
    for at in range(4):
        shard.ask(Action.PRODUCE, queue="q" if at % 2 else "r", data=at, retry=60, ttl=70 + at)
    for name in ("q", "r"):
        held += [one["msg_id"] for one in shard.ask(Action.CONSUME, queue=name, count=9)["messages"]]
    shard.ask(Action.PRODUCE, queue="q", data="ready", key="k1")
    shard.ask(Action.PRODUCE, queue="r", data="later", key="k2", delay=30)
    return shard, held


def _named(held: list[int], operation: dict[str, Any]) -> dict[str, Any]:
    said = {**operation}
    if "held_at" in said:
        at = said.pop("held_at")
        said["msg_id"] = held[at] if at < len(held) else 999_999
    return said


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(OPERATIONS, min_size=1, max_size=6), st.integers(0, 40)),
        min_size=1,
        max_size=6,
    )
)
def test_one_that_is_refused_leaves_no_trace(rounds: list[tuple[bool, list[dict[str, Any]], int]]) -> None:
    """Beside a shard that was not asked: all replies, records and places stay the same, also when time passes."""
    shard, held = _prepared()
    other, _ = _prepared()
    for fails, operations, seconds in rounds:
        asked = [_named(held, one) for one in operations]
        if fails:
            before = whole(shard)
            reply = transact(shard, *asked, {"action": CONFIRM, "msg_id": 888_888})
            assert reply["code"] == -1 or reply.get("duplicate")
            assert whole(shard) == before
        else:
            assert transact(shard, *asked) == transact(other, *asked)
        shard.state.check()
        delivery_of(shard.broker)  # what is ready is where it was
        waits = [one.send(Action.CONSUME, queue="q", wait=5, count=2) for one in (shard, other)]
        for one in (shard, other):
            one.pass_time(seconds)
        assert shard.replies.get(waits[0]) == other.replies.get(waits[1])
        assert shard.log == other.log
    assert whole(shard, shard.replayed())[::2] == whole(other)[::2]
