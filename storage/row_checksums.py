"""Checksums of LMDB's rows: of messages, queues, sections and numbers. Entries of the log have their own.

A row with a checksum is `MARK`, the CRC-32 of its key and its content (4 bytes, big-endian), and the content. msgpack
never begins with `MARK`, so rows that earlier versions wrote are told apart: those have none, are read as they are, and
get one when they are next written. A number's row in `meta` has its CRC-32 behind it (`sealed_number`). The
format's row has none: earlier versions read it, to say that they do not know that format.
"""

import zlib
from typing import Final

from storage.errors import DamagedError

MARK: Final = b"\xc1"
MARK_BYTE: Final = MARK[0]
_CRC_BYTES: Final = 4
_HEAD_BYTES: Final = 1 + _CRC_BYTES
NUMBER_BYTES: Final = 8


def sealed(key: bytes, content: bytes) -> bytes:
    """Make a row of that content, with its checksum."""
    return b"".join([MARK, zlib.crc32(content, zlib.crc32(key)).to_bytes(_CRC_BYTES, "big"), content])


def is_sealed(row: bytes) -> bool:
    """Whether a row has a checksum."""
    return row[:1] == MARK


def opened(key: bytes, row: bytes, where: str) -> bytes:
    """Give a row's content. Raises `DamagedError` where its checksum does not fit; a row without one is given as it
    is."""
    if not row or row[0] != MARK_BYTE:
        return row
    content = row[_HEAD_BYTES:]
    if zlib.crc32(content, zlib.crc32(key)) != int.from_bytes(row[1:_HEAD_BYTES], "big"):
        raise DamagedError(where, "the checksum does not fit the row")
    return content


def sealed_number(key: bytes, number: int) -> bytes:
    """Make the row of a number, with its checksum."""
    data = number.to_bytes(NUMBER_BYTES, "big")
    return data + zlib.crc32(data, zlib.crc32(key)).to_bytes(_CRC_BYTES, "big")


def number_in(key: bytes, row: bytes, where: str) -> int:
    """Read a number's row, with a checksum or without. Raises `DamagedError` where it does not fit."""
    data, checksum = row[:NUMBER_BYTES], row[NUMBER_BYTES:]
    if len(data) != NUMBER_BYTES or (
        checksum and checksum != zlib.crc32(data, zlib.crc32(key)).to_bytes(_CRC_BYTES, "big")
    ):
        raise DamagedError(where, "the checksum does not fit the number")
    return int.from_bytes(data, "big")
