"""Entries to be written and stored."""

from storage.entry import StoredEntry
from storage.entry_codec import encode
from storage.records import Configure, Record


def entry(number: int, size: int = 100) -> StoredEntry:
    records: list[Record] = [Configure("q" * size, 0, 1.0, 0.0, 0, None, False)]
    return StoredEntry(number, number, 1, encode(1, number, float(number), records))
