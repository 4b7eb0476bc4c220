"""RESP, cut anyhow: what comes of it is the same, and what is none is said as Redis says it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from net.protocols.resp_framing import Broken, RespReader, error, split_words, strings

BYTES_MAX = 4000


def fed(pieces: list[bytes]) -> list[list[bytes] | Broken]:
    reader = RespReader(BYTES_MAX)
    found: list[list[bytes] | Broken] = []
    for piece in pieces:
        came = reader.feed(piece)
        while reader.has_more:
            came += reader.feed(b"")
        for one in came:
            found.append(one)
            if isinstance(one, Broken):
                return found
    return found


@given(
    st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=5), max_size=5),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_arrays_of_any_bytes_come_whole_however_they_are_cut(requests: list[list[bytes]], cuts: list[int]) -> None:
    stream = b"".join([strings(arguments) for arguments in requests])
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert fed(pieces) == requests
    assert fed([stream[at : at + 1] for at in range(len(stream))]) == requests


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"PING", [b"PING"]),
        (b"  SET\t a   b \r", [b"SET", b"a", b"b"]),
        (b'a "b c" d', [b"a", b"b c", b"d"]),
        (b"a 'b \\' c' d", [b"a", b"b ' c", b"d"]),
        (b'"\\x41\\n\\"" \'\\n\'', [b'A\n"', b"\\n"]),
        (b'""', [b""]),
        (b"", []),
        (b'a"b', None),
        (b'"a"b', None),
        (b"'a", None),
        (b'"a\\"', None),
    ],
)
def test_a_line_is_words_with_quotes(line: bytes, words: list[bytes] | None) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*" + b"1" * 40, "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$4001\r\n", "invalid bulk length"),
        (b"*1\r\n$" + b"1" * 40, "invalid bulk length"),
        (b"*1\r\n:5\r\n", "expected '$', got ':'"),
        (b"x" * (64 << 10) + b"yy", "too big inline request"),
        (b'PING "a\r\n', "unbalanced quotes in request"),
    ],
)
def test_what_is_no_request_is_said_as_redis_says_it(stream: bytes, why: str) -> None:
    assert fed([stream])[-1] == Broken(why)
    assert fed([stream[at : at + 1] for at in range(len(stream))])[-1] == Broken(why)


@pytest.mark.parametrize("stream", [b"POST / HTTP/1.1\r\n", b"Host: x\r\n", b"\x16\x03\x01\x02"])
def test_browsers_and_tls_are_not_answered(stream: bytes) -> None:
    assert fed([stream]) == [Broken(None)]


def test_empty_arrays_and_lines_are_passed_over() -> None:
    assert fed([b"*0\r\n\r\n*-1\r\n\n*1\r\n$4\r\nPING\r\n"]) == [[b"PING"]]


def test_many_small_arguments_count_with_what_they_take() -> None:
    reader = RespReader(1 << 20)
    reader.feed(b"*100000\r\n" + b"$0\r\n\r\n" * 20_000)
    while reader.has_more:
        reader.feed(b"")
    assert reader.partial_bytes >= 20_000 * 50, "each is an object"


def test_a_request_of_more_bytes_than_allowed_in_small_arguments_ends() -> None:
    found = fed([b"*1000000\r\n" + b"$1\r\na\r\n" * 30_000])
    assert found == [Broken("too big request")]


def test_no_line_break_leaves_within_an_error() -> None:
    said = error("ERR a\r\nb\x00c" + "x" * 1000)
    assert said.endswith(b"\r\n")
    assert b"\r\n" not in said[:-2]
    assert len(said) < 600
