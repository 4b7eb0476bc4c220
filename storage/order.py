"""Order: keys from the least on, made for how messages come and go: nearly in order, and nearly first in, first out.

What becomes ready comes in the order of its time, and so does what is delivered with one and the same retry. So keys
stand in *lines* (`Line`), each of them in order from its head to its tail: a key goes to the end of the line whose tail
is the greatest that is not behind it (patience sorting), and a few lines are enough for a few priorities, delays and
retries. What fits none goes to a sorted list. A key at a line's head leaves at once; one in the middle is only noted as
gone, and passed over when the head comes there, or swept out with others of its block. So adding and taking cost a few
comparisons, where a sorted list searches.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, Final

from sortedcontainers import SortedList

from storage.line import BLOCK, Line

LINES_MAX: Final = 4
KEYS_UNTIL_REST: Final = 500

_EMPTY: Final[SortedList[Any]] = SortedList()
"""What every order has that had to sort nothing yet. Orders are many, and most of them are empty."""


class Order:
    """Keys, each at most once. `keys`, to begin with, come in any order; see also `of_pieces`. `block`: see `Line`."""

    __slots__ = ("_block", "_gone", "_in_rest", "_is_plain", "_lines", "_rest", "_size")

    def __init__(self, keys: Iterable[Any] = (), block: int = BLOCK) -> None:
        self._block = block
        self._lines: list[Line] = []  # no line is empty; their tails descend
        self._rest: SortedList[Any] = _EMPTY
        self._in_rest = 0
        self._size = 0
        self._gone = 0  # no less than so many are struck out, and may come back
        self._is_plain = False  # one line, and nothing beside it: nearly always
        for key in sorted(keys):
            self._append(key)

    def _append(self, key: Any) -> None:
        """Take in a key that is behind all others, to begin with."""
        if self._size:
            self._lines[0].append(key)
        else:
            self._lines.append(Line(key, self._block))
            self._is_plain = True
        self._size += 1

    @staticmethod
    def of_pieces(pieces: list[list[Any]], rest: Callable[[], None]) -> "Order":
        """As `Order(keys)`, for very many: each piece is sorted, and nothing takes long between two calls of `rest`."""
        order = Order()
        in_row = all(one[-1] < next_one[0] for one, next_one in pairwise(pieces))
        keys = chain.from_iterable(pieces) if in_row else heapq.merge(*pieces)
        for index, key in enumerate(keys):
            order._append(key)
            if index % KEYS_UNTIL_REST == 0:
                rest()
        return order

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return self._size != 0

    def __iter__(self) -> Iterator[Any]:
        return heapq.merge(*self._lines, self._rest)

    def backwards(self) -> Iterator[Any]:
        """Give the keys from the greatest on."""
        return heapq.merge(*[line.backwards() for line in self._lines], reversed(self._rest), reverse=True)

    def behind(self, key: Any) -> Iterator[Any]:
        """Give the keys greater than `key`, which need not be there, in their order."""
        lines = [line.behind(key) for line in self._lines]
        return heapq.merge(*lines, self._rest.irange(key, inclusive=(False, True)))

    def first_behind(self, key: Any) -> Any:
        """Find the least key that is greater than `key`, which need not be there; None: there is none."""
        return next(self.behind(key), None)

    def unordered(self) -> Iterator[Any]:
        """All keys, line by line: for those who need no order, and all of a million."""
        return chain(*self._lines, self._rest)

    @property
    def first(self) -> Any:
        """The least key. Raises IndexError if there is none."""
        lines = self._lines
        if self._is_plain:
            return lines[0].head
        heads = [line.head for line in lines]
        if self._in_rest:
            heads.append(self._rest[0])
        if not heads:
            raise IndexError("no key is there")
        return min(heads)

    def add(self, key: Any) -> None:
        """Take in a key that is not there."""
        self._size += 1
        lines = self._lines
        for line in lines:
            if line.tail < key:
                line.append(key)
                return
            if self._gone and line.takes_back(key):
                self._gone -= 1  # where it stood, it stands right
                return
        if len(lines) < LINES_MAX:
            lines.append(Line(key, self._block))
        else:
            if self._rest is _EMPTY:
                self._rest = SortedList()
            self._rest.add(key)
            self._in_rest += 1
        self._look()

    def pop_first(self) -> Any:
        """Take the least key, which is not there any more. Raises IndexError if there is none."""
        if not self._is_plain:
            key = self.first
            self.remove(key)
            return key
        line = self._lines[0]
        key = line.head
        self._size -= 1
        if not line.take_head():
            self._drop_line(0)
        return key

    def remove(self, key: Any) -> None:
        """Take out a key that is there. Raises KeyError for one that can't be."""
        for index, line in enumerate(self._lines):
            if line.head == key:
                self._size -= 1
                if not line.take_head():
                    self._drop_line(index)
                return
        if self._in_rest and key in self._rest:
            self._rest.remove(key)
            self._in_rest -= 1
            self._look()
        else:
            is_plain = self._is_plain
            for line in self._lines:
                if line.strike(key, is_there=is_plain):
                    break
            else:
                raise KeyError(key)
            self._gone += 1
        self._size -= 1

    def _drop_line(self, index: int) -> None:
        del self._lines[index]
        self._look()

    def _look(self) -> None:
        self._is_plain = len(self._lines) == 1 and not self._in_rest
        if not self._lines:
            self._gone = 0

    def drop(self, count: int) -> bool:
        """Let go of so many keys, whichever; whether there were any. Nothing else may be asked after that."""
        if any(line.drop(count) for line in self._lines):
            return True
        had_some = bool(self._rest)
        self._rest.clear()
        return had_some

    def check(self) -> None:
        """Assert every invariant; for tests."""
        assert len(self._lines) <= LINES_MAX
        for line in self._lines:
            line.check()
        assert self._in_rest == len(self._rest)
        assert self._is_plain == (len(self._lines) == 1 and not self._rest)
        tails = [line.tail for line in self._lines]
        assert tails == sorted(tails, reverse=True)
        keys = list(self)
        assert len(keys) == self._size == len(set(keys))
        assert self._gone >= sum(len(block.gone) for line in self._lines for block in line._blocks)
        assert sorted(self.unordered()) == keys
