"""Rows of LMDB's log: an entry each, or several that were stored together.

| row | key | value |
|---|---|---|
| an entry | its last trans_id (8 bytes, big-endian) | the entry |
| several | the last one's last trans_id, and `SEVERAL` | their table, the entries one behind the other, their table |

A row more costs a store and a trim some microseconds each, most of which are not LMDB's: for each, the thread that does
it gives the interpreter up and waits for it again, while the loop wants it. With eight clients a row of several took a
tenth off all that a node did for a request.

The table: how many (4 bytes, big-endian), and for each its last trans_id (8 bytes) and its length (4). In front it
stands behind its CRC-32; at the end before how many there are, and its CRC-32. One of the two is enough, and each entry
has a checksum of its own: what is damaged in a row is an entry, as it is in rows of one. Rows of several are written
from feature level 5 on, and then the data have another format: versions before can't read them, and say so.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from storage.entry import StoredEntry
from storage.errors import DamagedError

SEVERAL: Final = b"+"
ROW_BYTES: Final = 32 << 10
"""Of the entries of a row of several, at most: LMDB finds room for a few pages in a row without a long search."""

_COUNT_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4
_PLACE: Final = struct.Struct(">QI")


def number_key(number: int) -> bytes:
    """Make a trans_id or msg_id the key under which LMDB sorts it."""
    return number.to_bytes(8, "big")


def last_in(key: bytes) -> int:
    """Read from its key which record a row ends with."""
    return int.from_bytes(key[:8], "big")


def key_behind(trans_id: int) -> bytes:
    """Make a key behind those of all rows that end with that record, and before those of all later ones."""
    return number_key(trans_id) + b"\xff"


def rows_of(entries: Sequence[StoredEntry]) -> list[tuple[bytes, bytes]]:
    """Make the rows of entries in order: several in each."""
    rows: list[tuple[bytes, bytes]] = []
    part: list[tuple[int, bytes]] = []
    size = 0
    for entry in entries:
        if part and size + len(entry.data) > ROW_BYTES:
            rows.append(row_of(part))
            part, size = [], 0
        part.append((entry.last_trans_id, entry.data))
        size += len(entry.data)
    if part:
        rows.append(row_of(part))
    return rows


def row_of(part: Sequence[tuple[int, bytes]]) -> tuple[bytes, bytes]:
    """Make the row of these entries, each with its last trans_id."""
    last, data = part[-1]
    if len(part) == 1:
        return number_key(last), data
    table = len(part).to_bytes(_COUNT_BYTES, "big") + b"".join([_PLACE.pack(end, len(one)) for end, one in part])
    checksum = zlib.crc32(table).to_bytes(_CHECKSUM_BYTES, "big")
    entries = b"".join([one for _, one in part])
    return number_key(last) + SEVERAL, b"".join([checksum, table, entries, table, table[:_COUNT_BYTES], checksum])


def entries_in(key: bytes, value: bytes, after: int) -> list[tuple[int, bytes]]:
    """Give the entries of a row that end behind record `after`, in order, each with its last trans_id.

    Raises `DamagedError` where those of several can't be told apart.
    """
    last = last_in(key)
    if len(key) == 8:
        return [(last, value)] if last > after else []
    table = _table(value, last)
    at = _CHECKSUM_BYTES + _COUNT_BYTES + len(table) * _PLACE.size
    found: list[tuple[int, bytes]] = []
    for end, length in table:
        if end > after:
            found.append((end, value[at : at + length]))
        at += length
    return found


def entries_behind(
    rows: Iterable[tuple[bytes, bytes]], after: int, unreadable: Callable[[int, DamagedError], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Give those of all `rows`, as `entries_in` does. A row that can't be read is told to `unreadable`, with the record
    that it ends with; without that it raises `DamagedError`."""
    for key, value in rows:
        try:
            found = entries_in(key, value, after)
        except DamagedError as error:
            if unreadable is None:
                raise
            unreadable(last_in(key), error)
            continue
        yield from found


def _table(value: bytes, last: int) -> list[tuple[int, int]]:
    """Read the first of the two that is whole, and is of a row that ends with record `last`."""
    size = len(value)
    in_front = int.from_bytes(value[_CHECKSUM_BYTES : _CHECKSUM_BYTES + _COUNT_BYTES], "big")
    end = size - _COUNT_BYTES - _CHECKSUM_BYTES
    at_the_end = int.from_bytes(value[end : end + _COUNT_BYTES], "big")
    begin = end - _COUNT_BYTES - at_the_end * _PLACE.size
    for count, at, checksum in (
        (in_front, _CHECKSUM_BYTES, value[:_CHECKSUM_BYTES]),
        (at_the_end, begin, value[end + _COUNT_BYTES :]),
    ):
        table = value[at : at + _COUNT_BYTES + count * _PLACE.size] if at >= 0 else b""
        if len(table) == _COUNT_BYTES + count * _PLACE.size and int.from_bytes(checksum, "big") == zlib.crc32(table):
            places = list(_PLACE.iter_unpack(table[_COUNT_BYTES:]))
            if count == int.from_bytes(table[:_COUNT_BYTES], "big") and places and places[-1][0] == last:
                return places
    raise DamagedError(f"log row {last}", "which entries it holds can't be read")
