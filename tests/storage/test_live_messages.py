"""Live messages by id: as a dict would have them, whatever id is asked for."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from storage.live_messages import LEFT, PAGE_BITS, PAGE_STEPS, STEPS_MAX, LiveMessages
from storage.message import Message

PAGE = 1 << PAGE_BITS
NUMBERS = (0, 1, 2, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE)
IDS = st.sampled_from([shard + 1024 * number for number in NUMBERS for shard in (0, 3, 4)]) | st.integers(-3000, 3000)


def message(msg_id: int) -> Message:
    return Message("q", msg_id, b"1", 1.0, 1.0, 9.0, 5.0, 0, None)


@given(st.lists(st.tuples(IDS, st.booleans())))
def test_it_holds_what_a_dict_would(steps: list[tuple[int, bool]]) -> None:
    live, model = LiveMessages(3), dict[int, Message]()
    for msg_id, is_added in steps:
        if is_added:
            one = message(msg_id)
            assert live.add(msg_id, one) == (msg_id not in model)
            model.setdefault(msg_id, one)
        else:
            assert live.pop(msg_id) is model.pop(msg_id, None)
        live.check()
        assert sorted(live) == sorted(model)
        assert {one.msg_id: one for one in live.values()} == model
        assert len(live) == len(model)
        assert bool(live) == bool(model)
        for other in (msg_id, msg_id + 1, msg_id * 1024 + 3, -1 - msg_id):
            assert live.get(other) is model.get(other)
            assert (other in live) == (other in model)
    for msg_id, one in model.items():
        assert live[msg_id] is one


@given(st.lists(st.tuples(st.sampled_from(NUMBERS), st.booleans())), st.sampled_from(NUMBERS), st.integers(1, 3))
def test_what_stands_behind_a_record_is_found_in_order(steps: list[tuple[int, bool]], after: int, count: int) -> None:
    live, there = LiveMessages(3), set[int]()
    for number, is_added in steps:
        msg_id = 1024 * number + 3
        if is_added:
            live.add(msg_id, message(msg_id))
            there.add(number)
        else:
            live.pop(msg_id)
            there.discard(number)
        found, last = live.behind(after, count)
        behind = sorted(one for one in there if one > after)
        assert [one.msg_id // 1024 for one in found] == behind[:count]
        assert last is None or last == behind[count - 1]
        assert last is not None or len(behind) <= count
        live.check()


def test_so_many_are_looked_at_in_one_go_and_then_the_next() -> None:
    live = LiveMessages(0)
    numbers = range(1, STEPS_MAX + 100)
    for number in numbers:
        live.add(1024 * number, message(1024 * number))
    looked = STEPS_MAX - 2 * PAGE_STEPS
    found, last = live.behind(0, STEPS_MAX + 200)
    assert (len(found), last) == (looked, looked)
    found, last = live.behind(looked, STEPS_MAX)
    assert (len(found), last) == (STEPS_MAX + 99 - looked, None)
    for number in numbers[:-1]:
        live.pop(1024 * number)
    assert [one.msg_id for one in live.behind(0, 5)[0]] == [1024 * numbers[-1]]


def test_no_page_is_kept_of_which_nothing_is_left_but_the_newest() -> None:
    live = LiveMessages(3)
    for round_ in range(50):
        msg_id = 1024 * PAGE * round_ + 3
        live.add(msg_id, message(msg_id))
        live.pop(msg_id)
        assert len(live._pages) == 1, "the newest"
        live.check()


def test_one_that_comes_back_is_found_once() -> None:
    live = LiveMessages(0)
    for number in (1, 2, 3):
        live.add(1024 * number, message(1024 * number))
    assert len(live.behind(0, 9)[0]) == 3
    one = live.pop(3072)
    assert one is not None
    live.add(3072, one)
    assert [found.msg_id for found in live.behind(0, 9)[0]] == [1024, 2048, 3072]


def test_a_page_of_which_little_is_left_takes_little() -> None:
    """Python keeps a dict as large as it was: 600 KB for each message that stayed of its page, a gigabyte an hour."""
    live = LiveMessages(0)
    for number in range(3 * PAGE + 1):
        live.add(1024 * number, message(1024 * number))
    for number in range(3 * PAGE):
        if number % PAGE:
            live.pop(1024 * number)
    assert len(live) == 4
    assert sum(map(sys.getsizeof, live._pages.values())) < 2_000
    live = LiveMessages(0)
    for number in range(PAGE):  # all but one is gone before the next page begins
        live.add(1024 * number, message(1024 * number))
    for number in range(1, PAGE):
        live.pop(1024 * number)
    live.add(1024 * PAGE, message(1024 * PAGE))
    assert sys.getsizeof(live._pages[0]) < 500
    assert max(LEFT) == 4096
    live.check()


def test_many_pages_with_little_are_looked_at_some_at_a_time() -> None:
    live = LiveMessages(0)
    for number in range(3000):
        live.add(1024 * PAGE * number, message(1024 * PAGE * number))
    found, last = live.behind(-1, 5000)
    assert len(found) < 1000
    assert last == PAGE * (len(found) - 1)
    assert live.drop(5000)
    assert len(live) > 2000


def test_all_are_let_go_of_some_at_a_time() -> None:
    live = LiveMessages(3)
    for number in range(0, 5 * PAGE, 1000):
        live.add(1024 * number + 3, message(1024 * number + 3))
    left = len(live)
    while live.drop(7):
        assert left - 7 <= len(live) < left
        left = len(live)
        live.check()
    assert not left


def test_no_dict_is_made_anew_that_holds_many() -> None:
    """That of 1,400,000 messages took 50 ms, while all others waited."""
    live = LiveMessages(0)
    for number in range(5 * PAGE):
        live.add(1024 * number, message(1024 * number))
    assert max(map(len, live._pages.values())) <= PAGE
    assert len(live._pages) == 5
