"""A live message, and the record and row that it is on disk."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from storage.entry_codec import decode, encode
from storage.log_store import decode_message_row
from storage.message import Message, message_of
from storage.records import Produce
from storage.trimming import encode_row

NUMBERS = st.integers(-1, 2**53) | st.sampled_from([0, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32])
TIMES = st.floats(allow_nan=False)
FIELDS = st.tuples(
    st.text(max_size=40),
    NUMBERS,
    st.binary(max_size=300),
    TIMES,
    TIMES,
    TIMES,
    TIMES,
    st.integers(-(2**31), 2**31),
    st.none() | st.text(max_size=40),
    NUMBERS,
    st.integers(0, 4),
    NUMBERS,
    st.integers(0, 1),
    st.none() | st.dictionaries(st.text(max_size=5), st.none() | st.integers(-9, 9) | st.text(max_size=5)),
)


@given(FIELDS)
def test_a_message_is_written_as_its_record_and_read_as_it_was(fields: tuple[Any, ...]) -> None:
    """Also by those versions that had one class for both: the bytes are the record's."""
    record, message = Produce(*fields), Message(*fields)
    assert encode_row(message.record()) == msgspec.msgpack.encode(record)
    assert encode(1, 2, 3.0, [message, message]) == encode(1, 2, 3.0, [record, record])
    assert decode(encode(1, 2, 3.0, [message]), "here").records == [record]
    assert message_of(decode_message_row(encode_row(message.record()))).record() == message.record()
