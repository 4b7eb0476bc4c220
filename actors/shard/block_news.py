"""What a queue owner says of its topics' messages to those who store and read them. A part of the QueueOwner.

What is to be stored is said before what may be trimmed: what the log's head had is in blocks by then.
"""

from actors.messages.blocks import BlocksStored, CloseTail, DropBlocks, GapFilled, StoreBlocks
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToBlockReader, ToCheckpointer
from actors.shard.disk_reads import DiskReads
from storage.state import ShardState
from storage.topics import Topics


class BlockNews:
    """Of one owner."""

    checkpointer: Mailbox[ToCheckpointer]
    reader: Mailbox[ToBlockReader]

    def __init__(self) -> None:
        self._kept: DropBlocks | None = None

    def loaded(self, state: ShardState) -> None:
        """Say, of a state that is as LMDB has it, which blocks there are needed."""
        topics = state.topics
        if topics.next_number > 1:
            self._kept = DropBlocks({**topics.kept()}, topics.next_number)

    def tell(self, topics: Topics, disk: DiskReads) -> None:
        """Have blocks stored, let go of, and read."""
        tails = topics.tails
        if self._kept is not None:
            self.checkpointer.tell(self._kept)
            self._kept = None
        if tails.to_store:
            self.checkpointer.tell(StoreBlocks(tails.take_to_store()))
        if tails.gone:
            self.checkpointer.tell(DropBlocks(tails.take_gone()))
        for ask in disk.take_asks():
            self.reader.tell(ask)


def note_stored(topics: Topics, message: BlocksStored) -> None:
    """Note which blocks are stored."""
    for number, index, end in message.ends:
        topics.tails.stored(number, index, end)


def note_filled(topics: Topics, message: GapFilled) -> None:
    """Note that messages are here which were missing."""
    topics.tails.fill_gaps(message.number, message.partition, message.begin, message.upto)


def close_tail(topics: Topics, message: CloseTail) -> None:
    """Put what is committed of a partition into blocks: another node lacks it."""
    topic = topics.numbers.get(message.number)
    if topic is not None and message.partition < len(topic.partitions):
        topics.tails.close(topic.partitions[message.partition])
