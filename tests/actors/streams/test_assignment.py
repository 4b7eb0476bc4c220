"""Who reads which partitions: evenly, and with as few changes as can be."""

from hypothesis import given
from hypothesis import strategies as st

from actors.streams.assignment import assigned


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.integers(0, 11)), min_size=1), st.integers(1, 12))
def test_shares_are_even_and_no_more_changes_hands_than_must(had: dict[str, set[int]], partitions: int) -> None:
    taken: set[int] = set()
    held: dict[str, list[int]] = {}
    for member, its in had.items():
        held[member] = sorted(one for one in its - taken if one < partitions)
        taken |= its
    found = assigned(held, partitions)
    assert sorted(index for its in found.values() for index in its) == list(range(partitions))
    counts = sorted(map(len, found.values()))
    assert counts[-1] - counts[0] <= 1
    stays = sum(len({*found[member]} & {*its}) for member, its in held.items())
    share, larger = divmod(partitions, len(held))
    shares = [share + 1] * larger + [share] * (len(held) - larger)
    there = sorted((len(its) for its in held.values()), reverse=True)
    assert stays == sum(min(has, may) for has, may in zip(there, shares, strict=True)), "as many stay as can"


def test_what_is_held_first_stays() -> None:
    assert assigned({"a": [1, 0], "b": []}, 2) == {"a": [1], "b": [0]}


def test_nobody_has_nothing() -> None:
    assert assigned({}, 3) == {}
