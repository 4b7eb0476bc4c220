"""Which topic and partition a request is about."""

from typing import Final
from zlib import crc32

from actors.messages.call import Call
from actors.shard.ledger import Ledger
from quorate.protocol import ErrorWord
from storage.partition import Partition
from storage.tails import TopicState

_crc32: Final = crc32


def no_such_topic(name: str | None) -> str:
    """Say that there is none of that name."""
    return f"there is no topic {name!r}: create it (qctl topic create)"


def topic_of(call: Call, ledger: Ledger) -> TopicState | None:
    """Find the topic that a request names; None if it was refused."""
    name = call.request.topic
    if name is None:
        ledger.refuse_field(call, "topic", "is missing")
        return None
    topic = ledger.state.topics.by_name.get(name)
    if topic is None and name in ledger.state.queues:
        ledger.refuse(call, ErrorWord.IS_A_QUEUE, f"{name!r} is a queue")
    elif topic is None:
        ledger.refuse(call, ErrorWord.NO_SUCH_TOPIC, no_such_topic(name))
    return topic


def partition_fault(topic: TopicState, index: int) -> str | None:
    """Why there is no such partition; None: there is."""
    count = len(topic.partitions)
    return None if index < count else f"partition {index}: the topic {topic.name!r} has {count}, from 0 on"


def closed_fault(topic: TopicState, index: int) -> str | None:
    """Why nothing may be appended to that partition; None: it may be."""
    if index in topic.settings.closed:
        return f"partition {index} of the topic {topic.name!r} is closed: qctl topic configure opens it"
    return None


def partition_of(call: Call, topic: TopicState, ledger: Ledger) -> Partition | None:
    """Find the partition that a request names; the only one, where it names none. None if it was refused."""
    index = call.request.partition
    if index is None and len(topic.partitions) > 1:
        ledger.refuse_field(call, "partition", f"is missing: the topic {topic.name!r} has {len(topic.partitions)}")
        return None
    fault = partition_fault(topic, index or 0)
    if fault is not None:
        ledger.refuse(call, ErrorWord.WRONG_PARTITION, fault)
        return None
    return topic.partitions[index or 0]


def partition_of_key(key: str, partitions: int) -> int:
    """Give the partition of a key: the CRC-32 (as zlib's) of its UTF-8, modulo the number of partitions."""
    return _crc32(key.encode()) % partitions
