"""Prepared transactions (XA) of a shard: a part of `storage.topics`. What they append is in no partition yet.

They are rows of LMDB beside those of topics, and stay until somebody decides, however long that takes.
"""

from storage.records import Decide, Prepare
from storage.topic_keys import prepared_key
from storage.undo import Undo


class Prepared:
    """By the keys of their rows. `bytes`: what their messages have."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Prepare] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def oldest_at(self) -> float:
        """When the oldest of them was prepared (Unix seconds); infinity, if there is none."""
        return min([one.at for one in self.by_key.values()], default=float("inf"))

    def find(self, xid: str) -> Prepare | None:
        """Find one; None: there is none."""
        return self.by_key.get(prepared_key(xid))

    def prepare(self, undo: Undo, trans_id: int, record: Prepare) -> None:
        """Have one."""
        self._change(undo, trans_id, prepared_key(record.xid), record)

    def decide(self, undo: Undo, trans_id: int, record: Decide) -> None:
        """Have it no more."""
        self._change(undo, trans_id, prepared_key(record.xid), None)

    def _change(self, undo: Undo, trans_id: int, key: bytes, record: Prepare | None) -> None:
        known = self.by_key.get(key)
        self.put(key, record)
        undo.then(trans_id, lambda: self.put(key, known))

    def put(self, key: bytes, record: Prepare | None) -> None:
        """Have one under that key, or none."""
        known = self.by_key.pop(key, None)
        if known is not None:
            self.bytes -= known.data_bytes
        if record is not None:
            self.by_key[key] = record
            self.bytes += record.data_bytes
