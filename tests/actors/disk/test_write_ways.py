"""The loop waits for the disk itself where that is quicker, and stops doing so after one slow write."""

from collections.abc import Callable

import pytest

from actors.disk.write_ways import (
    ASKED_MIN,
    AVOIDED_MAX_S,
    AVOIDED_S,
    BEGUN_S,
    BYTES_MAX,
    PARDONED,
    QUICK_S,
    RECORDS_MAX,
    WAITED_S,
    WAITED_SHARE,
    WINDOW_S,
    Place,
    WritePlace,
    WriteWays,
    own_seconds,
)
from storage.disk import DiskFile
from storage.journal_writer import Write
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.storage.memory import MemoryFolder, MemoryWrites


def is_here(place: WritePlace, records: int, size: int, *, others_wait: bool = False, is_alone: bool = True) -> bool:
    """Whether the loop waits."""
    chosen = place.choose(0.0, records, size, is_alone=is_alone, others_wait=others_wait)
    assert chosen is not Place.SYSTEM
    return chosen is Place.LOOP


def trusted() -> WritePlace:
    place = WritePlace(has_async=False)
    for _ in range(ASKED_MIN):
        assert not is_here(place, 1, 512)
        place.took(Place.LANE, QUICK_S)
    return place


def test_of_a_start_that_waited_all_counts_and_else_what_its_thread_worked() -> None:
    assert own_seconds(0.02, (5, 1.0), (6, 1.001)) == 0.02
    assert own_seconds(0.02, (5, 1.0), (5, 1.001)) == pytest.approx(0.001)
    assert own_seconds(0.02, (5, 1.0), (5, 1.019)) == pytest.approx(0.019)


def test_a_starts_own_work_is_measured_only_while_one_was_slow_lately() -> None:
    place = WritePlace(has_async=True)
    assert not place.is_measured(0.0)
    place.was_slow(5.0)
    assert place.is_measured(5.0 + 0.9 * WINDOW_S)
    assert not place.is_measured(5.0 + WINDOW_S)


class SlowWrites(MemoryWrites):
    """Starts take as long as `runtime` is told that they do; counts how often a thread's own time is asked for."""

    def __init__(self, runtime: CrankedRuntime, takes_s: float) -> None:
        super().__init__()
        self.runtime, self.takes_s, self.asked = runtime, takes_s, 0

    def start(self, file: DiskFile, offset: int, data: bytes, token: int) -> bool:
        self.runtime.time += self.takes_s
        return super().start(file, offset, data, token)

    def used(self) -> tuple[int, float]:
        self.asked += 1
        return self.asked, 0.0  # it has waited


def test_quick_starts_make_no_system_call_more_and_a_disk_that_holds_them_up_gets_lanes() -> None:
    runtime = CrankedRuntime()
    writes = SlowWrites(runtime, WAITED_S / 2)
    ways = WriteWays(runtime, [ref(Probe())], writes)
    file = MemoryFolder().create("0", 1 << 20)
    for token in range(100):
        ways.write(Write(file, 0, b"x" * 512, token, 1), is_alone=True, others_wait=False)
    assert writes.asked == 0
    writes.takes_s = 1.5 * BEGUN_S
    ways.write(Write(file, 0, b"x" * 512, 100, 1), is_alone=True, others_wait=False)
    assert ways.place.choose(runtime.monotonic(), 1, 512, is_alone=True, others_wait=False) is Place.SYSTEM
    ways.write(Write(file, 0, b"x" * 512, 101, 1), is_alone=True, others_wait=False)
    assert writes.asked == 2
    assert ways.place.choose(runtime.monotonic(), 1, 512, is_alone=True, others_wait=False) is Place.LANE


def test_a_disk_has_to_be_quick_for_a_while_first() -> None:
    assert is_here(trusted(), 1, 512)


def test_many_records_go_to_the_lane() -> None:
    assert is_here(trusted(), RECORDS_MAX, 512)
    assert not is_here(trusted(), RECORDS_MAX + 1, 512)


def test_a_large_write_goes_to_the_lane() -> None:
    assert is_here(trusted(), 1, BYTES_MAX)
    assert not is_here(trusted(), 1, BYTES_MAX + 1)


def test_what_others_wait_for_goes_to_the_lane() -> None:
    assert not is_here(trusted(), 1, 512, others_wait=True)


def test_one_slow_write_on_the_loop_and_twice_as_many_quick_ones_are_asked_for() -> None:
    place = trusted()
    for asked in (2 * ASKED_MIN, 4 * ASKED_MIN, 8 * ASKED_MIN):
        place.took(Place.LOOP, QUICK_S * 1.01)
        for _ in range(asked):
            assert not is_here(place, 1, 512)
            place.took(Place.LANE, QUICK_S)
        assert is_here(place, 1, 512)


