"""How far the log's head may be trimmed. A machine; its host is the Checkpointer.

The log keeps its last `records_max` records, and up to a tenth more. It keeps more for its named readers: all that the
slowest has not read yet, up to `reader_records_max` records and `reader_bytes_max` bytes. A reader that is further
behind loses what is trimmed, which is said once; from then on nothing is kept for it until it has caught up. Nothing
is trimmed before it is known who reads: after a start the state's owner says so, and the Checkpointer may ask first.
"""

from dataclasses import dataclass

from storage.log_store import Bounds
from storage.records import ReaderPosition
from storage.stretches import STRETCH_RECORDS


@dataclass(frozen=True)
class RetentionLimits:
    """Records, and bytes of LMDB's pages."""

    records_max: int = 1_000_000
    reader_records_max: int = 10_000_000
    reader_bytes_max: int = 8 << 30


def stretch_records(records_max: int) -> int:
    """How many records go at once from a log of so many: half of what it may have beyond them, at most."""
    return max(1, min(STRETCH_RECORDS, records_max // 20))


class Retention:
    """Of one shard's log."""

    def __init__(self, limits: RetentionLimits) -> None:
        self._limits = limits
        self._readers: dict[str, ReaderPosition] | None = None
        self._lost: dict[str, int] = {}

    def moved(self, readers: dict[str, ReaderPosition]) -> None:
        """Take over the readers that are there now, all of them, as committed."""
        self._readers = readers
        self._lost = {name: upto for name, upto in self._lost.items() if name in readers and readers[name].upto == upto}

    def until(self, bounds: Bounds, log_bytes: int, *, is_going_on: bool) -> int | None:
        """Up to which record the head may go now; None if it is to stay. `is_going_on`: in a trim that has begun."""
        limits = self._limits
        slack = 0 if is_going_on else max(limits.records_max // 10, 1)
        if self._readers is None or bounds.checkpointed - bounds.trimmed <= limits.records_max + slack:
            return None
        wanted = bounds.checkpointed - limits.records_max
        needed = min((one.upto for one in self._readers.values() if one.upto >= bounds.trimmed), default=wanted)
        if needed < wanted and log_bytes <= limits.reader_bytes_max:
            wanted = max(needed, bounds.checkpointed - limits.reader_records_max)
        return wanted if wanted > bounds.trimmed else None

    def trimmed(self, until: int) -> list[tuple[str, int]]:
        """Note that the head has gone up to `until`: which readers have just lost records, and behind which one."""
        readers = self._readers or {}
        lost = [(name, at.upto) for name, at in readers.items() if at.upto < until and name not in self._lost]
        self._lost.update(lost)
        return lost
