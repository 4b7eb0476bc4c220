"""What has become of a queue's messages since this node leads: plain numbers, counted as records are made."""

from typing import Any, Final

from storage.kinds import KINDS, Counts
from storage.message import Made, Message
from storage.records import Confirm, Deliver

_Message: Final = Message
_Deliver: Final = Deliver
_Confirm: Final = Confirm
_COUNTS: Final[dict[type, Counts]] = {kind.record: kind.counts for kind in KINDS}


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
        self._last_name, self._last = "", self.all

    def of(self, queue: str) -> Totals | None:
        """None: nothing has become of anything."""
        return self._of.get(queue)

    def _there(self, queue: str) -> Totals:
        if queue is self._last_name:  # nearly always: a queue's name is one object
            return self._last
        found = self._of.get(queue)
        if found is None:
            found = self._of[queue] = Totals()
        self._last_name, self._last = queue, found
        return found

    def count(self, record: Made) -> None:
        """Count a record that was made: as its row says, of which the most usual are known here, too."""
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
        else:
            self._count(record, _COUNTS[kind])

    def _count(self, record: Any, counts: Counts) -> None:
        """Count it as its row says."""
        if counts.forgets:
            self._of.pop(record.queue, None)
            self._last_name = ""
        for name in counts.names:
            for totals in (self._there(record.queue), self.all):
                setattr(totals, name, getattr(totals, name) + len(record.msg_ids))
        if counts.arrives:
            self._there(record.to).arrived += len(record.msg_ids)
        if counts.again:
            again = sum([count > 1 for count in record.deliveries])
            self._there(record.queue).redelivered += again
            self.all.redelivered += again
