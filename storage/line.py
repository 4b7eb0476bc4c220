"""Line: keys in order, from which the head leaves at once, and one in the middle is struck out. Of an Order.

It is made of blocks, so that nothing takes long however many keys there are: what is struck out is only noted, and a
block where more than half is gone is made anew without that. Where all of a million keys had been noted in one place,
and were swept out at once, that took 0.7 s.

| | costs |
|---|---|
| a key at the end; the head | the same, always |
| a key in the middle | a search for its block, and in its block; now and then a sweep of `BLOCK` keys |
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, filterfalse, islice
from typing import Any, Final

BLOCK: Final = 1024
"""Keys of a block: a sweep takes 50 us."""

_NONE_GONE: Final[set[Any]] = set()
"""What a block has where nothing is gone; nothing is added to it."""


class Block:
    """Some keys in order, of which some are `gone`."""

    __slots__ = ("gone", "keys")

    def __init__(self, keys: Iterable[Any]) -> None:
        self.keys: deque[Any] = deque(keys)
        self.gone: set[Any] = _NONE_GONE

    def holds(self, key: Any) -> bool:
        """Whether the key stands here, gone or not."""
        keys = self.keys
        at = bisect_left(keys, key)
        return at < len(keys) and bool(keys[at] == key)

    def strike(self, key: Any) -> None:
        """Let a key be gone that is there."""
        if self.gone is _NONE_GONE:
            self.gone = set()
        self.gone.add(key)
        if 2 * len(self.gone) > len(self.keys):
            self.keys = deque(self.live(self.keys))
            self.gone = _NONE_GONE

    def pass_over(self) -> None:
        """Let nothing that is gone stand first."""
        keys, gone = self.keys, self.gone
        while keys and keys[0] in gone:
            gone.discard(keys.popleft())

    def all(self) -> Iterable[Any]:
        """All that are not gone, in order."""
        return self.live(self.keys)

    def backwards(self) -> Iterable[Any]:
        """Give the same, from the greatest on."""
        return self.live(reversed(self.keys))

    def live(self, keys: Iterable[Any]) -> Iterable[Any]:
        """Those of its keys that are not gone."""
        return filterfalse(self.gone.__contains__, keys) if self.gone else keys


class Line:
    """Has one key at least, `head`, to begin with. `tail`: none of its keys is behind that. `block`: see `BLOCK`."""

    __slots__ = ("_block", "_blocks", "_first", "_last", "_tails", "head", "tail")

    def __init__(self, key: Any, block: int = BLOCK) -> None:
        self._block = block
        self.head = self.tail = key
        self._first = self._last = first = Block((key,))
        self._blocks = [first]
        self._tails: list[Any] = []  # of all blocks but the last: none of a block's keys is behind its tail

    def append(self, key: Any) -> None:
        """Take in a key that is behind `tail`."""
        last = self._last.keys
        if len(last) >= self._block:
            self._tails.append(self.tail)
            self._last = Block((key,))
            self._blocks.append(self._last)
        else:
            last.append(key)
        self.tail = key

    def take_head(self) -> bool:
        """Let go of the head; whether there is another key."""
        first = self._first
        first.keys.popleft()
        if first.gone:
            first.pass_over()
        while not first.keys:
            blocks = self._blocks
            if len(blocks) == 1:
                return False
            del blocks[0], self._tails[0]
            self._first = first = blocks[0]
            if first.gone:
                first.pass_over()
        self.head = first.keys[0]
        return True

    def strike(self, key: Any, *, is_there: bool) -> bool:
        """Let go of a key that is not the head; whether it was there. `is_there`: that is known, if it is not gone."""
        if self.tail < key:
            return False
        at = bisect_left(self._tails, key) if self._tails else 0
        block = self._blocks[at]
        if (block.gone and key in block.gone) or not (is_there or block.holds(key)):
            return False
        block.strike(key)
        if not block.keys and at < len(self._tails):
            del self._blocks[at], self._tails[at]
        return True

    def takes_back(self, key: Any) -> bool:
        """Take a key in again that was struck out, if it still stands there; whether it does."""
        gone = self._blocks[bisect_left(self._tails, key)].gone
        if key not in gone:
            return False
        gone.discard(key)
        return True

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(Block.all, self._blocks))

    def backwards(self) -> Iterator[Any]:
        """Give the keys from the greatest on."""
        return chain.from_iterable(map(Block.backwards, reversed(self._blocks)))

    def behind(self, key: Any) -> Iterator[Any]:
        """Give the keys greater than `key`, which need not be there, in their order."""
        at = bisect_left(self._tails, key)
        block = self._blocks[at]
        rest = islice(block.keys, bisect_right(block.keys, key), None)
        return chain(block.live(rest), chain.from_iterable(map(Block.all, islice(self._blocks, at + 1, None))))

    def drop(self, count: int) -> bool:
        """Let go of so many keys, whichever; whether there were any. Nothing else may be asked after that."""
        blocks = self._blocks
        had_some = False
        while blocks and count > 0:
            keys = blocks[-1].keys
            for _ in range(min(count, len(keys))):
                keys.pop()
                count -= 1
                had_some = True
            if not keys:
                blocks.pop()
        return had_some

    def check(self) -> None:
        """Assert every invariant; for tests."""
        blocks = self._blocks
        assert blocks[0] is self._first
        assert blocks[-1] is self._last
        assert len(self._tails) == len(blocks) - 1
        assert self._tails == sorted(self._tails)
        keys = [key for block in blocks for key in block.keys]
        assert keys == sorted(keys)
        assert len(keys) == len(set(keys))
        assert self._first.keys[0] == self.head
        assert self.head not in self._first.gone
        assert not self.tail < keys[-1]
        for at, block in enumerate(blocks):
            assert block.gone <= set(block.keys)
            assert len(block.keys) <= self._block
            assert block.keys or block is self._last
            if at < len(self._tails):
                assert not block.keys or not self._tails[at] < block.keys[-1]
                after = blocks[at + 1].keys
                assert not after or self._tails[at] < after[0]
