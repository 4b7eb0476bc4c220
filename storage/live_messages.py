"""The live messages of a shard, by id.

A dict of its own, since ids are multiples of `SHARDS_MAX` and a shard more: Python hashes an int to itself and takes
its low bits, so of a million such keys 500 begin at one place, and looking one up takes four times as long. What stands
before the shard is the number of a record, and numbers in a row stand in a row.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from storage.message import Message
from storage.message_ids import SHARDS_MAX

STEPS_MAX: Final = 20_000
"""So many keys are looked at in one go: some 2 ms."""

INDEX_SLACK: Final = 100_000
"""So many keys of messages that are gone the index may have in any case."""


class LiveMessages:
    """Messages of `shard`, each at most once; in the order in which they came."""

    __slots__ = ("_by_key", "_index", "shard")

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self._by_key: dict[int, Message] = {}
        self._index: list[int] | None = None

    def _key(self, msg_id: int) -> int:
        """Another one for each id, whatever anybody asks for."""
        if msg_id < 0:
            return 2 * msg_id
        return msg_id // SHARDS_MAX if msg_id % SHARDS_MAX == self.shard else -1 - 2 * msg_id

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[int]:
        return iter([message.msg_id for message in self._by_key.values()])

    def __contains__(self, msg_id: object) -> bool:
        return isinstance(msg_id, int) and self._key(msg_id) in self._by_key

    def __getitem__(self, msg_id: int) -> Message:
        return self._by_key[self._key(msg_id)]

    def get(self, msg_id: int) -> Message | None:
        """Find the message; None if it is not there."""
        return self._by_key.get(self._key(msg_id))

    def add(self, msg_id: int, message: Message) -> bool:
        """Take in the message of that id; whether it was not there."""
        key = self._key(msg_id)
        is_new = self._by_key.setdefault(key, message) is message
        if is_new and self._index is not None:
            self._note(key)
        return is_new

    def pop(self, msg_id: int) -> Message | None:
        """Take out the message; None if it is not there."""
        key = self._key(msg_id)
        message = self._by_key.get(key)
        if message is not None:
            del self._by_key[key]
        return message

    def _note(self, key: int) -> None:
        """One more for the index, which goes when most of it is gone, or would not be in order any more."""
        index = self._index
        assert index is not None
        if len(index) > 2 * len(self._by_key) + INDEX_SLACK or (index and key < index[-1]):
            self._index = None
        elif not index or key > index[-1]:  # or it stands there: it was gone, and is taken back
            index.append(key)

    def behind(self, trans_id: int, count: int) -> tuple[list[Message], int | None]:
        """Give the next `count` of them behind record `trans_id`, by the records that produced them.

        Fewer, where many are gone that stood there. Also gives the record that was looked at last; None: there is none
        behind it. The first that asks has the others' keys put in order, which takes 15 ms of a million; then that is
        kept up.
        """
        index = self._index
        if index is None:
            index = self._index = sorted(self._by_key)
        by_key = self._by_key
        found: list[Message] = []
        at = bisect_right(index, trans_id)
        end = min(len(index), at + STEPS_MAX)
        while at < end and len(found) < count:
            message = by_key.get(index[at])
            if message is not None:
                found.append(message)
            at += 1
        return found, None if at == len(index) else index[at - 1]

    def drop(self, count: int) -> bool:
        """Let go of so many; whether there were any."""
        by_key = self._by_key
        had_some = bool(by_key)
        for _ in range(min(count, len(by_key))):
            by_key.popitem()
        return had_some

    def check(self) -> None:
        """Assert that each is found once by its record; for tests."""
        if self._index is not None:
            there = [key for key in self._index if key in self._by_key]
            assert there == sorted(self._by_key)

    def values(self) -> Iterable[Message]:
        """All messages."""
        return self._by_key.values()
