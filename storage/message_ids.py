"""The numbers of messages: a message has that of the record that produced it, with its shard in it."""

from typing import Final

from storage.message import Message

SHARDS_MAX: Final = 1024
"""A message id is its produce record's trans_id times this, plus its shard."""


def message_id(trans_id: int, shard: int) -> int:
    """Make the id of the message that record `trans_id` of `shard` produces: unique in the cluster, below 2**53."""
    return trans_id * SHARDS_MAX + shard


def produced_by(msg_id: int) -> int:
    """Give the record that produced the message of that id."""
    return msg_id // SHARDS_MAX


def newest_record(message: Message) -> int:
    """Give the trans_id of a live message's newest record."""
    return message.last or produced_by(message.msg_id)


def named(messages: list[Message]) -> tuple[list[int], list[int]]:
    """How a record names live messages: their ids, and each one's newest record before it."""
    return [message.msg_id for message in messages], [newest_record(message) for message in messages]
