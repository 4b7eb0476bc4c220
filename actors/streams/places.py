"""Finding a place in a partition: by offset, position or time; in memory at once, in blocks in a later turn."""

from collections.abc import Callable
from functools import partial
from typing import Final

from actors.messages.call import Call
from actors.shard.disk_reads import DiskReads
from storage.block_rows import Stored, Wanted
from storage.partition import Partition
from storage.tails import Tails


class Place:
    """Where a partition is to begin from now on: an offset, its position, and when its message was appended."""

    __slots__ = ("at", "offset", "position")

    def __init__(self, offset: int, position: int, at: float) -> None:
        self.offset = offset
        self.position = position
        self.at = at


NOT_FOUND: Final = "messages are damaged, or on their way to this node, which leads since a moment ago: ask again"
"""Why a place can not be told."""


class Finder:
    """Of one shard's machines."""

    def __init__(self, disk: DiskReads, tails: Tails) -> None:
        self._disk = disk
        self._tails = tails

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be looked for."""
        return self._disk.is_full

    def find(
        self, call: Call | None, partition: Partition, wanted: Wanted, then: Callable[[Place | None], None]
    ) -> Place | None:
        """Find a message that is kept by its offset, position or time; where none is, the end of the partition.

        What is in memory is returned at once. Else, None, `then` gets it in a turn to come; or gets None, where a block
        is missing or damaged.
        """
        offset = wanted.offset
        held, held_position = partition.held_from
        if offset is None and wanted.position is not None and wanted.position >= held_position:
            offset = partition.find_position(wanted.position)
        elif offset is None and wanted.at is not None and held <= partition.first:
            offset = partition.find_time(wanted.at)
        if offset is not None and offset >= held:
            return place_in_memory(partition, offset)
        self._disk.ask(call, wanted, partial(self._found, call, partition, wanted, then, held))
        return None

    def find_all(
        self,
        call: Call,
        wanted: list[tuple[Partition, Wanted]],
        then: Callable[[dict[int, Place] | None], None],
    ) -> None:
        """Find a message of each of these partitions, one after the other, and call `then` with all of the places.

        None: one of them could not be found.
        """
        left = wanted[::-1]
        places: dict[int, Place] = {}

        def look() -> None:
            while left:
                partition, what = left.pop()
                place = self.find(call, partition, what, partial(note, partition.index))
                if place is None:
                    return None  # it is asked for
                places[partition.index] = place
            return then(places)

        def note(index: int, place: Place | None) -> None:
            if place is None:
                return then(None)
            places[index] = place
            return look()

        look()

    def _found(
        self,
        call: Call | None,
        partition: Partition,
        wanted: Wanted,
        then: Callable[[Place | None], None],
        held: int,
        stored: Stored,
    ) -> None:
        if stored.kept:
            kept = stored.kept[0]
            is_known = not self._tails.lacks_before(partition, kept.offset + 1)
            return then(Place(kept.offset, kept.position, kept.produced_at) if is_known else None)
        if self._tails.lacks_before(partition, partition.settled) or stored.damaged is not None:
            return then(None)
        if partition.held_from[0] != held:  # blocks were stored meanwhile, which may have it
            place = self.find(call, partition, wanted, then)
            return None if place is None else then(place)
        if wanted.offset is not None:  # no block has it
            return then(None)
        offset = partition.find_time(wanted.at) if wanted.at is not None else partition.settled
        return then(place_in_memory(partition, offset))


def place_in_memory(partition: Partition, offset: int) -> Place:
    """Give the place of a message in memory, or of the end."""
    kept = next(partition.in_memory(offset), None)
    if kept is None:
        return Place(partition.settled, partition.settled_position, partition.last_at)
    return Place(kept.offset, kept.position, kept.produced_at)
