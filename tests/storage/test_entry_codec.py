"""The entry codec: what goes in comes out, and nothing damaged does."""

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import entry_codec
from storage.entry import StoredEntry
from storage.entry_codec import ENTRY_VERSION
from storage.errors import DamagedError, UnknownFormatError
from storage.message_ids import message_id
from storage.records import Bury, Configure, Confirm, Deliver, Produce, Record, Remove

NAMES = st.text(min_size=1, max_size=20)
IDS = st.lists(st.integers(1, 2**53 - 1), min_size=1, max_size=5)
TIMES = st.floats(0, 4e9)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record."""
    ids = draw(IDS)
    times = [draw(TIMES) for _ in ids]
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return Produce(
            draw(NAMES), ids[0], draw(st.binary(max_size=50)), 1.0, times[0], 9.0, 60.0, draw(st.integers(-9, 9)), None
        )
    if kind == 1:
        return Deliver(draw(NAMES), ids, ids, times, [1 for _ in ids])
    if kind == 2:
        return Confirm(draw(NAMES), ids, ids)
    if kind == 3:
        return Bury(draw(NAMES), draw(NAMES), ids, ids, times, times)
    if kind == 4:
        return Configure(draw(NAMES), 5, 1.0, 2.0, 3, draw(st.none() | NAMES), draw(st.booleans()))
    return Remove(draw(NAMES))


@given(st.lists(records(), min_size=1, max_size=10), st.integers(1, 2**40), TIMES)
def test_an_entry_comes_back_as_it_was(made: list[Record], first: int, time: float) -> None:
    data = entry_codec.encode(7, first, time, made)
    decoded = entry_codec.decode(data, "here")
    assert decoded.records == made
    assert (decoded.vote_id, decoded.first_trans_id, decoded.time) == (7, first, time)
    assert entry_codec.stored_entry(data) == StoredEntry(first, decoded.last_trans_id, 7, data)


@given(st.lists(records(), min_size=1, max_size=3), st.data())
def test_any_changed_byte_is_noticed(made: list[Record], data: st.DataObject) -> None:
    encoded = bytearray(entry_codec.encode(1, 1, 1.0, made))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedError):
        entry_codec.decode(bytes(encoded), "here")


def test_a_kind_of_a_newer_version_is_an_error_that_says_so() -> None:
    payload = msgspec.msgpack.encode([ENTRY_VERSION, 1, 1, 1.0, [[99, "queue", "news"]]])
    data = zlib.crc32(payload).to_bytes(4, "big") + payload
    with pytest.raises(UnknownFormatError, match="knows more than this one"):
        entry_codec.decode(data, "log entry 1")


def test_an_entry_is_plain_msgpack_behind_its_checksum() -> None:
    message = Produce("mail", message_id(5, 0), b'"x"', 1.0, 2.0, 3.0, 60.0, 4, "k")
    loose = entry_codec.decode_loosely(entry_codec.encode(1, 5, 9.5, [message]))
    assert loose == [1, 1, 5, 9.5, [[1, "mail", 5120, b'"x"', 1.0, 2.0, 3.0, 60.0, 4, "k", 0, 0, 0, 0, None]]]


def test_what_came_from_elsewhere_is_read_once_and_kept_no_longer() -> None:
    data = entry_codec.encode(7, 5, 1.0, [Remove("q")])
    came = entry_codec.received_entry(data, "here")
    kept = came.read
    assert kept is not None
    assert entry_codec.read(came, "here") is kept
    assert came.read is None
    assert entry_codec.read(came, "here") == kept, "a second time it is decoded"
