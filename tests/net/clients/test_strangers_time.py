"""Strangers have a share of the loop's time, all together; who costs little is never kept waiting."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from net.clients.connection import STRANGERS_BYTES, Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.strangers_time import FREE_S, SHARE, StrangersTime
from net.protocols.json_session import JsonSession
from net.protocols.session import RequestLimits
from quorate.protocol import Reply
from tests.net.clients.fake_end import FakeEnd, connected

ASK = msgspec.json.encode({"action": 11, "queue": "q"})


@given(st.lists(st.tuples(st.floats(0.0, 0.3), st.floats(0.0, 0.05)), min_size=1, max_size=50))
def test_all_together_they_take_no_more_than_their_share(steps: list[tuple[float, float]]) -> None:
    """As many as there are, each rests until the work of all before it is paid for, its own too."""
    time, now, work, free_at = StrangersTime(), 0.0, 0.0, 0.0
    for idle_s, took_s in steps:
        now = max(now + idle_s, free_at)
        now += took_s
        rest_s = time.spent(now, took_s)
        if took_s < FREE_S:
            assert rest_s == 0.0
            continue
        work += took_s
        assert rest_s >= took_s * (1 / SHARE - 1) * 0.999
        free_at = now + rest_s
        assert work <= free_at * SHARE * 1.001


def test_those_that_come_at_once_pay_one_after_the_other() -> None:
    time = StrangersTime()
    rests = [time.spent(1.0, 0.01) for _ in range(10)]
    assert rests == sorted(rests)
    assert 0.39 < rests[-1] < 0.41, "ten times 10 ms are a fifth of half a second"


def test_who_rests_is_not_heard_and_then_goes_on() -> None:
    end, connection = connected()
    connection.rest(True)
    connection.rest(True)
    connection.receive(ASK)
    assert end.requests == []
    assert end.is_reading is False
    connection.rest(False)
    assert end.requests == [], "one rest is over, and not the other"
    connection.rest(False)
    assert len(end.requests) == 1
    assert end.is_reading is True


def test_a_rest_that_ends_behind_its_client_harms_nobody() -> None:
    end, connection = connected()
    connection.rest(True)
    connection.lost()
    connection.rest(False)
    assert end.requests == []


def stranger() -> tuple[FakeEnd, Connection]:
    end = FakeEnd()
    limits = ConnectionLimits(request=RequestLimits(request_bytes_max=1 << 20))
    connection = Connection(end, end, JsonSession(limits.request), limits)
    connection.account.know(False)
    return end, connection


LARGE = msgspec.json.encode({"action": 1, "queue": "q", "data": "x" * STRANGERS_BYTES})


def test_who_becomes_known_meanwhile_is_heard_in_order() -> None:
    """The access table may be read again while something waits."""
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.account.know(True)
    connection.receive(ASK)
    connection.rest(False)
    assert [request.action for _, request in end.requests] == [1, 11]


def test_a_stranger_with_something_large_waits_for_the_debt_of_others_before_it_is_looked_at() -> None:
    """Else a new connection for each large request would be a way around the share."""
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.receive(ASK)
    assert end.requests == []
    assert end.is_reading is False
    assert connection.account.partial == len(LARGE) + len(ASK)
    connection.rest(False)
    assert [request.action for _, request in end.requests] == [1, 11], "in their order, and rested for both"
    assert connection.account.partial == 0
    assert end.spent_s > 0.0, "a large request takes more than its reading"


def test_a_stranger_with_a_long_reply_waits_too_and_small_requests_do_not() -> None:
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(msgspec.json.encode({"action": 2, "queue": "q"}))
    connection.receive(ASK)
    connection.receive(msgspec.json.encode({"action": 2, "queue": "q"}))
    assert [request.action for _, request in end.requests] == [2]
    connection.rest(False)
    assert [request.action for _, request in end.requests] == [2, 11], "what is behind a long one waits for its reply"


def test_what_a_stranger_sent_before_it_closed_its_side_is_done_when_the_debt_is_paid() -> None:
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.end()
    assert end.closed_how == ""
    connection.rest(False)
    assert [request.action for _, request in end.requests] == [1]
    order, request = end.requests[0]
    connection.answer(order, request, Reply(action=1, code=0))
    assert end.closed_how == "close"
    assert len(end.sent) == 1


def test_what_waits_is_let_go_of_with_its_client() -> None:
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.lost()
    connection.rest(False)
    assert end.requests == []
    assert end.ledger.used == 0


def test_who_has_shown_a_token_pays_nothing() -> None:
    end, connection = stranger()
    connection.account.know(True)
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.receive(ASK)
    assert [request.action for _, request in end.requests] == [1, 11]
    assert end.spent_s == 0.0
