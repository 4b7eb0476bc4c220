"""What the head of the log is about is described in pieces, bounded in rows and bytes, and as far as was asked."""

from storage.message import Message
from storage.message_ids import message_id
from storage.state import ShardState
from storage.trimming import PIECE_BYTES, PIECE_ROWS, PLAN_BYTES, Describing, TrimPlan, TrimStep, rows_now


def state_of(count: int, size: int) -> ShardState:
    state = ShardState()
    for number in range(1, count + 1):
        state.trans_id = number - 1
        state.apply_next(Message("q", message_id(number, 0), b"x" * size, 1.0, 1.0, 9.0, 5.0, 0, None))
    return state


def plan_of(count: int, each: int) -> TrimPlan:
    ids = [message_id(number, 0) for number in range(1, count + 1)]
    return TrimPlan(
        [
            TrimStep(begin + each, bytes([begin % 250]), ids[begin : begin + each], set(), ["q", f"gone{begin}"])
            for begin in range(0, count, each)
        ]
    )


def pieces(describing: Describing) -> int:
    count = 1
    while not describing.go_on():
        count += 1
    return count


def test_many_small_messages_take_many_pieces() -> None:
    describing = Describing(plan_of(5 * PIECE_ROWS, 100), state_of(5 * PIECE_ROWS, 1))
    assert pieces(describing) >= 5
    plan, rows = describing.described()
    assert len(rows.messages) == 5 * PIECE_ROWS
    assert len(plan.steps) == 50
    assert dict(rows.queues)["q"] is not None
    assert dict(rows.queues)["gone0"] is None


def test_large_messages_are_described_some_at_a_time_and_the_plan_ends_where_it_is_enough() -> None:
    """A thousand messages of 200 kB were 200 MB at once, in one turn of 150 ms."""
    size = 200_000
    describing = Describing(plan_of(100, 5), state_of(100, size))
    assert pieces(describing) >= PLAN_BYTES // PIECE_BYTES
    plan, rows = describing.described()
    described = sum(len(row) for _, row in rows.messages)
    assert PLAN_BYTES < described < PLAN_BYTES + 6 * size
    assert plan.until == len(rows.messages), "whole entries, as far as they were described"
    assert len(plan.steps) < 20


def test_an_entry_of_any_size_is_described_whole_but_not_in_one_piece() -> None:
    describing = Describing(plan_of(100, 100), state_of(100, 200_000))
    assert pieces(describing) > 10
    plan, rows = describing.described()
    assert (plan.until, len(rows.messages)) == (100, 100)


def test_messages_that_are_gone_have_no_row() -> None:
    state = state_of(10, 1)
    for number in (2, 3):
        state.messages.pop(message_id(number, 0))
    _, rows = rows_now(plan_of(10, 10), state)
    assert [msg_id for msg_id, _ in rows.messages] == [message_id(n, 0) for n in (1, 4, 5, 6, 7, 8, 9, 10)]
