"""A part of a shard's state, about no message and no queue: the cluster's members, the log's readers, the leaders.

A part has its own data, and a method for each of its kinds of record (`storage.kinds`), which is given the state's
`Undo` and says to it what it is about to change.
"""

from storage.records import BASE_LEVEL, Lead, Members, Position, ReaderPosition
from storage.tenures import Tenures
from storage.undo import Undo


class Facts:
    """Of one shard. `readers`, where the log's named readers are, is another object whenever it has changed.

    `tenures`: who has led since when, from `BASE_LEVEL` on.
    """

    def __init__(self) -> None:
        self.members: Members | None = None
        self.readers: dict[str, ReaderPosition] = {}
        self.tenures = Tenures()

    def lead(self, undo: Undo, trans_id: int, record: Lead) -> None:
        """Note that a node leads."""
        self._tenures_change(undo, trans_id)
        self.tenures.led(trans_id, record.node_id)

    def take_members(self, undo: Undo, trans_id: int, record: Members) -> None:
        """Note that other nodes are members, or the same in another way."""
        undo.was(trans_id, self, "members", self.members)
        self.members = record
        if record.level >= BASE_LEVEL:
            self._tenures_change(undo, trans_id)
            self.tenures.begin(trans_id)

    def _tenures_change(self, undo: Undo, trans_id: int) -> None:
        if undo.is_on:
            undo.was(trans_id, self, "tenures", self.tenures)
            self.tenures = self.tenures.copy()

    def take_position(self, undo: Undo, trans_id: int, record: Position) -> None:
        """Note that a reader of the log stands somewhere else, or nowhere."""
        undo.was(trans_id, self, "readers", self.readers)
        self.readers = dict(self.readers)
        if record.upto is None:
            self.readers.pop(record.reader, None)
        else:
            self.readers[record.reader] = ReaderPosition(record.upto, record.at)
