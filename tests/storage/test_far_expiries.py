"""Messages that expire far from now, beside a plain set of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import far_expiries
from storage.far_expiries import AHEAD_S, PART, STRETCH_S, TRIM, FarExpiries
from storage.message import Message
from tests.examples import examples

NOW = 1_800_000_000.0


def message(msg_id: int, after_s: float) -> Message:
    return Message("q", msg_id, b"", NOW, NOW, NOW + after_s, 5.0, 0, None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 60), st.sampled_from([10.0, 200.0, 210.0, 5000.0])),
        st.tuples(st.just("remove"), st.integers(0, 100), st.none()),
        st.tuples(st.just("near"), st.integers(1, 5), st.none()),
    ),
    max_size=80,
)


@pytest.mark.parametrize("part", [1, 3, PART])
@given(STEPS)
@settings(max_examples=examples(300))
def test_it_holds_what_a_set_holds(part: int, steps: list[tuple[str, int, float | None]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(far_expiries, "PART", part)
        _it_holds_what_a_set_holds(steps)


def _it_holds_what_a_set_holds(steps: list[tuple[str, int, float | None]]) -> None:
    far, held = FarExpiries(), dict[int, Message]()
    for kind, number, after_s in steps:
        if kind == "add" and after_s is not None and number not in held:
            one = message(number, after_s)
            is_far = (one.expires_at // STRETCH_S) * STRETCH_S - AHEAD_S > NOW
            same = [m.msg_id for m in held.values() if m.expires_at // STRETCH_S == one.expires_at // STRETCH_S]
            taken = far.add(one, NOW)
            assert taken == (is_far and number > max(same, default=0))
            if taken:
                held[number] = one
        elif kind == "remove" and held:
            far.remove(held.pop(sorted(held)[number % len(held)]))
        elif kind == "near":
            first = min((m.expires_at // STRETCH_S for m in held.values()), default=None)
            wanted = sorted(m.msg_id for m in held.values() if m.expires_at // STRETCH_S == first)
            assert far.near(number) == wanted[:number]
            assert far.next_at == (None if first is None else first * STRETCH_S - AHEAD_S)
        far.check(list(held.values()))
        assert len(far) == len(held)


def test_what_is_gone_from_its_head_or_its_middle_takes_no_room_for_long() -> None:
    far = FarExpiries()
    messages = [message(number, 5000.0) for number in range(1, 10 * TRIM)]
    for one in messages:
        assert far.add(one, NOW)
    for one in [*messages[: 4 * TRIM], *messages[5 * TRIM : -1 : 2]]:
        far.remove(one)
    [parts] = far._stretches.values()
    for part in parts:
        assert len(part.ids) < 4 * part.live + 2 * TRIM
        assert len(part.ids) - part.head < 2 * part.live + 2 * TRIM
    far.check([*messages[4 * TRIM : 5 * TRIM], *messages[5 * TRIM + 1 : -1 : 2], messages[-1]])


def test_stretches_that_come_and_go_leave_nothing() -> None:
    """Each that was the nearest had all the others looked at: 5,000 that went one after the other took 0.6 s."""
    far = FarExpiries()
    for number in range(1000):
        for after_s in (5000.0, 9000.0 - 64.0 * (number % 50)):
            one = message(2 * number + 2 + (after_s == 5000.0), after_s)
            assert far.add(one, NOW)
            far.remove(one)
        far.check([])
    assert len(far._numbers) < 40
