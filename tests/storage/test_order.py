"""Order holds what a sorted list would, and sweeps out what is gone."""

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


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 9))), operations)
def test_it_is_a_sorted_list(begun: set[tuple[int, int]], done: list[tuple[str, int, int]]) -> None:
    order, plain = Order(begun), sorted(begun)
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


def test_there_is_no_first_of_none() -> None:
    try:
        Order().first  # noqa: B018
    except IndexError:
        return
    raise AssertionError
