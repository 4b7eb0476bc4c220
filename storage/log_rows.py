"""Rows of LMDB's log: an entry each, or several that were stored together.

| row | key | value |
|---|---|---|
| an entry | its last trans_id (8 bytes, big-endian) | the entry |
| several | the last one's last trans_id, and `SEVERAL` | a table of them, and the entries, one behind the other |

A row more costs a store and a trim some microseconds each, most of which are not LMDB's: for each, the thread that does
it gives the interpreter up and waits for it again, while the loop wants it. With eight clients a row of several took a
tenth off all that a node did for a request.

The table: CRC-32 of what follows, how many (4 bytes), and for each its last trans_id (8 bytes) and its length (4). Each
entry has a checksum of its own. Rows of several are written from feature level 5 on: versions before can't read them.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from storage.entry import StoredEntry

SEVERAL: Final = b"+"
ROW_BYTES: Final = 32 << 10
"""Of the entries of a row of several, at most: LMDB finds room for a few pages in a row without a long search."""

_HEAD: Final = struct.Struct(">II")
_PLACE: Final = struct.Struct(">QI")
_CHECKSUM_BYTES: Final = 4


def number_key(number: int) -> bytes:
    """Make a trans_id or msg_id the key under which LMDB sorts it."""
    return number.to_bytes(8, "big")


def last_in(key: bytes) -> int:
    """Read from its key which record a row ends with."""
    return int.from_bytes(key[:8], "big")


def key_behind(trans_id: int) -> bytes:
    """Make a key behind those of all rows that end with that record, and before those of all later ones."""
    return number_key(trans_id) + b"\xff"


def rows_of(entries: Sequence[StoredEntry], *, together: bool) -> list[tuple[bytes, bytes]]:
    """Make the rows of entries in order; `together`: several in each."""
    if not together:
        return [(number_key(entry.last_trans_id), entry.data) for entry in entries]
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
    places = b"".join([_PLACE.pack(end, len(one)) for end, one in part])
    count = len(part).to_bytes(4, "big")
    table = zlib.crc32(count + places).to_bytes(_CHECKSUM_BYTES, "big") + count + places
    return number_key(last) + SEVERAL, b"".join([table, *[one for _, one in part]])


def entries_in(key: bytes, value: bytes, after: int) -> Iterator[tuple[int, bytes]]:
    """Give the entries of a row that end behind record `after`, in order, each with its last trans_id.

    Where the table of several is damaged they are all one, whose checksum does not fit: they can't be told apart.
    """
    last = last_in(key)
    if len(key) == 8:
        if last > after:
            yield last, value
        return
    table = _table(value)
    if table is None:
        yield last, value
        return
    at = _HEAD.size + len(table) * _PLACE.size
    for end, length in table:
        if end > after:
            yield end, value[at : at + length]
        at += length


def _table(value: bytes) -> list[tuple[int, int]] | None:
    """Read it; None: it is damaged."""
    if len(value) < _HEAD.size:
        return None
    checksum, count = _HEAD.unpack_from(value)
    end = _HEAD.size + count * _PLACE.size
    if end > len(value) or checksum != zlib.crc32(value[_CHECKSUM_BYTES:end]):
        return None
    return list(_PLACE.iter_unpack(value[_HEAD.size : end]))
