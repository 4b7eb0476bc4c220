"""What a shard's state holds: the live messages by id, and the queues. Records change it by `storage.state` alone."""

from collections import OrderedDict

from sortedcontainers import SortedList

from storage.live_messages import LiveMessages
from storage.message import Message, is_of_all, weight
from storage.name_buckets import NameBuckets
from storage.queue_state import QueueState
from storage.split_dict import SplitDict
from storage.stretches import STRETCH_RECORDS, Stretches


class Contents:
    """Of one shard, after record `trans_id`; `time` is that of the last entry (s).

    `names` are the queues' in order. `data_bytes` is the sum of the live messages' weights. `kept` are the messages
    that are delivered, and stay though that is at most once; the first of them were so first. `keys` are of messages
    whose key is unique in the shard (`is_of_all`): all others are their queues'. `stretches` is what its log is about,
    of those entries that it was told of. `placed_at`: messages stand where they do then, or by a later entry's time
    (s): what was due is ready. `has_system`: a queue was or is one that lists leave out. While `loading`, messages
    stand in no index.
    """

    def __init__(self, shard: int, stretch_records: int = STRETCH_RECORDS) -> None:
        self.trans_id = 0
        self.data_bytes = 0
        self.time = self.placed_at = 0.0
        self.loading = self.has_system = False
        self.kept: OrderedDict[int, None] = OrderedDict()
        self.messages = LiveMessages(shard)
        self.queues: dict[str, QueueState] = {}
        self.keys: SplitDict[Message] = SplitDict()
        self.stretches = Stretches(self.messages, self.queues, stretch_records)
        self.names: SortedList[str] = SortedList()
        self.buckets = NameBuckets()

    def enter(self, queue: QueueState, message: Message) -> None:
        """Count a live message as part of its queue, unplaced."""
        self.data_bytes += weight(message)
        queue.size += 1
        queue.unplaced += 1
        key = message.key
        if key is not None:
            if is_of_all(message):
                self.keys[key] = message
            else:
                queue.keys[key] = message.msg_id

    def leave(self, message: Message) -> None:
        """Count a message as part of nothing any more, wherever it stood."""
        queue = self.queues[message.queue]
        if message.place and not self.loading:
            queue.lift(message)
        if self.kept and not message.retry_s:
            self.kept.pop(message.msg_id, None)
        self.data_bytes -= weight(message)
        queue.unplaced -= 1
        queue.size -= 1
        key = message.key
        if key is not None:
            if is_of_all(message):
                if self.keys.get(key) is message:
                    del self.keys[key]
            elif queue.keys.get(key) == message.msg_id:  # see `ShardState._moved`
                del queue.keys[key]

    def cut(self, after: int) -> None:
        """End the log behind record `after`, where what later records had changed is taken back."""
        self.trans_id = after
        self.stretches.cut(after)

    def name_queue(self, name: str) -> None:
        """Have a queue found by its name, also in order."""
        self.names.add(name)
        self.buckets.add(name)

    def unname_queue(self, name: str) -> None:
        """Have a queue that is gone found no more."""
        self.names.remove(name)
        self.buckets.discard(name)