def test_there_is_an_end_to_what_is_asked_for() -> None:
    place = trusted()
    for _ in range(50):
        place.took(Place.LOOP, 1.0)
    for _ in range(PARDONED - 1):
        place.took(Place.LANE, 0.0)
    assert not is_here(place, 1, 512)
    place.took(Place.LANE, 0.0)
    assert is_here(place, 1, 512), "so many are pardoned"


def test_a_slow_write_on_the_lane_begins_the_count_anew() -> None:
    place = trusted()
    place.took(Place.LANE, 1.0)
    for _ in range(ASKED_MIN - 1):
        place.took(Place.LANE, 0.0)
        assert not is_here(place, 1, 512)
    place.took(Place.LANE, 0.0)
    assert is_here(place, 1, 512)


def test_what_was_slow_is_forgotten_after_a_long_time() -> None:
    place = trusted()
    for _ in range(5):
        place.took(Place.LOOP, 1.0)
    for _ in range(PARDONED):
        place.took(Place.LANE, 0.0)
    place.took(Place.LANE, 1.0)
    for _ in range(ASKED_MIN):
        assert not is_here(place, 1, 512)
        place.took(Place.LANE, 0.0)
    assert is_here(place, 1, 512)


def test_a_disk_that_is_slow_again_and_again_is_seldom_waited_for() -> None:
    place, here = WritePlace(has_async=False), 0
    for write in range(100_000):
        waits = is_here(place, 1, 512)
        here += waits
        place.took(Place.LOOP if waits else Place.LANE, 1.0 if write % 40 == 39 else 0.0)
    assert here < 100


def test_what_is_written_beside_another_write_goes_to_the_lane() -> None:
    assert not is_here(trusted(), 1, 512, is_alone=False)


def place_at(place: WritePlace, now: float) -> Place:
    """Of a large write that followers wait for."""
    return place.choose(now, RECORDS_MAX + 1, BYTES_MAX + 1, is_alone=False, others_wait=True)


def test_the_system_gets_every_write_if_it_finishes_them_by_itself() -> None:
    place = WritePlace(has_async=True)
    for _ in range(ASKED_MIN + 1):
        assert place_at(place, 0.0) is Place.SYSTEM
        assert place.choose(0.0, 1, 512, is_alone=True, others_wait=False) is Place.SYSTEM
        place.begun(0.0, WAITED_S)
        place.took(Place.LANE, 0.0)
    place.took(Place.LANE, 1.0)
    assert place_at(place, 0.0) is Place.SYSTEM, "a slow disk is no reason for lanes"


def avoids(place: WritePlace, now: float, avoided_s: float) -> bool:
    """Whether lanes have the writes for just so long."""
    is_avoided = place_at(place, now + avoided_s * 0.99) is Place.LANE
    return is_avoided and place_at(place, now + avoided_s) is Place.SYSTEM


def very_long(place: WritePlace, now: float) -> None:
    place.begun(now, BEGUN_S * 1.01)


def much_waited_for(place: WritePlace, now: float) -> None:
    begin_s = WAITED_SHARE * WINDOW_S / 49.5
    for _ in range(49):
        place.begun(now, begin_s)
        assert place_at(place, now) is Place.SYSTEM
    place.begun(now, begin_s)


@pytest.mark.parametrize("fault", [very_long, much_waited_for, WritePlace.failed])
def test_after_a_fault_lanes_have_the_writes_each_time_twice_as_long(
    fault: Callable[[WritePlace, float], None],
) -> None:
    place, now, avoided_s = WritePlace(has_async=True), 0.0, AVOIDED_S
    for _ in range(20):
        fault(place, now)
        assert avoids(place, now, avoided_s)
        now += avoided_s
        avoided_s = min(2 * avoided_s, AVOIDED_MAX_S)
    while avoided_s > AVOIDED_S:
        now += WINDOW_S
        place.begun(now, 0.0)
        avoided_s /= 2
    fault(place, now)
    assert avoids(place, now, AVOIDED_S), "what was before is forgotten, by half in each window without a fault"


def test_a_busy_machine_is_no_reason_for_lanes() -> None:
    """Where a fifth of the time goes by in beginning writes."""
    place, now = WritePlace(has_async=True), 0.0
    for _ in range(100_000):
        place.begun(now, 0.002)
        now += 0.01
        assert place_at(place, now) is Place.SYSTEM


def test_a_disk_that_is_always_waited_for_is_seldom_begun_with() -> None:
    place, now, waited = WritePlace(has_async=True), 0.0, 0
    while now < 600.0:
        is_begun = place_at(place, now) is Place.SYSTEM
        now += 0.001
        if is_begun:
            place.begun(now, 0.001)
            waited += 1
    assert waited * 0.001 < 0.01 * 600.0
