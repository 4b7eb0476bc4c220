"""Records become entries of bounded size, and what belongs together is committed together."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from storage.entry_codec import decode
from storage.entry_making import make_entries
from storage.message import Message, message_of
from storage.message_ids import message_id
from storage.records import Produce


def messages(count: int, size: int) -> list[Message]:
    return [Message("q", message_id(n, 0), b"x" * size, 0.0, 0.0, 1.0, 0.0, 0, None) for n in range(1, count + 1)]


def sizes(records: list[Message], bytes_max: int, together: Sequence[tuple[int, int]] = ()) -> list[int]:
    entries = make_entries(1, 1, 0.0, records, bytes_max, together)
    return [entry.last_trans_id - entry.first_trans_id + 1 for entry in entries]


def test_entries_are_closed_when_they_pass_their_size() -> None:
    assert sizes(messages(10, 1000), 3000) == [3, 3, 3, 1]


def test_a_request_that_is_all_or_nothing_is_in_one_entry() -> None:
    assert sizes(messages(10, 1000), 3000, [(2, 9)]) == [9, 1]
    assert sizes(messages(10, 1000), 3000, [(0, 10)]) == [10]


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=12), st.integers(1, 5000))
def test_no_group_is_ever_parted_and_nothing_is_lost(requests: list[tuple[int, bool]], bytes_max: int) -> None:
    together: list[tuple[int, int]] = []
    count = 0
    for size, is_group in requests:
        if is_group:
            together.append((count, count + size))
        count += size
    records = messages(count, 700)
    entries = make_entries(3, 1, 9.0, records, bytes_max, together)
    decoded = [record for entry in entries for record in decode(entry.data, "test").records]
    assert [message_of(record).record() for record in decoded if isinstance(record, Produce)] == [
        record.record() for record in records
    ]
    ends = {entry.last_trans_id for entry in entries}
    for begin, end in together:
        assert not ends & set(range(begin + 1, end)), "an entry ends in the middle of a group"
