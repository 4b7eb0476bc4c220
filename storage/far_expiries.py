"""Which ready messages expire, and not soon: by the stretch of time in which they do, some nine bytes each.

A key in an order takes fifteen times as much. So a message that is ready, and expires minutes or days from now, stands
here until its stretch draws near, and only then in the queue's waiting index, at its exact time; most are gone by then.
"""

from array import array
from bisect import bisect_left
from heapq import heappop, heappush
from typing import Final

from storage.message import Message

STRETCH_S: Final = 64.0
AHEAD_S: Final = 30.0
"""A stretch is near so long before it begins: there may be a million messages in it to be put in their places."""

TRIM: Final = 4096
"""So many that are gone may stand at a stretch's head."""


NUMBERS_SLACK: Final = 16
"""So many numbers of stretches that are gone may be left, beside as many as there are."""


class _Stretch:
    """Messages' ids, rising; those of who is gone are negative. `head` is the first that may be there, `last` the id of
    the last, who is there."""

    __slots__ = ("head", "ids", "last", "live")

    def __init__(self) -> None:
        self.ids: array[int] = array("q")
        self.last = 0
        self.head = 0
        self.live = 0


class FarExpiries:
    """Those of one queue."""

    __slots__ = ("_latest", "_latest_number", "_next", "_numbers", "_stretches")

    def __init__(self) -> None:
        self._numbers: list[int] = []  # a heap: of each stretch, and of some that are gone
        self._stretches: dict[int, _Stretch] = {}
        self._next: int | None = None
        self._latest: _Stretch | None = None
        self._latest_number = 0

    def __len__(self) -> int:
        return sum([one.live for one in self._stretches.values()])

    def add(self, message: Message, now: float) -> bool:
        """Take in a ready message, if it expires far from now, and none with a greater id is in its stretch."""
        number = int(message.expires_at // STRETCH_S)
        if number * STRETCH_S - AHEAD_S <= now:
            return False
        stretch = self._latest
        if stretch is None or number != self._latest_number:
            stretch = self._latest = self._stretches.get(number)
            self._latest_number = number
        if stretch is None:
            stretch = self._latest = self._stretches[number] = _Stretch()
            if len(self._numbers) > 2 * len(self._stretches) + NUMBERS_SLACK:
                self._numbers = sorted(self._stretches)
            else:
                heappush(self._numbers, number)
            if self._next is None or number < self._next:
                self._next = number
        msg_id = message.msg_id
        if stretch.last >= msg_id:
            return False
        stretch.last = msg_id
        stretch.ids.append(msg_id)
        stretch.live += 1
        return True

    def remove(self, message: Message) -> None:
        """Let go of a message that is there."""
        number = int(message.expires_at // STRETCH_S)
        stretch = self._stretches[number]
        ids, head = stretch.ids, stretch.head
        stretch.live -= 1
        if not stretch.live:
            self._drop(number)
            return
        if ids[head] == message.msg_id:
            head += 1
            while ids[head] <= 0:
                head += 1
            stretch.head = head
            if head > TRIM and head > len(ids) // 2:
                del ids[:head]
                stretch.head = 0
            return
        at = self._place(stretch, message.msg_id)
        if at + 1 == len(ids):
            ids.pop()  # the last is always there, so that the next is known to be greater
            while ids[-1] <= 0:
                ids.pop()
            stretch.last = ids[-1]
            return
        ids[at] = -message.msg_id  # so that those around it are found still
        if len(ids) - stretch.head > 2 * stretch.live + TRIM:
            stretch.ids = array("q", [one for one in ids[stretch.head :] if one > 0])
            stretch.head = 0

    @staticmethod
    def _place(stretch: _Stretch, msg_id: int) -> int:
        return bisect_left(stretch.ids, msg_id, stretch.head, key=abs)

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
        stretch = self._stretches[self._next]
        found: list[int] = []
        for at in range(stretch.head, len(stretch.ids)):
            if stretch.ids[at] > 0:
                found.append(stretch.ids[at])
                if len(found) == count:
                    break
        return found

    def check(self, messages: list[Message]) -> None:
        """Assert that just these are there; for tests."""
        there = sorted(one for stretch in self._stretches.values() for one in stretch.ids[stretch.head :] if one > 0)
        assert there == sorted(message.msg_id for message in messages)
        assert all(stretch.live and stretch.ids[stretch.head] > 0 for stretch in self._stretches.values())
        assert all(stretch.last == stretch.ids[-1] for stretch in self._stretches.values())
        assert self._next == (min(self._stretches) if self._stretches else None)
