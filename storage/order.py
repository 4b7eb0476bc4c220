"""Order: keys from the least on, made for how messages come and go: nearly in order, and nearly first in, first out.

What becomes ready comes in the order of its time, and so does what is delivered with one and the same retry. So keys
stand in *lines*, each of them in order from its head to its tail: a key goes to the end of the line whose tail is
the greatest that is not behind it (patience sorting), and a few lines are enough for a few priorities, delays and
retries. What fits none goes to a sorted list. A key at a line's head leaves at once; one in the middle is only noted as
gone, and passed over when the head comes there, or swept out when there are more such than keys. So adding and
taking cost a few comparisons, where a sorted list searches.
"""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, filterfalse, islice, pairwise
from typing import Any, Final

from sortedcontainers import SortedList

LINES_MAX: Final = 4
KEYS_UNTIL_REST: Final = 500
GONE_MAX: Final = 64
"""So many keys that are gone may stand in the lines in any case; beyond, as many as are not."""


_EMPTY: Final[SortedList[Any]] = SortedList()
"""What every order has that had to sort nothing yet. Orders are many, and most of them are empty."""

_NONE_GONE: Final[set[Any]] = set()
"""Likewise; nothing is added to it."""


def _tail(line: deque[Any]) -> Any:
    return line[-1]


class Order:
    """Keys, each at most once. `keys`, to begin with, come in any order; see also `of_pieces`."""

    __slots__ = ("_gone", "_gone_max", "_in_rest", "_is_plain", "_lines", "_rest", "_size")

    def __init__(self, keys: Iterable[Any] = (), gone_max: int = GONE_MAX) -> None:
        self._gone_max = gone_max
        line = deque(sorted(keys))
        self._lines: list[deque[Any]] = [line] if line else []  # no line is empty; their tails descend
        self._rest: SortedList[Any] = _EMPTY
        self._in_rest = 0
        self._gone: set[Any] = _NONE_GONE
        self._size = len(line)
        self._is_plain = len(self._lines) == 1  # one line, and nothing beside it: nearly always

    @staticmethod
    def of_pieces(pieces: list[list[Any]], rest: Callable[[], None]) -> "Order":
        """As `Order(keys)`, for very many: each piece is sorted, and nothing takes long between two calls of `rest`."""
        line: deque[Any] = deque()
        if all(one[-1] < next_one[0] for one, next_one in pairwise(pieces)):
            for piece in pieces:
                line.extend(piece)
                rest()
        else:
            for index, key in enumerate(heapq.merge(*pieces)):
                line.append(key)
                if index % KEYS_UNTIL_REST == 0:
                    rest()
        order = Order()
        if line:
            order._lines = [line]
            order._size = len(line)
            order._is_plain = True
        return order

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return self._size != 0

    def __iter__(self) -> Iterator[Any]:
        lines = [filterfalse(self._gone.__contains__, line) for line in self._lines]
        return heapq.merge(*lines, self._rest)

    def backwards(self) -> Iterator[Any]:
        """Give the keys from the greatest on."""
        lines = [filterfalse(self._gone.__contains__, reversed(line)) for line in self._lines]
        return heapq.merge(*lines, reversed(self._rest), reverse=True)

    def behind(self, key: Any) -> Iterator[Any]:
        """Give the keys greater than `key`, which need not be there, in their order."""
        lines = [islice(line, bisect_right(line, key), None) for line in self._lines]
        there = [filterfalse(self._gone.__contains__, line) for line in lines]
        return heapq.merge(*there, self._rest.irange(key, inclusive=(False, True)))

    def first_behind(self, key: Any) -> Any:
        """Find the least key that is greater than `key`, which need not be there; None: there is none."""
        heads: list[Any] = []
        for line in self._lines:
            at = bisect_right(line, key)
            while at < len(line) and line[at] in self._gone:
                at += 1
            if at < len(line):
                heads.append(line[at])
        heads += islice(self._rest.irange(key, inclusive=(False, True)), 1)
        return min(heads) if heads else None

    def unordered(self) -> Iterator[Any]:
        """All keys, line by line: for those who need no order, and all of a million."""
        return chain(*(filterfalse(self._gone.__contains__, line) for line in self._lines), self._rest)

    @property
    def first(self) -> Any:
        """The least key. Raises IndexError if there is none."""
        lines = self._lines
        if self._is_plain:
            return lines[0][0]
        heads = [line[0] for line in lines]
        if self._in_rest:
            heads.append(self._rest[0])
        if not heads:
            raise IndexError("no key is there")
        return min(heads)

    def add(self, key: Any) -> None:
        """Take in a key that is not there."""
        self._size += 1
        if self._gone and key in self._gone:
            self._gone.discard(key)  # where it stood, it stands right
            return
        lines = self._lines
        for line in lines:
            if line[-1] < key:
                line.append(key)
                return
        if len(lines) < LINES_MAX:
            lines.append(deque((key,)))
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
        key = line.popleft()
        self._size -= 1
        if self._gone or not line:
            self._pass_over(0)
            self._bound_gone()
        return key

    def remove(self, key: Any) -> None:
        """Take out a key that is there. Raises KeyError for one that can't be."""
        gone = self._gone
        for index, line in enumerate(self._lines):
            if line[0] == key:
                line.popleft()
                self._pass_over(index)
                break
        else:
            if self._in_rest and key in self._rest:
                self._rest.remove(key)
                self._in_rest -= 1
                self._look()
            elif key in gone or not self._lines or self._lines[0][-1] < key:
                raise KeyError(key)
            else:
                if gone is _NONE_GONE:
                    self._gone = gone = set()
                gone.add(key)
        self._size -= 1
        if gone:
            self._bound_gone()

    def _bound_gone(self) -> None:
        """Let go of what is gone when that is too much. The lines' tails may be others then."""
        if len(self._gone) <= self._gone_max or len(self._gone) <= self._size:
            return
        lines = [deque(filterfalse(self._gone.__contains__, line)) for line in self._lines]
        self._lines = [line for line in lines if line]
        self._lines.sort(key=_tail, reverse=True)
        self._gone.clear()
        self._look()

    def _look(self) -> None:
        self._is_plain = len(self._lines) == 1 and not self._in_rest

    def _pass_over(self, index: int) -> None:
        """Let nothing that is gone stand at a line's head, and drop a line that is empty."""
        line, gone = self._lines[index], self._gone
        while gone and line and line[0] in gone:
            gone.discard(line.popleft())
        if not line:
            del self._lines[index]
            self._look()

    def drop(self, count: int) -> bool:
        """Let go of so many keys, whichever; whether there were any. Nothing else may be asked after that."""
        for line in self._lines:
            if line:
                for _ in range(min(count, len(line))):
                    line.pop()
                return True
        had_some = bool(self._rest) or bool(self._gone)
        self._rest.clear()
        self._gone.clear()
        return had_some

    def check(self) -> None:
        """Assert every invariant; for tests."""
        assert len(self._lines) <= LINES_MAX
        assert all(self._lines), "no line is empty"
        assert self._in_rest == len(self._rest)
        assert self._is_plain == (len(self._lines) == 1 and not self._rest)
        assert not any(line[0] in self._gone for line in self._lines)
        tails = [line[-1] for line in self._lines]
        assert tails == sorted(tails, reverse=True)
        for line in self._lines:
            assert list(line) == sorted(line)
        keys = list(self)
        assert len(keys) == self._size == len(set(keys))
        assert len(self._gone) <= max(self._gone_max, self._size)
        assert self._gone.isdisjoint(keys)
        assert self._gone <= {key for line in self._lines for key in line}
        assert sorted(self.unordered()) == keys
