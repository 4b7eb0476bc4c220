"""The garbage collector is called in pieces: what is young, what has stayed, and hardly ever what is old."""

import gc
from collections.abc import Iterator

import pytest

from actors.runtime.collector import EVERY_S, OLD_AT, PIECE, Collector


class Ring:
    """Points to itself: nothing but the collector ends it."""

    def __init__(self) -> None:
        self.itself = self


def young() -> int:
    return len(gc.get_objects(generation=0))


@pytest.fixture
def calls() -> Iterator[list[int]]:
    """Which generations were looked through, with nothing young to begin with."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    was_enabled = gc.isenabled()
    gc.collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    if was_enabled:
        gc.enable()


def test_nothing_is_looked_through_before_enough_is_young_and_then_all_of_that(calls: list[int]) -> None:
    collector = Collector()
    collector.begin()
    collector.look(1.0)
    assert calls == []
    stays = [Ring() for _ in range(PIECE)]
    assert calls == [], "not by itself"
    collector.look(1.0 + EVERY_S / 2)
    assert calls == [], "it was looked at just now"
    collector.look(1.0 + EVERY_S)
    assert calls == [0]
    assert young() < PIECE
    del stays


def test_what_has_stayed_is_looked_through_once_more_in_a_piece_of_its_own(calls: list[int]) -> None:
    collector = Collector()
    collector.begin()
    rings = [Ring() for _ in range(PIECE)]
    collector.look(1.0)
    assert calls == [0]
    rings.clear()
    collector.look(2.0)
    assert calls == [0, 1]
    assert not [one for one in gc.get_objects() if isinstance(one, Ring)], "its rings have ended"
    collector.look(3.0)
    assert calls == [0, 1]


def test_no_piece_is_large_where_as_much_ends_as_is_made(calls: list[int]) -> None:
    """Python counts what was made beside what ended since, and so it would not look for as long as that goes on."""
    collector = Collector()
    collector.begin()
    old = [[number] for number in range(20 * PIECE)]
    gc.collect()
    calls.clear()
    most, new = 0, []
    for at in range(20):
        for _ in range(PIECE):
            new.append([at])
            old.pop()
        most = max(most, young())
        collector.look(at * EVERY_S)
    assert most < 3 * PIECE
    assert calls.count(0) >= 9
    assert 2 not in calls


def test_what_is_old_is_looked_through_behind_very_many_pieces(
    calls: list[int],
) -> None:
    collector = Collector()
    collector.begin()
    collector._pieces = OLD_AT - 1
    rings = [Ring() for _ in range(PIECE)]
    collector.look(1.0)
    collector.look(2.0)
    assert calls == [0, 2]
    del rings
