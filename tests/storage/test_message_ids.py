"""The numbers of messages and of their records."""

from storage.message import Message
from storage.message_ids import message_id, named, newest_record


def message(msg_id: int, last: int = 0) -> Message:
    return Message("q", msg_id, b"1", 1.0, 1.0, 9.0, 5.0, 0, None, last=last)


def test_an_id_is_of_a_record_and_a_shard() -> None:
    assert [message_id(7, 0), message_id(7, 1023), message_id(8, 0)] == [7168, 8191, 8192]
    assert message_id(2**43 - 1, 1023) == 2**53 - 1


def test_the_newest_record_is_that_which_produced_it_until_there_is_another() -> None:
    assert newest_record(message(message_id(7, 3))) == 7
    assert newest_record(message(message_id(7, 3), last=9)) == 9


def test_records_name_messages_by_both() -> None:
    both = [message(message_id(7, 3)), message(message_id(8, 3), last=11)]
    assert named(both) == ([message_id(7, 3), message_id(8, 3)], [7, 11])
    assert named([]) == ([], [])
