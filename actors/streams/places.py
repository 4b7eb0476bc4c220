"""Finding a place in a partition: by offset, position or time; in memory at once, in blocks in a later turn."""

from collections.abc import Callable
from functools import partial

from actors.messages.call import Call
from actors.shard.disk_reads import DiskReads
from storage.block_rows import Stored, Wanted
from storage.partition import Partition


class Place:
    """Where a partition is to begin from now on: an offset, its position, and when its message was appended."""

    __slots__ = ("at", "offset", "position")

    def __init__(self, offset: int, position: int, at: float) -> None:
        self.offset = offset
        self.position = position
        self.at = at


class Finder:
    """Of one shard's machines."""

    def __init__(self, disk: DiskReads) -> None:
        self._disk = disk

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be looked for."""
        return self._disk.is_full

    def find(self, call: Call | None, partition: Partition, wanted: Wanted, then: Callable[[Place], None]) -> None:
        """Find a message that is kept by its offset, position or time; where none is, the end of the partition."""
        offset = wanted.offset
        held, held_position = partition.held_from
        if offset is None and wanted.position is not None and wanted.position >= held_position:
            offset = partition.find_position(wanted.position)
        elif offset is None and wanted.at is not None and held <= partition.first:
            offset = partition.find_time(wanted.at)
        if offset is not None and offset >= held:
            return then(place_in_memory(partition, offset))
        return self._disk.ask(call, wanted, partial(self._found, partition, wanted, then))

    def _found(self, partition: Partition, wanted: Wanted, then: Callable[[Place], None], stored: Stored) -> None:
        if stored.kept:
            kept = stored.kept[0]
            then(Place(kept.offset, kept.position, kept.produced_at))
        elif wanted.at is not None:
            then(place_in_memory(partition, partition.find_time(wanted.at)))
        elif wanted.position is not None:
            then(place_in_memory(partition, partition.find_position(wanted.position)))
        else:  # it is damaged, or was trimmed since
            then(Place(partition.first, partition.first_position, partition.first_at))


def place_in_memory(partition: Partition, offset: int) -> Place:
    """Give the place of a message in memory, or of the end."""
    kept = next(partition.in_memory(offset), None)
    if kept is None:
        return Place(partition.settled, partition.settled_position, partition.last_at)
    return Place(kept.offset, kept.position, kept.produced_at)
