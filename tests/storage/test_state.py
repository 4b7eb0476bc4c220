"""The state: what a record does, and that doing it again over a later state ends in the same."""

import gc
import random
import sys

from storage.message import Message
from storage.message_ids import message_id
from storage.records import Bury, Configure, Confirm, Deliver, Place, Produce, Record, Remove
from storage.state import ShardState

NOW = 100.0


def produced(trans_id: int, queue: str) -> Produce:
    return Produce(queue, message_id(trans_id, 0), b'"x"', NOW, NOW, NOW + 99, 5.0, 0, None)


def replay(records: list[Record], *, rows: list[Produce], settings: list[Configure], trimmed: int) -> ShardState:
    """A backlog, and the records behind `trimmed` over it."""
    state = ShardState()
    state.loading = True
    for row in settings:
        state.restore_queue(row, 0)
    for message in rows:
        state.restore_message(message)
    for trans_id, record in enumerate(records, 1):
        if trans_id > trimmed:
            state.apply(trans_id, record)
    state.finish_loading(NOW)
    state.check()
    return state


def test_a_removed_queues_settings_do_not_come_back_with_a_message_that_was_buried_under_its_name() -> None:
    msg_id = message_id(1, 0)
    records: list[Record] = [
        produced(1, "q"),
        Configure("x", 5, 1.0, 0.0, 0, None, True),
        Remove("x"),
        Deliver("q", [msg_id], [1], [NOW], [1]),
        Bury("q", "x", [msg_id], [4], [NOW], [NOW + 50]),
    ]
    whole = replay(records, rows=[], settings=[], trimmed=0)
    assert not whole.queues["x"].paused
    row = produced(1, "x")
    row.last, row.expires_at = 5, NOW + 50
    again = replay(records, rows=[row], settings=[whole.queues["x"].settings()], trimmed=1)
    assert again.queues["x"].settings() == whole.queues["x"].settings()
    assert again.messages[msg_id].queue == "x"


def test_records_about_messages_that_are_gone_change_nothing() -> None:
    state = replay(
        [produced(1, "q"), Deliver("q", [1024], [1], [NOW], [1]), Confirm("q", [1024], [2])],
        rows=[],
        settings=[],
        trimmed=1,
    )
    assert not state.messages
    assert state.data_bytes == 0


def test_a_state_goes_as_soon_as_nobody_has_it() -> None:
    """It referred to itself, and stayed until the garbage collector came, which never did."""
    state = ShardState()
    state.trans_id = 0
    state.apply_next(Message("q", message_id(1, 0), b"x", 1.0, 1.0, 9.0, 5.0, 0, None))
    messages = state.messages
    count = sys.getrefcount(messages)
    gc.disable()
    try:
        del state
        assert sys.getrefcount(messages) == 2 < count, "this name, and the call"
    finally:
        gc.enable()


def test_a_state_is_taken_apart_some_at_a_time() -> None:
    state = ShardState()
    for number in range(1, 101):
        state.trans_id = number - 1
        state.apply_next(Message(f"q{number % 3}", message_id(number, 0), b"x", 1.0, 1.0, 9.0, 5.0, 0, None))
    for message in list(state.messages.values()):
        state.queues[message.queue].place(message, 2.0)
    steps = 0
    while not state.take_apart(10):
        steps += 1
        assert steps < 100
    assert steps >= 20
    assert len(state.messages) == 0
    assert not state.queues


def test_indexes_that_are_built_beside_a_loop_are_those_that_are_built_at_once() -> None:
    states = []
    rested = 0

    def rest() -> None:
        nonlocal rested
        rested += 1

    for how in (None, rest):
        state = ShardState()
        state.loading = True
        draw = random.Random(5)
        for number in range(1, 9001):
            due_at = draw.choice([1.0, 50.0, float(number)])
            made = Message("q", message_id(number, 0), b"", 1.0, due_at, 99.0, 5.0, draw.randrange(3), None)
            made.deliveries = draw.randrange(2)
            if draw.randrange(3) == 0:
                made.place = Place.IN_FLIGHT
            state.trans_id = number - 1
            state.apply_next(made)
        state.finish_loading(60.0, how)
        state.check()
        queue = state.queues["q"]
        assert all((queue.ready, queue.waiting, queue.in_hand))
        states.append([list(order) for order in (queue.ready, queue.waiting, queue.in_hand)])
    assert states[0] == states[1]
    assert rested > 5
