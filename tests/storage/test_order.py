"""Order holds what a sorted list would, and sweeps out what is gone."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.line import BLOCK
from storage.order import KEYS_UNTIL_REST, LINES_MAX, Order

operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 30), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
    ),
    max_size=200,
)


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 9))), operations, st.integers(1, 5))
def test_it_is_a_sorted_list(begun: set[tuple[int, int]], done: list[tuple[str, int, int]], block: int) -> None:
    order, plain = Order(begun, block), sorted(begun)
    for what, first, second in done:
        if what == "add" and (first, second) not in plain:
            order.add((first, second))
            plain = sorted([*plain, (first, second)])
        elif what == "remove" and plain:
            order.remove(plain.pop(first % len(plain)))
        elif what == "pop" and plain:
            assert order.pop_first() == plain.pop(0)
        order.check()
        assert list(order) == plain
        assert len(order) == len(plain)
        assert bool(order) is bool(plain)
        assert not plain or order.first == plain[0]
        key = (first, second)
        assert list(order.behind(key)) == [one for one in plain if one > key]
        assert order.first_behind(key) == next((one for one in plain if one > key), None)
        assert list(order.backwards()) == plain[::-1]


def test_what_comes_in_order_stands_in_one_line() -> None:
    order = Order()
    for number in range(1000):
        order.add((number, 0))
    assert len(order._lines) == 1
    for number in range(1000):
        assert order.pop_first() == (number, 0)
    assert not order._lines


def test_a_line_for_each_of_a_few_kinds() -> None:
    order = Order()
    for number in range(100):
        for kind in range(LINES_MAX):
            order.add((-kind, number))
    assert [len(list(line)) for line in order._lines] == [100] * LINES_MAX
    assert not order._rest
    order.add((-LINES_MAX, 0))
    assert list(order._rest) == [(-LINES_MAX, 0)]
    assert order.first == (-LINES_MAX, 0)
    order.check()


def keys_kept(order: Order) -> int:
    return sum(len(block.keys) for line in order._lines for block in line._blocks)


def test_a_head_that_stays_does_not_keep_what_is_gone_behind_it() -> None:
    order = Order()
    order.add((0, 0))
    for number in range(1, 100_000):
        order.add((number, 0))
        order.remove((number, 0))
        assert keys_kept(order) <= 4
    assert list(order) == [(0, 0)]
    order.check()


def test_no_block_is_kept_of_which_nothing_is_left() -> None:
    order = Order([(number,) for number in range(50 * BLOCK)])
    for number in range(50 * BLOCK - 1, 0, -1):
        order.remove((number,))
    assert len(order._lines[0]._blocks) <= 2
    order.add((50 * BLOCK,))
    assert list(order) == [(0,), (50 * BLOCK,)]
    order.check()


def test_no_more_than_a_block_is_swept_at_once_however_many_are_struck_out() -> None:
    """All of a million that were gone stood in one set, and were swept out at once: 0.7 s."""
    count = 40 * BLOCK
    order = Order([(number,) for number in range(count)])
    numbers = list(range(1, count))
    Random(5).shuffle(numbers)
    for at, number in enumerate(numbers):
        order.remove((number,))
        if at % 5000 == 0:
            order.check()
    assert max(len(block.keys) for block in order._lines[0]._blocks) <= BLOCK
    assert list(order) == [(0,)]


def test_a_key_that_comes_back_stands_where_it_stood() -> None:
    order = Order([(1, 1), (2, 2), (3, 3)])
    order.remove((2, 2))
    order.add((2, 2))
    order.check()
    assert list(order) == [(1, 1), (2, 2), (3, 3)]


def test_after_a_sweep_keys_go_where_they_are_in_order() -> None:
    order = Order(block=3)
    for key in [(0,), *((number,) for number in range(10, 20)), (1,), (5,)]:
        order.add(key)
    for number in range(10, 20):
        order.remove((number,))
        order.check()
    order.add((7,))
    order.check()
    assert list(order) == [(0,), (1,), (5,), (7,)]


def test_what_leaves_from_the_front_passes_over_what_is_gone() -> None:
    order = Order()
    order.add((0, 0))
    for number in range(1, 6000):
        order.add((number, 0))
    for number in range(1, 6000):
        order.add((number, -1))
    for number in range(2, 3000):
        order.remove((number, 0))
    while len(order) > 1:
        order.pop_first()
        assert keys_kept(order) <= 2 * len(order) + 2 * BLOCK
    order.check()


def test_a_key_in_the_middle_is_found_in_its_own_line() -> None:
    order = Order(block=2)
    for number in (10, 11, 12, 13):
        order.add((number,))
    for number in (1, 2, 3, 4):
        order.add((number,))
    assert len(order._lines) == 2
    order.remove((3,))
    order.remove((12,))
    order.check()
    assert list(order) == [(1,), (2,), (4,), (10,), (11,), (13,)]


@pytest.mark.parametrize("in_row", [True, False])
def test_an_order_is_made_of_very_many_with_rests(in_row: bool) -> None:
    pieces = [[(number,) for number in range(at, 10_000, 2)] for at in (0, 1)]
    if in_row:
        pieces = [[(number,) for number in range(5_000)], [(number,) for number in range(5_000, 10_000)]]
    rests: list[int] = []
    order = Order.of_pieces(pieces, lambda: rests.append(1))
    order.check()
    assert list(order) == [(number,) for number in range(10_000)]
    assert len(rests) == 10_000 // KEYS_UNTIL_REST


def test_many_are_let_go_of_at_a_time() -> None:
    order = Order([(number,) for number in range(10_000)])
    times = 0
    while order.drop(5_000):
        times += 1
    assert times == 2


def test_a_key_that_is_not_there_is_not_taken_out() -> None:
    order = Order([(1,), (2,), (3,)])
    order.remove((2,))
    for missing in ((2,), (4,)):
        with pytest.raises(KeyError):
            order.remove(missing)
    assert len(order) == 2
    with pytest.raises(KeyError):
        Order().remove((1,))


def test_there_is_no_first_of_none() -> None:
    with pytest.raises(IndexError):
        Order().first  # noqa: B018
