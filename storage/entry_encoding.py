"""Encoding an entry, which each request waits for: see `entry` for what it is, and for decoding."""

import zlib
from typing import Final

import msgspec

from storage.records import Record

ENTRY_VERSION: Final = 1
CHECKSUM_BYTES: Final = 4

_encode_payload = msgspec.msgpack.Encoder().encode
_crc32 = zlib.crc32


def encode(vote_id: int, first_trans_id: int, time: float, records: list[Record]) -> bytes:
    """The entry's bytes. `records` is empty in a cut alone."""
    payload = _encode_payload((ENTRY_VERSION, vote_id, first_trans_id, time, records))
    return _crc32(payload).to_bytes(CHECKSUM_BYTES, "big") + payload
