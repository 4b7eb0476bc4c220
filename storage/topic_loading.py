"""Topics from and to the rows that LMDB keeps of them."""

from collections.abc import Iterator

from storage.errors import DamagedError
from storage.producers import Seen
from storage.tails import Group, TopicState
from storage.topic_keys import (
    COUNT_ROW,
    GROUP_ROW,
    NUMBER_BYTES,
    PREPARED_ROW,
    PRODUCER_ROW,
    TOPIC_ROW,
    group_key,
    producer_key,
    topic_key,
)
from storage.topic_rows import (
    GroupRow,
    PreparedRow,
    ProducerRow,
    TopicRow,
    decode_count_row,
    decode_group_row,
    decode_prepared_row,
    decode_producer_row,
    decode_topic_row,
    encode_topic_row,
    partition_rows,
)
from storage.topics import BlocksEnd, Topics


def row_of(topics: Topics, key: bytes) -> bytes | None:
    """Make what LMDB keeps under that key; None: nothing."""
    row = _row_of(topics, key)
    return None if row is None else encode_topic_row(row)


def _row_of(topics: Topics, key: bytes) -> TopicRow | GroupRow | ProducerRow | PreparedRow | int | None:
    kind = key[:1]
    if kind == COUNT_ROW:
        return topics.next_number
    if kind == PREPARED_ROW:
        prepared = topics.prepared.by_key.get(key)
        return None if prepared is None else PreparedRow(prepared)
    if kind == TOPIC_ROW:
        topic = topics.by_name.get(key[1:].decode())
        return None if topic is None else TopicRow(topic.settings, partition_rows(topic.partitions))
    number, name = int.from_bytes(key[1 : 1 + NUMBER_BYTES], "big"), key[1 + NUMBER_BYTES :].decode()
    topic = topics.numbers.get(number)
    if topic is None:
        return None
    if kind == GROUP_ROW:
        group = topic.groups.get(name)
        return None if group is None else GroupRow(topic.name, name, group.offsets, group.at, group.session_s)
    seen = topics.producers.known.get((number, name))
    return None if seen is None else ProducerRow(topic.name, name, seen)


def all_keys(topics: Topics) -> Iterator[bytes]:
    """Go through the keys of all rows."""
    if topics.next_number > 1:
        yield COUNT_ROW
    for name, topic in topics.by_name.items():
        yield topic_key(name)
        for group in topic.groups:
            yield group_key(topic.number, group)
    for at in topics.producers.known:
        yield producer_key(*at)
    yield from topics.prepared.by_key


class Loader:
    """Puts rows into empty `topics`; records follow then. `blocks_end` finds where a partition's blocks end."""

    def __init__(self, topics: Topics, blocks_end: BlocksEnd) -> None:
        topics.blocks_end = blocks_end
        self._topics = topics
        self._held: list[tuple[int, GroupRow | ProducerRow]] = []

    def restore(self, key: bytes, content: bytes) -> None:
        """Add what a row holds, while loading. Rows come in the order of their keys. Raises what a decoder raises, or
        `DamagedError`."""
        kind = key[:1]
        if kind == COUNT_ROW:
            self._topics.next_number = max(self._topics.next_number, decode_count_row(content))
        elif kind == TOPIC_ROW:
            row = decode_topic_row(content)
            topic = TopicState(row.settings)
            if len(row.partitions) != len(topic.partitions):
                raise DamagedError(f"row of topic {topic.name!r}", "it has other partitions than its settings say")
            for partition, its in zip(topic.partitions, row.partitions, strict=True):
                partition.jump(its.base, its.base_position)
                partition.first, partition.first_position, partition.first_at = (
                    its.first,
                    its.first_position,
                    its.first_at,
                )
                partition.last_at = its.last_at
            self._topics.begin(topic.partitions)
            self._topics.enter(topic)
        elif kind == GROUP_ROW:
            self._held.append((int.from_bytes(key[1 : 1 + NUMBER_BYTES], "big"), decode_group_row(content)))
        elif kind == PREPARED_ROW:
            self._topics.prepared.put(key, decode_prepared_row(content).prepared)
        elif kind == PRODUCER_ROW:
            self._held.append((int.from_bytes(key[1 : 1 + NUMBER_BYTES], "big"), decode_producer_row(content)))
        else:
            raise DamagedError(f"row {key[:40]!r}", "there is no such row of a topic")

    def finish(self) -> None:
        """Note that all rows were given: groups and producers go to their topics."""
        producers: list[tuple[tuple[int, str], Seen]] = []
        for number, row in self._held:
            topic = self._topics.numbers.get(number)
            if topic is None or topic.name != row.topic:
                continue
            if isinstance(row, GroupRow):
                self._topics.put_group(topic, row.group, Group(row.offsets, row.at, row.session_s))
            else:
                producers.append(((number, row.producer), row.seen))
        self._held.clear()
        for at, seen in sorted(producers, key=lambda one: one[1].at):
            self._topics.producers.put(at, seen)
