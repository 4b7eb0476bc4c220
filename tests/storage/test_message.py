"""A live message, and the record and row that it is on disk."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.entry_codec import decode, encode
from storage.kinds import shown
from storage.log_store import decode_message_row
from storage.message import Message, message_of, shared_marks, weight
from storage.records import BURY, DROP, EXPIRE, KEEP, NUMBERED_MARKS, Produce
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


@pytest.mark.parametrize(("number", "marks"), NUMBERED_MARKS.items())
def test_marks_of_jobs_are_a_number_on_disk_and_one_object_in_memory(number: int, marks: dict[str, Any]) -> None:
    message = Message("q", 1, b"x", 1.0, 1.0, 2.0, 0.0, 0, None, marks=shared_marks(dict(marks)))
    record = decode(encode(1, 2, 3.0, [message]), "here").records[0]
    assert isinstance(record, Produce)
    assert record.marks == number
    assert record.all_marks() == marks
    assert message_of(record).marks is message.marks is marks
    assert weight(record) == weight(message) == 1
    assert shown(7, 3.0, record).items() >= marks.items()


@pytest.mark.parametrize("marks", [{EXPIRE: DROP}, {EXPIRE: BURY, "delay": 1.0}, {EXPIRE: DROP, KEEP: True}])
def test_other_marks_are_told_by_their_names(marks: dict[str, Any]) -> None:
    message = Message("q", 1, b"x", 1.0, 1.0, 2.0, 0.0, 0, None, marks=shared_marks(marks))
    record = decode(encode(1, 2, 3.0, [message]), "here").records[0]
    assert isinstance(record, Produce)
    assert record.marks == message_of(record).marks == marks


@pytest.mark.parametrize("number", [0, 5, -1, True])
def test_a_number_that_stands_for_no_marks_is_damage(number: int) -> None:
    row = msgspec.msgpack.encode((1, "q", 1, b"x", 1.0, 1.0, 2.0, 0.0, 0, None, 0, 0, 0, 0, number))
    with pytest.raises(msgspec.ValidationError):
        decode_message_row(row)
