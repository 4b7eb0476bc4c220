"""Which numbers a reader could not read: judged without reading any."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from net.protocols.json_payload import unreadable
from tests.cost import growth

DIGITS = st.text("0123456789", min_size=1, max_size=30)
WHOLE = st.one_of(st.just("0"), st.from_regex(r"[1-9][0-9]{0,20}", fullmatch=True), st.just("9" * 308))
NUMBERS = st.builds(
    lambda sign, whole, fraction, exponent: sign + whole + fraction + exponent,
    st.sampled_from(["", "-"]),
    WHOLE,
    st.one_of(st.just(""), DIGITS.map(lambda digits: "." + digits), st.just("." + "0" * 300 + "1")),
    st.one_of(
        st.just(""),
        st.builds(
            lambda mark, sign, digits: mark + sign + digits,
            st.sampled_from(["e", "E"]),
            st.sampled_from(["", "+", "-"]),
            st.one_of(st.integers(280, 320).map(str), st.integers(0, 30).map(str), st.just("000308"), DIGITS),
        ),
    ),
)
STRINGS = st.text(st.sampled_from('"\\e1.9x'), max_size=60).map(json.dumps)


def judged(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.ValidationError:
        return False
    return True


@given(NUMBERS)
@example("1.7976931348623157e308")
@example("1.7976931348623158e308")
@example("1.7976931348623159e308")
@example("0.00017976931348623158e312")
@example("17976931348623158" + "0" * 292 + ".0")
@example("17976931348623159" + "0" * 292 + ".0")
@example(str(2**1024 - 2**970) + ".0")
@example(str(2**1024 - 2**970 - 1) + ".9")
@example("0." + str(2**1024 - 2**970) + "1e309")
@example("0." + "0" * 500 + "17976931348623158e809")
@example("1" * 4301)
@example("-" + "9" * 4300)
@example("0e999999999999999999999")
@example("0.0e9999")
@example("1e-99999999999999999999")
def test_a_number_is_judged_as_its_reader_would(number: str) -> None:
    assert (unreadable(number.encode()) is None) == judged(number.encode())


@given(
    st.lists(st.one_of(NUMBERS, STRINGS, st.just('"' + "x" * 100 + '1e999"')), max_size=6),
    st.sampled_from([",", " , "]),
)
def test_what_stands_in_strings_is_no_number(values: list[str], between: str) -> None:
    text = ("[" + between.join(values) + "]").encode()
    assert (unreadable(text) is None) == judged(text)


@pytest.mark.parametrize("number", [b"1e400", b"1" * 4301])
def test_the_reason_is_the_readers(number: bytes) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(number)
    assert unreadable(b'["1", ' + number + b"]") == str(error.value).lower()


def test_escapes_take_time_in_proportion() -> None:
    """Each had been followed by a search to the end of the string: Russian text of 4 MiB held everybody up for 4 s."""

    def text(count: int) -> bytes:
        return b'["' + b"\\u0434" * count + b'"]'

    part, whole = text(20_000), text(200_000)
    assert growth(lambda: unreadable(part), lambda: unreadable(whole)) < 27
