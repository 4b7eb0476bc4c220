"""The garbage collector is called in pieces: what is young, what has stayed, and never what is old."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
import uvloop

from actors.runtime.asyncio_runtime import EVERY_S, GROWTH, PIECE, PIECE_MIN, AsyncioRuntime, Collector
from actors.runtime.blocking import mark_loop_thread


class Ring:
    """Points to itself: nothing but the collector ends it."""

    def __init__(self) -> None:
        self.itself = self


def always() -> float:
    """As if the process had worked a second since it was asked last."""
    always.worked_s += 1.0  # type: ignore[attr-defined]
    return float(always.worked_s)  # type: ignore[attr-defined]


always.worked_s = 0.0  # type: ignore[attr-defined]


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
    collector = Collector(lambda: 0.0, always)
    collector.begin()
    collector.look(1.0)
    assert calls == []
    stays = [Ring() for _ in range(PIECE)]
    assert calls == [], "not by itself"
    collector.look(1.0 + EVERY_S)
    assert calls == [], "so much can't have become young since"
    collector.look(1.0 + EVERY_S * PIECE / GROWTH)
    assert calls == [0]
    assert young() < PIECE
    del stays


def test_it_is_not_counted_what_is_young_before_the_process_has_worked(
    calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    def get_objects(generation: int | None = None) -> list[object]:
        nonlocal counted
        counted += 1
        return []

    monkeypatch.setattr(gc, "get_objects", get_objects)
    worked = 0.0
    collector = Collector(lambda: 0.0, lambda: worked)
    collector.begin()
    for at in range(10_000):
        worked += EVERY_S / 100  # a loop that has little to do
        collector.look(at * EVERY_S)
    assert counted == pytest.approx(10_000 / 100 / (PIECE / GROWTH), rel=0.05)
    assert calls == []


def test_what_has_stayed_is_looked_through_once_more_in_a_piece_of_its_own(calls: list[int]) -> None:
    collector = Collector(lambda: 0.0, always)
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


@pytest.mark.parametrize("part", [1.0, 0.1])
def test_no_piece_is_large_where_as_much_ends_as_is_made(part: float, calls: list[int]) -> None:
    """Python counts what was made beside what ended since, and so it would not look for as long as that goes on."""
    worked = 0.0
    collector = Collector(lambda: 0.0, lambda: worked)
    collector.begin()
    old = [[number] for number in range(20 * PIECE)]
    gc.collect()
    calls.clear()
    most, new = 0, []
    for at in range(int(50 / part)):
        for _ in range(int(GROWTH * part)):
            new.append([at])
            old.pop()
        most = max(most, young())
        worked += EVERY_S * part
        collector.look(at * EVERY_S)
    assert most <= PIECE + GROWTH, "what is made between two looks"
    assert len(calls) >= 50 * GROWTH / PIECE - 1
    assert 2 not in calls


def test_pieces_are_smaller_where_they_take_long_and_grow_again(calls: list[int]) -> None:
    """A thousand blocks of an order, of a thousand keys each, took 23 ms, as many as a piece was of objects."""
    time, took_s = 0.0, 0.0

    def clock() -> float:
        nonlocal time
        time += took_s
        return time

    collector = Collector(clock, always)
    collector.begin()
    looked: list[int] = []
    for at in range(100):
        took_s = 0.004 if at < 20 else 0.0
        stays = [Ring() for _ in range(PIECE_MIN)]
        before = len(calls)
        now = young()
        collector.look(float(at))
        if calls[before:] == [0]:
            looked.append(now)
        del stays
    assert looked[0] >= PIECE - GROWTH
    assert PIECE_MIN <= looked[1] < PIECE / 3, "a quarter of it"
    assert min(looked) < 3 * PIECE_MIN
    assert looked[-1] > PIECE / 2, "it grows again"


def test_what_is_old_is_not_looked_through_any_more(calls: list[int]) -> None:
    """That takes as long as all that is live: 0.3 s and more for a million messages."""
    collector = Collector(lambda: 0.0, always)
    collector.begin()
    stays = []
    for at in range(200):
        stays += [Ring() for _ in range(PIECE // 10)]
        collector.look(float(at))
    assert set(calls) == {0, 1}
    del stays


def test_a_loop_asks_its_collector_with_messages_and_with_timers(calls: list[int]) -> None:
    class Turn:
        def take_turn(self) -> None:
            pass

    loop = uvloop.new_event_loop()
    try:
        collector = Collector(worked=always)
        collector.begin()
        runtime = AsyncioRuntime(loop, lambda who, error: None, collector=collector)
        stays = [Ring() for _ in range(PIECE)]
        runtime.wake(Turn())
        loop.run_until_complete(asyncio.sleep(0.01))
        assert calls == [0]
        runtime.call_later(0.0, lambda: None)
        loop.run_until_complete(asyncio.sleep(0.01))
        assert calls == [0, 1]
        del stays
    finally:
        mark_loop_thread(False)
        loop.close()
