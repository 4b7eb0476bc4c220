"""A dict that is split when it is large: as a dict would have it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.split_dict import PAGES, SPLIT_AT, SplitDict


def holds(mine: SplitDict[int], model: dict[str, int]) -> None:
    assert len(mine) == len(model)
    assert dict(mine.items()) == model


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans())), st.booleans())
def test_it_holds_what_a_dict_would(steps: list[tuple[int, bool]], is_split: bool) -> None:
    mine, model = SplitDict[int](), dict[str, int]()
    if is_split:
        mine._split()
    for number, is_set in steps:
        key = f"k{number}"
        if is_set:
            model[key] = number
            mine[key] = number
        elif key in model:
            del model[key]
            del mine[key]
        else:
            with pytest.raises(KeyError):
                del mine[key]
        holds(mine, model)
        assert mine.get(key) == model.get(key)
        assert (key in mine) == (key in model)
        assert 5 not in mine


def test_a_large_one_is_split_and_none_of_its_pages_holds_many() -> None:
    """Python makes a dict anew when it is full: with 1,400,000 keys for 50 ms."""
    mine, model = SplitDict[int](), dict[str, int]()
    for number in range(3 * SPLIT_AT):
        model[f"k{number}"] = number
        mine[f"k{number}"] = number
    holds(mine, model)
    assert not mine._whole
    assert max(map(len, mine._pages)) < 3 * SPLIT_AT / PAGES * 2
    assert mine.get("k7") == 7
    assert mine.get("none") is None
    while len(mine) > 0:
        before = len(mine)
        assert mine.drop(7_000) == (before >= 7_000)
        assert len(mine) == max(before - 7_000, 0)
    assert not mine.drop(1)


def test_a_small_one_is_not_split() -> None:
    mine = SplitDict[int]()
    for number in range(100):
        mine[f"k{number}"] = number
    assert not mine._pages
    assert mine.drop(40)
    assert len(mine) == 60
