"""What has become of a queue's messages since this node leads: plain numbers, counted as the records are made."""

from typing import Final

from storage.message import Made, Message
from storage.records import Bury, Clear, Confirm, Deliver, Expire, Move, Release, Remove, Take

_Message: Final = Message
_Deliver: Final = Deliver
_Confirm: Final = Confirm


class Totals:
    """One queue's. `delivered` counts each time, `redelivered` those that were not the first; `taken` those that were
    delivered at most once, and are gone. `arrived` came from other queues: buried or moved there.

    `came`, `left`: how many did in a second, between the last two times that somebody looked.
    """

    __slots__ = (
        *("_came_before", "_left_before", "arrived", "buried", "came", "cleared", "confirmed", "delivered", "expired"),
        *("left", "moved", "produced", "redelivered", "released", "taken"),
    )

    def __init__(self) -> None:
        self.produced = 0
        self.delivered = 0
        self.redelivered = 0
        self.confirmed = 0
        self.released = 0
        self.expired = 0
        self.buried = 0
        self.moved = 0
        self.taken = 0
        self.cleared = 0
        self.arrived = 0
        self.came = self.left = 0.0
        self._came_before = self._left_before = 0

    def look(self, seconds: float) -> None:
        """Somebody looks, so long after the last time; 0: that is too long ago to say anything of it."""
        came = self.produced + self.arrived
        left = self.confirmed + self.taken + self.expired + self.cleared + self.buried + self.moved
        self.came = (came - self._came_before) / seconds if seconds > 0 else 0.0
        self.left = (left - self._left_before) / seconds if seconds > 0 else 0.0
        self._came_before, self._left_before = came, left


class Counting:
    """Of one shard's queues, by their names, and of `all` together, also of those that are gone.

    `begun`: since when (Unix seconds), 0 before the first.
    """

    def __init__(self) -> None:
        self.begun = 0.0
        self.all = Totals()
        self._of: dict[str, Totals] = {}

    def of(self, queue: str) -> Totals | None:
        """None: nothing has become of anything."""
        return self._of.get(queue)

    def _there(self, queue: str) -> Totals:
        found = self._of.get(queue)
        if found is None:
            found = self._of[queue] = Totals()
        return found

    def count(self, record: Made) -> None:
        """Count a record that was made."""
        kind = type(record)
        if kind is _Message:
            assert isinstance(record, Message)
            self._there(record.queue).produced += 1
            self.all.produced += 1
        elif kind is _Deliver:
            assert isinstance(record, Deliver)
            totals, counts, every = self._there(record.queue), record.deliveries, self.all
            totals.delivered += len(counts)
            every.delivered += len(counts)
            for count in counts:
                if count > 1:
                    totals.redelivered += 1
                    every.redelivered += 1
        elif kind is _Confirm:
            assert isinstance(record, Confirm)
            count = len(record.msg_ids)
            self._there(record.queue).confirmed += count
            self.all.confirmed += count
        elif isinstance(record, Remove):
            self._of.pop(record.queue, None)
        elif isinstance(record, (Take, Release, Expire, Clear, Bury, Move)):
            for totals in (self._there(record.queue), self.all):
                _count_rare(totals, record, len(record.msg_ids))
            if isinstance(record, (Bury, Move)):
                self._there(record.to).arrived += len(record.msg_ids)


def _count_rare(totals: Totals, record: Take | Release | Expire | Clear | Bury | Move, count: int) -> None:
    if isinstance(record, Take):
        totals.delivered += count
        totals.taken += count
    elif isinstance(record, Clear):
        totals.cleared += count
    elif isinstance(record, Release):
        totals.released += count
    elif isinstance(record, Expire):
        totals.expired += count
    elif isinstance(record, Bury):
        totals.buried += count
    else:
        totals.moved += count
