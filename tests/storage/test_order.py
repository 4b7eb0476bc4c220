"""Order holds what a sorted list would, and sweeps out what is gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.order import GONE_MAX, LINES_MAX, Order

operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 30), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
    ),
    max_size=200,
)


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 9))), operations, st.integers(0, 5))
def test_it_is_a_sorted_list(begun: set[tuple[int, int]], done: list[tuple[str, int, int]], gone_max: int) -> None:
    order, plain = Order(begun, gone_max), sorted(begun)
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
    assert [len(line) for line in order._lines] == [100] * LINES_MAX
    assert not order._rest
    order.add((-LINES_MAX, 0))
    assert list(order._rest) == [(-LINES_MAX, 0)]
    assert order.first == (-LINES_MAX, 0)
    order.check()


def test_a_head_that_stays_does_not_keep_what_is_gone_behind_it() -> None:
    order = Order()
    order.add((0, 0))
    for number in range(1, 100_000):
        order.add((number, 0))
        order.remove((number, 0))
        assert len(order._gone) <= GONE_MAX + 1
    assert sum(map(len, order._lines)) <= GONE_MAX + 2
    assert list(order) == [(0, 0)]
    order.check()


def test_a_key_that_comes_back_stands_where_it_stood() -> None:
    order = Order([(1, 1), (2, 2), (3, 3)])
    order.remove((2, 2))
    order.add((2, 2))
    order.check()
    assert list(order) == [(1, 1), (2, 2), (3, 3)]


def test_after_a_sweep_the_lines_stand_by_their_new_tails() -> None:
    order = Order(gone_max=3)
    for key in [(0,), *((number,) for number in range(10, 20)), (1,), (5,)]:
        order.add(key)
    for number in range(10, 20):
        order.remove((number,))
        order.check()
    order.add((7,))
    assert list(order) == [(0,), (1,), (5,), (7,)]


def test_what_leaves_from_the_front_sweeps_too() -> None:
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
        assert len(order._gone) <= max(GONE_MAX, len(order))
    order.check()


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
