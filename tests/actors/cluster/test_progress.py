"""What a majority has: small maps in, one figure out."""

import math

import pytest

from actors.cluster.progress import WINDOW_BYTES, Progress, UnderWay, heard_by_majority, on_majority, on_nodes


@pytest.mark.parametrize(
    ("matches", "committed"),
    [
        ([], 0),
        ([7], 7),
        ([7, 0], 0),
        ([7, 5], 5),
        ([7, 5, 0], 5),
        ([9, 9, 1], 9),
        ([1, 2, 3, 4], 2),
        ([5, 1, 2, 3, 4], 3),
    ],
)
def test_a_majority_has_the_records_up_to(matches: list[int], committed: int) -> None:
    assert on_majority(matches) == committed


def test_n_nodes_have_the_records_up_to_the_nth() -> None:
    assert on_nodes([3, 9, 5]) == (9, 5, 3)


def test_a_majority_was_heard_at() -> None:
    assert heard_by_majority([math.inf, 4.0, 2.0]) == 4.0
    assert heard_by_majority([math.inf, -math.inf]) == -math.inf


def test_a_follower_that_stores_nothing_is_pushed_no_more_than_its_window() -> None:
    its = Progress(0.0)
    its.sent = 10
    assert its.is_pushable(10)
    its.pushed(0.0, 20, WINDOW_BYTES)
    assert its.is_pushable(20)
    its.pushed(0.0, 21, 1)
    assert not its.is_pushable(21)
    its.stored(2.0, 20, 1.0, 21, is_full=False)
    assert its.is_pushable(21)
    assert not its.is_pushable(20), "what was pushed must follow what was pushed before"


def test_what_is_lost_takes_no_room_and_is_not_waited_for() -> None:
    its = Progress(0.0, 10, 1)
    its.pushed(0.0, 2, 11)
    assert not its.is_pushable(2)
    its.waits = True
    its.found(0.0, 1)
    assert its.is_pushable(1)
    assert not its.waits, "it is sent all that there is"


def test_silence_is_counted_from_what_was_sent_first() -> None:
    its = UnderWay()
    its.add(1.0, 1, 1)
    its.add(1.005, 2, 1)
    assert its.silent_s(1.006) == pytest.approx(0.006)
    its.stored(1.006, 1)
    assert its.silent_s(1.007) == pytest.approx(0.002)


def test_one_answer_to_several_counts_for_each() -> None:
    its = UnderWay()
    its.add(0.0, 1, 1)
    its.add(0.01, 2, 1)
    its.stored(0.02, 2)
    assert its.answer_s == pytest.approx(0.02 - 0.01 * 0.1), "20 ms, and then 10 by a tenth"
    assert its.size == 0


def test_a_short_silence_before_it_was_lost_says_nothing_of_how_long_answers_take() -> None:
    its = UnderWay()
    its.answer_s = 0.01
    its.add(0.0, 1, 1)
    its.lost(0.001)
    assert its.answer_s == 0.01
