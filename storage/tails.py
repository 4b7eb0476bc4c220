"""The tails of a shard's topics: the messages in memory, and when they become blocks. A part of `storage.topics`.

A message is in the tail of its partition when it is appended. When it is committed (`settle`), readers get it, and as
soon as a block is full it is in one, which is to be stored (`to_store`). The oldest tails become blocks early where all
of them take too much memory, and those in the log's head before that goes (`close_until`).
"""

from collections.abc import Iterable
from typing import Final

from storage.blocks import Block, Kept
from storage.partition import Partition
from storage.records import DropTopic, OfTopic, Retire, Topic

TAIL_BYTES_MAX: Final = 64 << 20
"""Of messages in memory that no block holds yet; beyond that the oldest get one."""


class Group:
    """A group's offsets by partition, and when it said the last of them (Unix seconds). `session_s`: see `Offsets`."""

    __slots__ = ("at", "offsets", "session_s")

    def __init__(self, offsets: dict[int, int], at: float, session_s: float) -> None:
        self.offsets = offsets
        self.at = at
        self.session_s = session_s


class TopicState:
    """One topic: its settings, as the record that set them, its partitions, and its groups by name."""

    __slots__ = ("groups", "name", "number", "partitions", "settings", "turn")

    def __init__(self, settings: Topic) -> None:
        self.name = settings.queue
        self.number = settings.number
        self.settings = settings
        self.partitions = [Partition(settings.number, index) for index in range(settings.partitions)]
        self.groups: dict[str, Group] = {}
        self.turn = 0


