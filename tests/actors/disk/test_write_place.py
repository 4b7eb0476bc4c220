"""The loop waits for the disk itself where that is quicker, and stops doing so after one slow write."""

from actors.disk.write_place import ASKED_MIN, BYTES_MAX, PARDONED, QUICK_S, RECORDS_MAX, WritePlace


def trusted() -> WritePlace:
    place = WritePlace()
    for _ in range(ASKED_MIN):
        assert not place.is_here(1, 512, others_wait=False)
        place.took(QUICK_S, was_here=False)
    return place


def test_a_disk_has_to_be_quick_for_a_while_first() -> None:
    assert trusted().is_here(1, 512, others_wait=False)


def test_many_records_go_to_the_lane() -> None:
    assert trusted().is_here(RECORDS_MAX, 512, others_wait=False)
    assert not trusted().is_here(RECORDS_MAX + 1, 512, others_wait=False)


def test_a_large_write_goes_to_the_lane() -> None:
    assert trusted().is_here(1, BYTES_MAX, others_wait=False)
    assert not trusted().is_here(1, BYTES_MAX + 1, others_wait=False)


def test_what_others_wait_for_goes_to_the_lane() -> None:
    assert not trusted().is_here(1, 512, others_wait=True)


def test_one_slow_write_on_the_loop_and_twice_as_many_quick_ones_are_asked_for() -> None:
    place = trusted()
    for asked in (2 * ASKED_MIN, 4 * ASKED_MIN, 8 * ASKED_MIN):
        place.took(QUICK_S * 1.01, was_here=True)
        for _ in range(asked):
            assert not place.is_here(1, 512, others_wait=False)
            place.took(QUICK_S, was_here=False)
        assert place.is_here(1, 512, others_wait=False)


def test_there_is_an_end_to_what_is_asked_for() -> None:
    place = trusted()
    for _ in range(50):
        place.took(1.0, was_here=True)
    for _ in range(PARDONED - 1):
        place.took(0.0, was_here=False)
    assert not place.is_here(1, 512, others_wait=False)
    place.took(0.0, was_here=False)
    assert place.is_here(1, 512, others_wait=False), "so many are pardoned"


def test_a_slow_write_on_the_lane_begins_the_count_anew() -> None:
    place = trusted()
    place.took(1.0, was_here=False)
    for _ in range(ASKED_MIN - 1):
        place.took(0.0, was_here=False)
        assert not place.is_here(1, 512, others_wait=False)
    place.took(0.0, was_here=False)
    assert place.is_here(1, 512, others_wait=False)


def test_what_was_slow_is_forgotten_after_a_long_time() -> None:
    place = trusted()
    for _ in range(5):
        place.took(1.0, was_here=True)
    for _ in range(PARDONED):
        place.took(0.0, was_here=False)
    place.took(1.0, was_here=False)
    for _ in range(ASKED_MIN):
        assert not place.is_here(1, 512, others_wait=False)
        place.took(0.0, was_here=False)
    assert place.is_here(1, 512, others_wait=False)


def test_a_disk_that_is_slow_again_and_again_is_seldom_waited_for() -> None:
    place, here = WritePlace(), 0
    for write in range(100_000):
        is_here = place.is_here(1, 512, others_wait=False)
        here += is_here
        place.took(1.0 if write % 40 == 39 else 0.0, was_here=is_here)
    assert here < 100
