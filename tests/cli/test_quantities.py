"""Durations, sizes and times: what is written is what is read."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from cli.quantities import bytes_written, clock, duration, from_now, moment, seconds, size, written

NOON = 1_795_867_200.0  # 2026-11-28T12:00:00Z


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("90", 90), ("5s", 5), ("1h30m", 5400), ("1h 30m", 5400), ("15min", 900), ("250ms", 0.25), ("1.5h", 5400)],
        *[("2w", 1_209_600), ("forever", 0), ("0", 0)],
    ],
)
def test_durations_are_read_as_people_write_them(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "s", "5 seconds", "-5s", "1h30", "5x", "1e3", "٣s"])
def test_what_is_no_duration_is_a_wrong_option(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"duration: 5s, 250ms, 15m, 1h30m"):
        duration(text)


@given(st.integers(0, 10**7))
def test_a_duration_that_is_written_is_read_again(value: int) -> None:
    read = seconds(written(value))
    assert read <= value
    assert value - read < max(value / 7, 1), "the two greatest units of it"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (5, "5s"),
        (5.5, "5.5s"),
        (5400, "1h30m"),
        (86_400, "1d"),
        (90_061, "1d1h"),
        (3605, "1h"),
    ],
)
def test_durations_are_written(value: float, text: str) -> None:
    assert written(value) == text


def test_sizes_are_written_as_they_are_read() -> None:
    assert [bytes_written(value) for value in (0, 999, 1500, 10**7, 3 * 10**12)] == [
        "0B",
        "999B",
        "1.5KB",
        "10MB",
        "3TB",
    ]
    assert size(bytes_written(10**7)) == 10**7


def test_instants_are_for_people() -> None:
    assert clock(NOON, NOON + 60) == "12:00:00Z"
    assert clock(NOON, NOON + 86_400) == "2026-11-28T12:00:00Z"
    assert clock(253_402_300_799.0) == from_now(253_402_300_799.0) == "never"
    assert [from_now(NOON + left, NOON) for left in (5, -200)] == ["in 5s", "3m20s ago"]
    assert from_now(0) == ""


def test_a_moment_is_from_now_or_a_time() -> None:
    assert moment("2026-11-28T12:00:00Z") == NOON
    assert (moment("1h"), moment("1795867200"), moment("2.5")) == (3600, NOON, 2.5)
    with pytest.raises(ValueError, match="neither a duration"):
        moment("tomorrow")
