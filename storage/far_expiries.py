"""Which ready messages expire, and not soon: by the stretch of time in which they do, some nine bytes each.

A key in an order takes fifteen times as much. So a message that is ready, and expires minutes or days from now, stands
here until its stretch draws near, and only then in the queue's waiting index, at its exact time; most are gone by then.
"""

from array import array
from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import Final

from storage.message import Message

STRETCH_S: Final = 64.0
AHEAD_S: Final = 30.0
"""A stretch is near so long before it begins: there may be a million messages in it to be put in their places."""

TRIM: Final = 4096
"""So many that are gone may stand at a stretch's head."""


NUMBERS_SLACK: Final = 16
"""So many numbers of stretches that are gone may be left, beside as many as there are."""


PART: Final = 1 << 15
"""Ids of one part: what is gone is swept out of one at a time, and of three million in one place that took 0.2 s."""


class _Part:
    """Messages' ids of a stretch, rising; those of who is gone are negative.

    `head` is the first that may be there, `last` the id of the last, who is there. All are from `first` on, and before
    the next part's.
    """

    __slots__ = ("first", "head", "ids", "last", "live")

    def __init__(self, first: int) -> None:
        self.ids: array[int] = array("q")
        self.first = first
        self.last = 0
        self.head = 0
        self.live = 0


_first: Final = attrgetter("first")


class FarExpiries:
    """Those of one queue."""

    __slots__ = ("_latest", "_latest_number", "_next", "_numbers", "_stretches")

    def __init__(self) -> None:
        self._numbers: list[int] = []  # a heap: of each stretch, and of some that are gone
        self._stretches: dict[int, list[_Part]] = {}  # none is empty, and none of their parts
        self._next: int | None = None
        self._latest: list[_Part] | None = None
        self._latest_number = 0

    def __len__(self) -> int:
        return sum([part.live for parts in self._stretches.values() for part in parts])

    def add(self, message: Message, now: float) -> bool:
        """Take in a ready message, if it expires far from now, and none with a greater id is in its stretch."""
        number = int(message.expires_at // STRETCH_S)
        if number * STRETCH_S - AHEAD_S <= now:
            return False
        parts = self._latest
        if parts is None or number != self._latest_number:
            parts = self._latest = self._stretches.get(number)
            self._latest_number = number
        msg_id = message.msg_id
        if parts is None:
            parts = self._latest = self._stretches[number] = [_Part(msg_id)]
            if len(self._numbers) > 2 * len(self._stretches) + NUMBERS_SLACK:
                self._numbers = sorted(self._stretches)
            else:
                heappush(self._numbers, number)
            if self._next is None or number < self._next:
                self._next = number
        part = parts[-1]
        if part.last >= msg_id:
            return False
        if len(part.ids) >= PART:
            part = _Part(msg_id)
            parts.append(part)
        part.last = msg_id
        part.ids.append(msg_id)
        part.live += 1
        return True

    def remove(self, message: Message) -> None:
        """Let go of a message that is there."""
        number = int(message.expires_at // STRETCH_S)
        parts = self._stretches[number]
        at = bisect_right(parts, message.msg_id, key=_first) - 1 if len(parts) > 1 else 0
        part = parts[at]
        ids, head = part.ids, part.head
        part.live -= 1
        if not part.live:
            del parts[at]
            if not parts:
                self._drop(number)
            return
        if ids[head] == message.msg_id:
            head += 1
            while ids[head] <= 0:
                head += 1
            part.head = head
            if head > TRIM and head > len(ids) // 2:
                del ids[:head]
                part.head = 0
            return
        at = self._place(part, message.msg_id)
        if at + 1 == len(ids):
            ids.pop()  # the last is always there, so that the next is known to be greater
            while ids[-1] <= 0:
                ids.pop()
            part.last = ids[-1]
            return
        ids[at] = -message.msg_id  # so that those around it are found still
        if len(ids) - part.head > 2 * part.live + TRIM:
            part.ids = array("q", [one for one in ids[part.head :] if one > 0])
            part.head = 0

    @staticmethod
    def _place(part: _Part, msg_id: int) -> int:
        return bisect_left(part.ids, msg_id, part.head, key=abs)

    def _drop(self, number: int) -> None:
        del self._stretches[number]
        self._latest = None
        if number == self._next:
            numbers = self._numbers
            while numbers and numbers[0] not in self._stretches:
                heappop(numbers)
            self._next = numbers[0] if numbers else None

    @property
    def next_at(self) -> float | None:
        """When the first stretch draws near (Unix seconds); None: there is none."""
        return None if self._next is None else self._next * STRETCH_S - AHEAD_S

    def near(self, count: int) -> list[int]:
        """Up to `count` of the first stretch, each of which is to be removed then."""
        if self._next is None:
            return []
        found: list[int] = []
        for part in self._stretches[self._next]:
            for at in range(part.head, len(part.ids)):
                if part.ids[at] > 0:
                    found.append(part.ids[at])
                    if len(found) == count:
                        return found
        return found

    def check(self, messages: list[Message]) -> None:
        """Assert that just these are there; for tests."""
        all_parts = [part for parts in self._stretches.values() for part in parts]
        there = sorted(one for part in all_parts for one in part.ids[part.head :] if one > 0)
        assert there == sorted(message.msg_id for message in messages)
        assert all(part.live and part.ids[part.head] > 0 for part in all_parts)
        assert all(part.last == part.ids[-1] for part in all_parts)
        for parts in self._stretches.values():
            assert parts
            assert all(abs(one) >= part.first for part in parts for one in part.ids)
            assert all(before.last < after.first for before, after in pairwise(parts))
        assert self._next == (min(self._stretches) if self._stretches else None)
