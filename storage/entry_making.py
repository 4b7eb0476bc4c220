"""Cutting the records that have gathered into entries of bounded size, and encoding them: the once that they are."""

from collections.abc import Sequence
from typing import Final

from storage.entry import StoredEntry
from storage.entry_codec import encode
from storage.kinds import messages_of
from storage.message import Made, Message, weight
from storage.records import Append, Members, Offsets, Prepare, Retire

SMALL_ENTRY_RECORDS: Final = 100
RECORD_BYTES: Final = 400
"""What a record takes beside its data and its lists, at most about."""

ITEM_BYTES: Final = 40

_Members: Final = Members
_Append: Final = Append
_StoredEntry: Final = StoredEntry


def make_entries(
    vote_id: int,
    first: int,
    time: float,
    records: Sequence[Made],
    bytes_max: int,
    together: Sequence[tuple[int, int]] = (),
) -> list[StoredEntry]:
    """Make the entries that hold `records`, numbered from `first`, made by the leader of `vote_id` at its `time` (s).

    An entry is committed whole or not at all. So the records of one of `together`, each a first index and the one
    behind the last, in order, are in one entry, however large; a reply that is all or nothing rests on that.
    """
    entries: list[StoredEntry] = []
    for part in _parts(records, bytes_max, together) if records else ():
        data = encode(vote_id, first, time, part)
        entries.append(_StoredEntry(first, first + len(part) - 1, vote_id, data, type(part[0]) is _Members))
        first += len(part)
    return entries


def _parts(records: Sequence[Made], bytes_max: int, together: Sequence[tuple[int, int]]) -> Sequence[Sequence[Made]]:
    """Cut the records so that no entry has more than about `bytes_max` and one record, or one group, more."""
    if len(records) < SMALL_ENTRY_RECORDS:
        data_bytes = sum([_data_bytes(record) for record in records])
        if data_bytes < bytes_max // 2:
            return [records]
    if sum([_size(record) for record in records]) <= bytes_max:
        return [records]
    inside = {index for begin, end in together for index in range(begin + 1, end)}
    parts: list[list[Made]] = [[]]
    size = 0
    for index, record in enumerate(records):
        if parts[-1] and size > bytes_max and index not in inside:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += _size(record)
    return parts


def _data_bytes(record: Made) -> int:
    """Count what clients have given it (bytes)."""
    if isinstance(record, Message):
        return weight(record)
    return appended_bytes(record) if type(record) is _Append else 0


def appended_bytes(record: Append) -> int:
    """Count what its client has given a message that is appended to a topic: as `weight` does."""
    size = 0 if record.attribute is None else 4 * len(record.attribute)
    if record.headers is not None:
        size += 4 * sum([len(name) + len(text) for name, text in record.headers.items()])
    return size + len(record.data)


def _size(record: Made) -> int:
    """Reckon what a record takes (bytes, at most about)."""
    if isinstance(record, Message):
        return weight(record) + RECORD_BYTES
    if type(record) is _Append:
        return appended_bytes(record) + RECORD_BYTES
    if isinstance(record, Prepare):
        return record.data_bytes + RECORD_BYTES * (1 + len(record.puts))
    if isinstance(record, (Retire, Offsets)):
        return RECORD_BYTES + ITEM_BYTES * len(record.partitions)
    return RECORD_BYTES + ITEM_BYTES * len(messages_of(record)[0])
