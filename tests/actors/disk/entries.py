"""Entries to be written and stored, and a lane that writes them."""

from actors.disk.disk_lane import DiskLane
from storage.entry import StoredEntry
from storage.entry_codec import encode
from storage.records import Configure, Record
from storage.vote_file import Identity, open_vote_file
from tests.actors.cranked import CrankedRuntime
from tests.storage.memory import MemoryFolder

SEGMENT = 8192
"""Bytes of the journal's segments here."""


def entry(number: int, size: int = 100) -> StoredEntry:
    records: list[Record] = [Configure("q" * size, 0, 1.0, 0.0, 0, None, False)]
    return StoredEntry(number, number, 1, encode(1, number, float(number), records))


def lane(folder: MemoryFolder) -> DiskLane:
    return DiskLane(CrankedRuntime(), folder, folder.alignment, open_vote_file(folder, Identity(0, 1, 7)))
