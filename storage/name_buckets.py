"""Names of queues in buckets, by a hash of each: an order that is the same on every node and after every restart.

A scan that goes through the buckets one by one meets every name that is there from its beginning to its end, whatever
comes and goes meanwhile, and all that it has to remember is a bucket's number.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from zlib import crc32

BUCKETS: Final = 4096
"""Of a hundred thousand queues 25 share one."""


class NameBuckets:
    """The names of one shard's queues."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._buckets: list[set[str] | None] = [None] * BUCKETS
        for name in names:
            self.add(name)

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket or ()

    def add(self, name: str) -> None:
        """Take in a name."""
        at = crc32(name.encode()) % BUCKETS
        bucket = self._buckets[at]
        if bucket is None:
            self._buckets[at] = {name}
        else:
            bucket.add(name)

    def discard(self, name: str) -> None:
        """Let go of a name, if it is there."""
        at = crc32(name.encode()) % BUCKETS
        bucket = self._buckets[at]
        if bucket is not None:
            bucket.discard(name)
            if not bucket:
                self._buckets[at] = None

    def at(self, number: int) -> list[str]:
        """Give the names of one bucket, in order."""
        bucket = self._buckets[number]
        return sorted(bucket) if bucket else []
