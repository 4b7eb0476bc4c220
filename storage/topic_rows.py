"""What LMDB keeps of topics, groups and producers: see `storage.topics`."""

from typing import Final

import msgspec

from storage.partition import Partition
from storage.producers import Seen
from storage.records import Prepare, Topic
from storage.topic_keys import (
    COUNT_ROW,
    GROUP_ROW,
    NUMBER_BYTES,
    PREPARED_ROW,
    PRODUCER_ROW,
    TOPIC_ROW,
    prepared_key,
    topic_key,
)


class PartitionRow(msgspec.Struct, array_like=True, gc=False):
    """What LMDB keeps of a partition beside its blocks. All messages before `base` are in these, or gone."""

    first: int
    first_position: int
    first_at: float
    base: int
    base_position: int
    last_at: float


class TopicRow(msgspec.Struct, array_like=True):
    """What LMDB keeps of a topic."""

    settings: Topic
    partitions: list[PartitionRow]


class GroupRow(msgspec.Struct, array_like=True, gc=False):
    """What LMDB keeps of a group of the topic `topic`."""

    topic: str
    group: str
    offsets: dict[int, int]
    at: float
    session_s: float


class ProducerRow(msgspec.Struct, array_like=True, gc=False):
    """What LMDB keeps of a producer of the topic `topic`."""

    topic: str
    producer: str
    seen: Seen


class PreparedRow(msgspec.Struct, array_like=True):
    """What LMDB keeps of a prepared transaction."""

    prepared: Prepare


encode_topic_row: Final = msgspec.msgpack.Encoder().encode
decode_topic_row: Final = msgspec.msgpack.Decoder(TopicRow).decode
decode_group_row: Final = msgspec.msgpack.Decoder(GroupRow).decode
decode_producer_row: Final = msgspec.msgpack.Decoder(ProducerRow).decode
decode_prepared_row: Final = msgspec.msgpack.Decoder(PreparedRow).decode
decode_count_row: Final = msgspec.msgpack.Decoder(int).decode


def check_row(key: bytes, content: bytes) -> None:
    """Raise what a decoder raises, or ValueError, for what is no row of a topic, or one under another key."""
    kind = key[:1]
    if kind == TOPIC_ROW:
        fits = topic_key(decode_topic_row(content).settings.queue) == key
    elif kind == GROUP_ROW:
        fits = key[1 + NUMBER_BYTES :] == decode_group_row(content).group.encode()
    elif kind == PRODUCER_ROW:
        fits = key[1 + NUMBER_BYTES :] == decode_producer_row(content).producer.encode()
    elif kind == PREPARED_ROW:
        fits = prepared_key(decode_prepared_row(content).prepared.xid) == key
    else:
        fits = key == COUNT_ROW and decode_count_row(content) > 0
    if not fits:
        raise ValueError(f"a row of a topic under another key: {key[:40]!r}")


def partition_rows(partitions: list[Partition]) -> list[PartitionRow]:
    """Make what is kept of partitions."""
    return [
        PartitionRow(one.first, one.first_position, one.first_at, one.base, one.base_position, one.last_at)
        for one in partitions
    ]
