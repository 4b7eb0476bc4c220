"""What has become of a queue's messages since this node leads: plain numbers, counted as the records are made."""

from typing import Final

from storage.message import Made, Message
from storage.records import Bury, Confirm, Deliver, Expire, Move, Release, Remove, Take

_Message: Final = Message
_Deliver: Final = Deliver
_Confirm: Final = Confirm


class Totals:
    """One queue's. `delivered` counts each time, `redelivered` those that were not the first."""

    __slots__ = ("buried", "confirmed", "delivered", "expired", "moved", "produced", "redelivered", "released")

    def __init__(self) -> None:
        self.produced = 0
        self.delivered = 0
        self.redelivered = 0
        self.confirmed = 0
        self.released = 0
        self.expired = 0
        self.buried = 0
        self.moved = 0


class Counting:
    """Of one shard's queues, by their names; `begun`: since when (Unix seconds), 0 before the first."""

    def __init__(self) -> None:
        self.begun = 0.0
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
        """A record was made."""
        kind = type(record)
        if kind is _Message:
            assert isinstance(record, Message)
            self._there(record.queue).produced += 1
        elif kind is _Deliver:
            assert isinstance(record, Deliver)
            totals, counts = self._there(record.queue), record.deliveries
            totals.delivered += len(counts)
            for count in counts:
                if count > 1:
                    totals.redelivered += 1
        elif kind is _Confirm:
            assert isinstance(record, Confirm)
            self._there(record.queue).confirmed += len(record.msg_ids)
        else:
            self._count_rare(record)

    def _count_rare(self, record: Made) -> None:
        if isinstance(record, Take):
            self._there(record.queue).delivered += len(record.msg_ids)
        elif isinstance(record, Release):
            self._there(record.queue).released += len(record.msg_ids)
        elif isinstance(record, Expire):
            self._there(record.queue).expired += len(record.msg_ids)
        elif isinstance(record, Bury):
            self._there(record.queue).buried += len(record.msg_ids)
        elif isinstance(record, Move):
            self._there(record.queue).moved += len(record.msg_ids)
        elif isinstance(record, Remove):
            self._of.pop(record.queue, None)
