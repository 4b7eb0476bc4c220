"""Strangers have a part of each turn, and a tenth of the time while others ask."""

import pytest

from actors.shard.put_off import ALONE_S, OTHERS_S, SHARE, SLICE_S, StrangersSlice


class Clock:
    def __init__(self) -> None:
        self.time = 5.0

    def __call__(self) -> float:
        return self.time


def used(clock: Clock, part: StrangersSlice, piece_s: float = SLICE_S / 4) -> float:
    """Do what there is time for in one turn; how long that took."""
    at, took = part.begin(), 0.0
    while part.has_time:
        clock.time += piece_s
        took += piece_s
        at = part.spent(at)
    return took


def test_all_of_each_turn_where_nobody_else_asks() -> None:
    clock = Clock()
    part = StrangersSlice(clock)
    for _ in range(5):
        assert used(clock, part) == pytest.approx(ALONE_S, rel=0.1)
        assert part.in_s == 0.0


def test_a_tenth_of_the_time_while_others_ask() -> None:
    clock = Clock()
    part = StrangersSlice(clock)
    begun, took = clock.time, 0.0
    while clock.time < begun + 1.0:
        part.others_ask()
        took += used(clock, part)
        clock.time += part.in_s
    assert took == pytest.approx(SHARE, rel=0.05)


def test_others_are_there_as_long_as_their_last_request_is_not_long_ago() -> None:
    clock = Clock()
    part = StrangersSlice(clock)
    part.others_ask()
    used(clock, part)
    clock.time += SLICE_S
    assert used(clock, part) <= SLICE_S / 2
    clock.time += OTHERS_S
    assert used(clock, part) == pytest.approx(ALONE_S, rel=0.1)