class Tails:
    """Of the topics in `numbers`, by their numbers, which are others'.

    `to_store`: blocks that are made and were not handed over. `gone`: from which offset on partitions are kept, and
    topics of which nothing is. `moved`: partitions that got messages which were not looked at since. `weight`: what the
    messages in tails take in memory, `closed_weight`: those in blocks that are not known to be stored (bytes). `gaps`:
    offsets, from one up to another, whose blocks this node lacks, by the topic's number and partition.
    """

    def __init__(self, numbers: dict[int, TopicState]) -> None:
        self._numbers = numbers
        self.to_store: list[Block] = []
        self.gone: dict[int, dict[int, int] | None] = {}
        self.moved: dict[Partition, None] = {}
        self.weight = self.closed_weight = 0
        self.gaps: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._open: dict[Partition, None] = {}
        self._unsettled: list[tuple[int, OfTopic]] = []

    def add(self, partition: Partition, kept: Kept) -> None:
        """Add the next message of a partition."""
        self.weight += partition.add(kept)
        self.moved[partition] = None
        self._open[partition] = None

    def take_back(self, partition: Partition, last_at: float) -> None:
        """Take the last message of a partition back; the one before was appended at `last_at`."""
        self.discount(partition)
        partition.take_back()
        partition.last_at = last_at
        self.count(partition)

    def count(self, partition: Partition) -> None:
        """Count what a partition has in memory."""
        self.weight += partition.weight
        self.closed_weight += partition.closed_weight

    def discount(self, partition: Partition) -> None:
        """Count it no more, since it is about to change."""
        self.weight -= partition.weight
        self.closed_weight -= partition.closed_weight

    def let_go_later(self, trans_id: int, record: OfTopic) -> None:
        """Let go of what a record says is not kept any more when it is committed."""
        self._unsettled.append((trans_id, record))

    @property
    def is_unsettled(self) -> bool:
        """Whether `settle` may have something to do."""
        return bool(self.moved or self._unsettled)

    def settle(self, committed: int) -> list[Partition]:
        """Note that records up to that one are committed; returns the partitions that have got messages by it."""
        grown: list[Partition] = []
        for partition in [*self.moved]:
            if partition.number not in self._numbers:
                continue  # it is dropped, which may be taken back
            before = partition.settled
            if partition.settle(committed):
                del self.moved[partition]
            if partition.settled > before:
                grown.append(partition)
                if partition.has_full:
                    self.discount(partition)
                    self._closed(partition.close_full(), partition)
        while self.weight > TAIL_BYTES_MAX and self._open:
            self._close_oldest()
        unsettled = self._unsettled
        while unsettled and unsettled[0][0] <= committed:
            self._let_go(unsettled.pop(0)[1])
        return grown

    def _close_oldest(self) -> None:
        partition = next(iter(self._open))
        if partition.number not in self._numbers or not self.close(partition):
            self._open.pop(partition, None)

    def close(self, partition: Partition) -> bool:
        """Make blocks of all that is committed of a partition's tail; returns whether there was anything."""
        count = partition.settled - partition.base
        if count:
            self.discount(partition)
            self._closed(partition.close(count), partition)
        return count > 0

    def _closed(self, blocks: list[Block], partition: Partition) -> None:
        self.count(partition)
        self.to_store += blocks
        self._open.pop(partition, None)
        if partition.tail:
            self._open[partition] = None

    def _let_go(self, record: OfTopic) -> None:
        """Let go of what a committed record says is not kept any more."""
        if isinstance(record, DropTopic):
            self.gone[record.number] = None
            for partition in [*self.moved, *self._open]:
                if partition.number == record.number:
                    self.moved.pop(partition, None)
                    self._open.pop(partition, None)
            self.gaps = {at: gaps for at, gaps in self.gaps.items() if at[0] != record.number}
            return
        topic = self._numbers.get(record.number)
        if isinstance(record, Retire) and topic is not None:
            its = self.gone.setdefault(record.number, {})
            for index in record.partitions:
                partition = topic.partitions[index]
                self.discount(partition)
                partition.retire()
                self.count(partition)
                self.fill_gaps(record.number, index, 0, partition.first)
                if its is not None:
                    its[index] = partition.first

    def close_until(self, topics: Iterable[TopicState], trans_id: int) -> None:
        """Make blocks of the messages of these topics up to record `trans_id`, which is committed."""
        for topic in topics:
            for partition in topic.partitions:
                if partition.tail and partition.tail[0].trans_id <= trans_id:
                    self.discount(partition)
                    self._closed(partition.close_until(trans_id), partition)

    def stored(self, number: int, index: int, end: int) -> None:
        """Note that the blocks of a partition up to offset `end` are stored."""
        topic = self._numbers.get(number)
        if topic is not None:
            partition = topic.partitions[index]
            self.discount(partition)
            partition.block_stored(end)
            self.count(partition)

    def fill_gaps(self, number: int, index: int, begin: int, end: int) -> None:
        """Note that the blocks of a partition that hold the offsets from `begin` up to `end` are here, or not kept."""
        gaps = self.gaps.get((number, index))
        if gaps is not None:
            left = without(gaps, begin, end)
            if left:
                self.gaps[(number, index)] = left
            else:
                del self.gaps[(number, index)]

    def is_missing(self, partition: Partition, offset: int) -> bool:
        """Whether the block that holds an offset is not here yet."""
        gaps = self.gaps.get((partition.number, partition.index), ()) if self.gaps else ()
        return any(begin <= offset < end for begin, end in gaps)

    def lacks_before(self, partition: Partition, offset: int) -> bool:
        """Whether some blocks before an offset are not here yet: what stands there can't be looked for."""
        gaps = self.gaps.get((partition.number, partition.index), ()) if self.gaps else ()
        return any(begin < offset for begin, _ in gaps)

    def take_to_store(self) -> list[Block]:
        """Hand over the blocks that are to be stored; they are the caller's now."""
        taken, self.to_store = self.to_store, []
        return taken

    def take_gone(self) -> dict[int, dict[int, int] | None]:
        """Hand over what is not kept any more; it is the caller's now."""
        taken, self.gone = self.gone, {}
        return taken

    def cut(self, after: int) -> None:
        """End the log behind record `after`: what was to be let go of by later records stays."""
        self._unsettled = [one for one in self._unsettled if one[0] <= after]

    def loaded(self) -> None:
        """Note that all that is there is committed, and nothing was handed over."""
        self._unsettled.clear()
        self.gone.clear()
        for topic in self._numbers.values():
            for partition in topic.partitions:
                self.discount(partition)
                partition.settle(1 << 62)
                partition.retire()
                self.count(partition)
                if partition.tail:
                    self._open[partition] = None


def without(gaps: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Give what is left of gaps when the offsets from one up to another are there."""
    left: list[tuple[int, int]] = []
    for at, until in gaps:
        left += [(at, min(until, begin)), (max(at, end), until)]
    return [(at, until) for at, until in left if at < until]
