"""Cutting the records that have gathered into entries of bounded size, and encoding them: the once that they are."""

from typing import Final

from storage import entry as entry_codec
from storage.entry import StoredEntry
from storage.records import Message, Record, messages_of

SMALL_ENTRY_RECORDS: Final = 100


def make_entries(vote_id: int, first: int, time: float, records: list[Record], bytes_max: int) -> list[StoredEntry]:
    """The entries that hold `records`, numbered from `first`, made by the leader of `vote_id` at its `time` (s)."""
    entries: list[StoredEntry] = []
    for part in _parts(records, bytes_max) if records else ():
        data = entry_codec.encode(vote_id, first, time, part)
        entries.append(StoredEntry(first, first + len(part) - 1, vote_id, data))
        first += len(part)
    return entries


def _parts(records: list[Record], bytes_max: int) -> list[list[Record]]:
    """The records, cut so that no entry has more than about `bytes_max` and one record more."""
    if len(records) < SMALL_ENTRY_RECORDS:
        size = sum(len(record.data) for record in records if type(record) is Message)
        if size < bytes_max // 2:
            return [records]
    parts: list[list[Record]] = [[]]
    size = 0
    for record in records:
        if parts[-1] and size > bytes_max:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += len(record.data) + 400 if isinstance(record, Message) else 400 + 40 * len(messages_of(record)[0])
    return parts
