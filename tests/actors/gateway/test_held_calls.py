"""Calls that are held: each once, in the order in which they are to be done, whatever comes back how often."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.held_calls import HeldCalls
from actors.messages.call import Call
from quorate.protocol import Request
from tests.actors.queues.shard import NOBODY


class _Client:
    has_left = is_gone = False
    has_ended = False


CLIENTS: list[Any] = [_Client(), _Client(), _Client()]
CAME = st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans())
"""Whose it is, how often it came back, and whether it is its client's only one by nature."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(CAME, min_size=1, max_size=1)),
        st.tuples(st.just("returned"), st.lists(CAME, min_size=1, max_size=6)),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("late"), st.integers(0, 5)),
        st.tuples(st.just("take all"), st.none()),
    ),
    max_size=25,
)


def call_of(client: int, returns: int, *, is_single: bool) -> Call:
    return Call(Request(1), CLIENTS[client], 0, NOBODY, is_single=is_single, returns=returns)


@given(STEPS)
def test_whatever_comes_back_how_often_each_call_is_held_once_and_in_order(steps: list[tuple[str, Any]]) -> None:
    held = HeldCalls()
    there: list[Call] = []  # in the order in which they were held
    for name, what in steps:
        if name == "add":
            (client, _, is_single) = what[0]
            one = call_of(client, 0, is_single=is_single)
            held.add(one, 1.0, 5.0, for_credit=False)
            there.append(one)
        elif name == "returned":
            some = [call_of(client, returns + 1, is_single=is_single) for client, returns, is_single in what]
            held.add_returned(some, 1.0, [5.0] * len(some))
            there += some
        elif name == "remove" and there:
            gone = there[what % len(there)]
            held.remove(next(one for one in held.all() if one.call is gone))
            there = [one for one in there if one is not gone]
        elif name == "late":
            for late in held.late(10.0, what):
                held.remove(late)
                there = [one for one in there if one is not late.call]
        elif name == "take all":
            assert {id(call) for call in held.take_all()} == {id(one) for one in there}
            there = []
        everything = held.all()
        assert len(everything) == len(there)
        assert {id(one.call) for one in everything} == {id(one) for one in there}
        assert [one.serial for one in everything] == sorted({one.serial for one in everything})
        for client in CLIENTS:
            own = [one for one in there if one.client is client and not one.is_single]
            wanted = sorted(own, key=lambda one: -one.returns)  # which keeps the order of those that are alike
            assert [one.call for one in held.of(client)] == wanted
            assert held.has_of(client) == bool(own)
            in_all = [one.call for one in everything if one.call.client is client and not one.call.is_single]
            assert in_all == wanted
            if wanted:
                assert [held.is_behind(one) for one in held.of(client)] == [False] + [True] * (len(wanted) - 1)
    assert [id(call) for call in held.take_all()] == [id(one.call) for one in everything] if steps else True
    assert not held.has_any
