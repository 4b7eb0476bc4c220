"""Strangers have a share of the loop's time, all together; who costs little is never kept waiting."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from net.clients.strangers_time import FREE_S, SHARE, StrangersTime
from tests.net.clients.fake_end import connected

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
