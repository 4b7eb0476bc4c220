"""The entry codec: records that are committed together, encoded once and then stored, sent and read as these bytes.

Layout: 4 bytes big-endian CRC-32 (zlib's) of all that follows, then one msgpack array
[version, vote_id, first_trans_id, time, records]. Records are numbered from `first_trans_id`, without gaps.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgpack
import msgspec

from storage.entry import Entry, EntryHeader, StoredEntry
from storage.errors import DamagedError, UnknownFormatError
from storage.kinds import GROWN, as_written
from storage.message import Made, Message
from storage.records import Record

ENTRY_VERSION: Final = 1
CHECKSUM_BYTES: Final = 4
TRANS_ID_MAX: Final = 2**43 - 1
"""The last record whose message has an id below 2**53: see `storage.message_ids`."""

_encode_payload: Final = msgspec.msgpack.Encoder().encode
_decode_payload: Final = msgspec.msgpack.Decoder(Entry).decode
_decode_header: Final = msgspec.msgpack.Decoder(EntryHeader).decode
_crc32: Final = zlib.crc32
_GROWN: Final = GROWN


def encode(vote_id: int, first_trans_id: int, time: float, records: Sequence[Record | Made]) -> bytes:
    """Encode an entry. `records` is empty in a cut alone; a message among them is the record that produced it."""
    written = [
        record.record() if isinstance(record, Message) else as_written(record) if type(record) in _GROWN else record
        for record in records
    ]
    payload = _encode_payload((ENTRY_VERSION, vote_id, first_trans_id, time, written))
    return _crc32(payload).to_bytes(CHECKSUM_BYTES, "big") + payload


def is_whole(data: bytes | memoryview) -> bool:
    """Whether the checksum fits the bytes."""
    return len(data) > CHECKSUM_BYTES and int.from_bytes(data[:CHECKSUM_BYTES], "big") == _crc32(data[CHECKSUM_BYTES:])


def decode(data: bytes | memoryview, where: str) -> Entry:
    """Decode the entry in `data`; `where` says in an error where it was read.

    Raises `DamagedError` if it is not what was written, `UnknownFormatError` if a newer version wrote it.
    """
    if not is_whole(data):
        raise DamagedError(where, "the checksum does not fit the entry")
    try:
        entry = _decode_payload(memoryview(data)[CHECKSUM_BYTES:])
    except msgspec.DecodeError as error:
        raise _explain(data, where, error) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(where, str(error)) from error
    if entry.version != ENTRY_VERSION or not entry.records:
        raise UnknownFormatError(f"{where}: entry version {entry.version} of {len(entry.records)} records")
    return entry


def entry_time(data: bytes | memoryview) -> float:
    """When an entry whose checksum is known to fit was made (Unix seconds); decodes none of its records."""
    return _decode_header(memoryview(data)[CHECKSUM_BYTES:]).time


def begins_with(data: bytes | memoryview, kind: type[msgspec.Struct]) -> bool:
    """Whether the first record of an entry whose checksum is known to fit is of that kind; decodes none of them."""
    records = _decode_header(memoryview(data)[CHECKSUM_BYTES:]).records
    return bool(records) and memoryview(records[0])[1] == kind.__struct_config__.tag


def _explain(data: bytes | memoryview, where: str, error: Exception) -> Exception:
    """Why a whole entry does not decode: its checksum fits, so it was written so, by another version."""
    try:
        loose = decode_loosely(data)
    except ValueError:  # msgpack's errors are
        loose = []
    return UnknownFormatError(
        f"{where}: this entry was written by a version that knows more than this one "
        f"(format {loose[0] if loose else '?'}): {error}. Run that version, or restore a backup of this one's."
    )


def decode_loosely(data: bytes | memoryview) -> list[Any]:
    """Decode an entry as plain lists, whatever kinds it holds: for people and for tools that must show anything."""
    value = msgpack.unpackb(memoryview(data)[CHECKSUM_BYTES:], strict_map_key=False)
    return value if isinstance(value, list) else [value]


def stored_entry(data: bytes) -> StoredEntry:
    """Read what the header of an entry says whose checksum is known to fit."""
    header = _decode_header(memoryview(data)[CHECKSUM_BYTES:])
    return StoredEntry(header.first_trans_id, header.first_trans_id + len(header.records) - 1, header.vote_id, data)


def received_entry(data: bytes, where: str) -> StoredEntry:
    """As `stored_entry`, for bytes from elsewhere, whose records are all looked at: what can't be read is never stored.

    Raises `DamagedError` and `UnknownFormatError` as `decode` does.
    """
    entry = decode(data, where)
    if entry.last_trans_id > TRANS_ID_MAX:
        raise DamagedError(where, f"it is numbered up to {entry.last_trans_id}")
    return StoredEntry(entry.first_trans_id, entry.last_trans_id, entry.vote_id, data, read=entry)


def read(stored: StoredEntry, where: str) -> Entry:
    """Decode what stands in it, only if that was not done when it came; it is not kept. Raises as `decode` does."""
    entry, stored.read = stored.read, None
    return decode(stored.data, where) if entry is None else entry


def cut(vote_id: int, after: int) -> StoredEntry:
    """Encode what the journal notes when the records behind `after` are dropped."""
    return StoredEntry(after + 1, after, vote_id, encode(vote_id, after + 1, 0.0, []))
