"""The leader's clock: it never goes back, whatever the machine's does."""

from hypothesis import given
from hypothesis import strategies as st

from actors.shard.clocks import LeaderClock


def test_the_clock_follows_the_wall_clock() -> None:
    clock = LeaderClock(0.0)
    assert clock.now(100.0, 1.0) == 100.0
    assert clock.now(101.5, 2.5) == 101.5


def test_a_wall_clock_that_was_set_back_lets_time_pass_all_the_same() -> None:
    clock = LeaderClock(1000.0)
    assert clock.now(500.0, 1.0) == 1000.0
    assert clock.now(501.0, 2.0) == 1001.0
    assert clock.now(1002.0, 2.5) == 1002.0


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 100)), min_size=1, max_size=30), st.floats(0, 1e9))
def test_time_never_goes_back(steps: list[tuple[float, float]], last: float) -> None:
    clock, monotonic, before = LeaderClock(last), 0.0, last
    for wall, passed in steps:
        monotonic += passed
        now = clock.now(wall, monotonic)
        assert now >= before
        before = now
