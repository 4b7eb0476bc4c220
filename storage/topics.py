"""The topics of a shard: a part of its state, changed by its kinds of record (`storage.kinds`).

A topic has partitions (`storage.partition`), to which messages are appended; groups, each with the offsets at which it
goes on; and producers, which number their appends, so that one is known that comes again. Rules here:

- A record names its topic's number. One about a topic that is not there any more changes nothing.
- Applying the records from any kept point on to a state that already holds them ends in the same state.
- Blocks hold committed messages only, in order, each once: see `storage.tails`.

Topics, groups and producers are rows of LMDB beside the queues' rows: when the log's head goes, LMDB has what they are
by then. The messages that begin in the head are in blocks before it goes (`close_until`).
"""

from collections.abc import Callable

from storage.blocks import kept_of
from storage.partition import Partition
from storage.prepared import Prepared
from storage.producers import Producers
from storage.records import Append, Decide, DropGroup, DropTopic, Offsets, OfTopic, Prepare, Retire, Topic
from storage.tails import Group, Tails, TopicState
from storage.topic_keys import group_key
from storage.undo import Undo

BlocksEnd = Callable[[int, int], tuple[int, int] | None]
"""Of a topic's number and a partition: at which offset and position its blocks end; None: there are none."""


class Topics:
    """Of one shard, by name; `numbers`: by their numbers.

    `tails`: their messages in memory. `places`: of all groups, one for each partition that it may read. `drops`: so
    many were removed here. `blocks_end`: while records are replayed, where blocks end; None: they are not.
    """

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.by_name: dict[str, TopicState] = {}
        self.numbers: dict[int, TopicState] = {}
        self.producers = Producers()
        self.next_number = 1
        self.partition_count = self.places = 0
        self.tails = Tails(self.numbers)
        self.prepared = Prepared()
        self.blocks_end: BlocksEnd | None = None
        self.drops = 0

    # -- records -----------------------------------------------------------------------------------------------

    def _of(self, record: OfTopic) -> TopicState | None:
        """Find the topic that a record is about; None: it is not there any more."""
        topic = self.numbers.get(record.number)
        return topic if topic is not None and topic.name == record.queue else None

    def set_topic(self, undo: Undo, trans_id: int, record: Topic) -> None:
        """Create a topic, or change its settings."""
        known = self.by_name.get(record.queue)
        if known is not None and known.number > record.number:
            return  # in a replay: another has its name by now
        undo.was(trans_id, self, "next_number", self.next_number)
        self.next_number = max(self.next_number, record.number + 1)
        if known is None or known.number < record.number:
            topic = TopicState(record)
            self.begin(topic.partitions)
            self.enter(topic)
            undo.then(trans_id, lambda: self._leave(topic))
            return
        before, count = known.settings, len(known.partitions)
        known.settings = record
        known.partitions += [Partition(record.number, index) for index in range(count, record.partitions)]
        self.begin(known.partitions[count:])
        added = len(known.partitions) - count
        self.partition_count += added
        self.places += added * len(known.groups)

        def restore() -> None:
            known.settings = before
            self.partition_count -= added
            self.places -= added * len(known.groups)
            del known.partitions[count:]

        undo.then(trans_id, restore)

    def begin(self, partitions: list[Partition]) -> None:
        """In a replay: let partitions go on behind their blocks, where these reach further than is known."""
        blocks_end = self.blocks_end
        for partition in partitions if blocks_end is not None else ():
            assert blocks_end is not None
            end = blocks_end(partition.number, partition.index)
            if end is not None and end[0] > partition.base:
                partition.jump(*end)

    def enter(self, topic: TopicState) -> None:
        """Have a topic."""
        self.by_name[topic.name] = self.numbers[topic.number] = topic
        self.partition_count += len(topic.partitions)
        self.places += len(topic.partitions) * len(topic.groups)
        for partition in topic.partitions:
            self.tails.count(partition)

    def _leave(self, topic: TopicState) -> None:
        del self.by_name[topic.name]
        del self.numbers[topic.number]
        self.partition_count -= len(topic.partitions)
        self.places -= len(topic.partitions) * len(topic.groups)
        for partition in topic.partitions:
            self.tails.discount(partition)

    def append(self, undo: Undo, trans_id: int, record: Append) -> None:
        """Add a message to its partition."""
        topic = self._of(record)
        if topic is None:
            return
        partition = topic.partitions[record.partition]
        if record.offset < partition.next:
            pass  # a block has it: rows may be of a later moment than the log behind which they stand
        elif self.blocks_end is not None:
            self._append_again(partition, trans_id, record)
        else:
            if undo.is_on:
                last_at = partition.last_at
                undo.then(trans_id, lambda: self.tails.take_back(partition, last_at))
            self.tails.add(partition, kept_of(trans_id, self.shard, record, partition.next_position))
        if record.producer is not None:
            self.producers.note(undo, trans_id, record, record.producer)

    def _append_again(self, partition: Partition, trans_id: int, record: Append) -> None:
        """As `append`, in a replay."""
        self.tails.discount(partition)
        if record.offset > partition.next:  # of a topic that a later record removes: what it had is gone
            partition.jump(record.offset, partition.next_position)
        partition.add(kept_of(trans_id, self.shard, record, partition.next_position))
        self.tails.count(partition)

    def retire(self, undo: Undo, trans_id: int, record: Retire) -> None:
        """Note that messages are not kept any more. They go when that is committed: see `settle`."""
        topic = self._of(record)
        if topic is None:
            return
        for index, offset, position, at in zip(
            record.partitions, record.offsets, record.positions, record.ats, strict=True
        ):
            partition = topic.partitions[index]
            if offset <= partition.first:
                continue
            for field in ("first", "first_position", "first_at"):
                undo.was(trans_id, partition, field, getattr(partition, field))
            partition.first, partition.first_position, partition.first_at = offset, position, at
            if self.blocks_end is not None and offset > partition.next:
                self.tails.discount(partition)
                partition.jump(offset, position)
        self.tails.let_go_later(trans_id, record)

    def drop_topic(self, undo: Undo, trans_id: int, record: DropTopic) -> None:
        """Remove a topic, with its groups and producers."""
        topic = self._of(record)
        if topic is None:
            return
        self._leave(topic)
        self.drops += 1
        undo.then(trans_id, lambda: self.enter(topic))
        self.producers.drop_of(undo, trans_id, topic.number)
        self.producers.forgotten.update([group_key(topic.number, group) for group in topic.groups])
        self.tails.let_go_later(trans_id, record)

    def set_offsets(self, undo: Undo, trans_id: int, record: Offsets) -> None:
        """Note where a group goes on."""
        topic = self._of(record)
        if topic is None:
            return
        known = topic.groups.get(record.group)
        undo.then(trans_id, lambda: self.put_group(topic, record.group, known))
        offsets = {} if known is None else dict(known.offsets)
        offsets.update(zip(record.partitions, record.offsets, strict=True))
        self.put_group(topic, record.group, Group(offsets, record.at, record.session_s))

    def drop_group(self, undo: Undo, trans_id: int, record: DropGroup) -> None:
        """Remove a group."""
        topic = self._of(record)
        if topic is None:
            return
        known = topic.groups.get(record.group)
        self.put_group(topic, record.group, None)
        undo.then(trans_id, lambda: self.put_group(topic, record.group, known))

    def prepare(self, undo: Undo, trans_id: int, record: Prepare) -> None:
        """Keep a prepared transaction."""
        self.prepared.prepare(undo, trans_id, record)

    def decide(self, undo: Undo, trans_id: int, record: Decide) -> None:
        """End a prepared transaction."""
        self.prepared.decide(undo, trans_id, record)

    def put_group(self, topic: TopicState, name: str, group: Group | None) -> None:
        """Have a group of a topic be that; None: not be there."""
        self.places += len(topic.partitions) * ((group is not None) - (name in topic.groups))
        if group is None:
            topic.groups.pop(name, None)
        else:
            topic.groups[name] = group

    def finish_loading(self) -> None:
        """Note that all committed records are applied."""
        self.blocks_end = None
        self.tails.loaded()

    def kept(self) -> dict[int, dict[int, int]]:
        """Say what of all blocks is kept: by topic and partition from which offset on."""
        return {
            number: {partition.index: partition.first for partition in topic.partitions}
            for number, topic in self.numbers.items()
        }

    def check(self) -> None:
        """Assert every invariant; for tests."""
        assert {topic.number for topic in self.by_name.values()} == set(self.numbers)
        assert all(topic.name == name for name, topic in self.by_name.items())
        every = [partition for topic in self.numbers.values() for partition in topic.partitions]
        assert self.partition_count == len(every)
        assert self.places == sum([len(one.partitions) * len(one.groups) for one in self.numbers.values()])
        for partition in every:
            partition.check()
        assert self.prepared.bytes == sum([one.data_bytes for one in self.prepared.by_key.values()])
        assert self.tails.weight == sum([partition.weight for partition in every])
        assert self.tails.closed_weight == sum([partition.closed_weight for partition in every])
        assert all(number in self.numbers for number, _ in self.producers.known)
