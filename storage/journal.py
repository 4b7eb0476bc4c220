"""The journal: where an entry becomes durable, with one write into space that is already there.

LMDB flushes twice a commit (its pages, then the page that names them), and a flush is nearly all that a commit costs
(bench/journal.py prints both). So entries go here first, and into LMDB's log in bulk a little later. The journal
holds only what LMDB does not hold yet; it is a few fixed segments that are used again and again.

A segment is a file named by its number, of fixed size:

    head   magic "QUORATEJ", format version u32, alignment u32, segment number u64, CRC-32 u32; 4096 bytes
    frame  magic "QJRN", length u32, low half of the segment number u32, CRC-32 u32, synced u64, payload (one
           entry), zeros up to a multiple of the alignment
    ...    the rest is zeros, or what an earlier use of the file left

All numbers little-endian. A frame's CRC covers the whole segment number, the length, `synced` and the payload, so a
frame of an earlier use never counts. `synced` is how far into this segment everything was known to be on disk when
the frame was made. That tells damage apart: a frame that does not check is a torn write, and the journal ends before
it, unless a later frame or segment says that it had been on disk; then something broke what was safe, and that is
`DamagedError`. A segment is begun only when the one before it is on disk as a whole; a torn frame that recovery cut
off is erased before a new segment is begun, or that would bear witness against it.

This module is the format and the reading of it; `journal_writer` writes.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.disk import Folder
from storage.errors import DamagedError, UnknownFormatError

SEGMENT_MAGIC: Final = b"QUORATEJ"
FRAME_MAGIC: Final = b"QJRN"
JOURNAL_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sIIQI")
_FRAME: Final = struct.Struct("<4sIIIQ")
_CHECKED: Final = struct.Struct("<QIQ")
_pack_frame: Final = _FRAME.pack
_pack_checked: Final = _CHECKED.pack
_crc32: Final = zlib.crc32
HEAD_BYTES: Final = 4096
FRAME_HEAD_BYTES: Final = int(_FRAME.size)
ALIGNMENTS: Final = (8, 512, 4096)
_ZEROS: Final = bytes(ALIGNMENTS[-1])
SUFFIX: Final = ".journal"


class Scan(NamedTuple):
    """What reading a segment found: payloads in order, where the next frame goes, and a torn frame's offset if any."""

    number: int
    payloads: list[bytes]
    end: int
    torn_at: int | None


class JournalContent(NamedTuple):
    """All segments' payloads in the order they were written; what was torn in words, and its segment and offset."""

    payloads: list[bytes]
    torn: str | None
    torn_at: tuple[str, int] | None


def segment_name(number: int) -> str:
    """Give the file name of a segment."""
    return f"{number:010d}{SUFFIX}"


def is_segment_name(name: str) -> bool:
    """Whether a file of that name is a segment."""
    return name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdigit()


def is_empty_segment(folder: Folder, name: str) -> bool:
    """Whether a segment that recovery has read without complaint holds no entry."""
    file = folder.open(name)
    try:
        return not scan_segment(file.read_all(), name, int(name.removesuffix(SUFFIX))).payloads
    finally:
        file.close()


def head_bytes(number: int, alignment: int) -> bytes:
    """Make a segment's head."""
    plain = _HEAD.pack(SEGMENT_MAGIC, JOURNAL_VERSION, alignment, number, 0)[:-4]
    return (plain + zlib.crc32(plain).to_bytes(4, "little")).ljust(HEAD_BYTES, b"\0")


def _frame_crc(number: int, synced: int, payload: bytes | memoryview) -> int:
    return _crc32(payload, _crc32(_pack_checked(number, len(payload), synced)))


def frame_size(payload_bytes: int, alignment: int) -> int:
    """How much of a segment a payload of that size takes."""
    return -(-(FRAME_HEAD_BYTES + payload_bytes) // alignment) * alignment


def frame(number: int, synced: int, payload: bytes, alignment: int) -> bytes:
    """Make a payload's frame, as it stands in segment `number`."""
    head = _pack_frame(FRAME_MAGIC, len(payload), number & 0xFFFFFFFF, _frame_crc(number, synced, payload), synced)
    return b"".join((head, payload, _ZEROS[: -(len(head) + len(payload)) % alignment]))


def _frame_at(data: bytes, offset: int, number: int) -> tuple[int, bytes] | None:
    """Read `synced` and payload of the valid frame at `offset`, or None."""
    if offset + FRAME_HEAD_BYTES > len(data):
        return None
    magic, length, _, crc, synced = _FRAME.unpack_from(data, offset)
    start = offset + FRAME_HEAD_BYTES
    if magic != FRAME_MAGIC or start + length > len(data):
        return None
    payload = data[start : start + length]
    return (synced, payload) if crc == _frame_crc(number, synced, payload) else None


def scan_segment(data: bytes, where: str, expected: int) -> Scan:
    """Read a segment's bytes, whose file name says that it is number `expected`.

    Raises `DamagedError` when something that had been flushed does not check, `UnknownFormatError` for a newer
    version's segment. A segment whose head was never completed holds nothing.
    """
    alignment = _alignment_in(data, where, expected)
    if alignment is None:
        if _last_synced(data, HEAD_BYTES, expected):
            raise DamagedError(where, "the segment's head is damaged, and there are entries behind it")
        return Scan(expected, [], HEAD_BYTES, None)
    payloads: list[bytes] = []
    offset = HEAD_BYTES
    while (found := _frame_at(data, offset, expected)) is not None:
        payloads.append(found[1])
        offset += frame_size(len(found[1]), alignment)
    if _last_synced(data, offset, expected) > offset:
        raise DamagedError(f"{where}, byte {offset}", "the entry is damaged, and later ones show that it was on disk")
    return Scan(expected, payloads, offset, offset if _is_begun(data, offset, expected) else None)


def _is_begun(data: bytes, offset: int, number: int) -> bool:
    """Whether a frame of this segment's present use was begun at `offset`, or whole but for its first bytes."""
    head = data[offset : offset + FRAME_HEAD_BYTES]
    if head[:4] == FRAME_MAGIC and head[8:12] == _low_half(number):
        return True
    mended = data[:offset] + FRAME_MAGIC + head[4:8] + _low_half(number) + data[offset + 12 :] if any(head) else b""
    return _frame_at(mended, offset, number) is not None


def _alignment_in(data: bytes, where: str, expected: int) -> int | None:
    """Read the alignment that the head names; None if this segment was never begun. Raises as `scan_segment`."""
    if len(data) < HEAD_BYTES:
        return None
    magic, version, alignment, number, crc = _HEAD.unpack_from(data)
    if magic != SEGMENT_MAGIC or crc != zlib.crc32(data[: _HEAD.size - 4]):
        return None
    if version != JOURNAL_VERSION or alignment not in ALIGNMENTS:
        raise UnknownFormatError(f"{where}: journal format {version}, this version reads {JOURNAL_VERSION}")
    if number > expected:
        raise DamagedError(where, f"says that it is segment {number}")
    return int(alignment) if number == expected else None  # a lower one: renamed for its next use, not yet begun


def _low_half(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def _last_synced(data: bytes, offset: int, number: int) -> int:
    """Find the largest `synced` of the valid frames behind a broken one at `offset`; 0 if there is none."""
    largest = 0
    at = data.find(FRAME_MAGIC, offset)
    while at >= 0:
        found = _frame_at(data, at, number)
        if found is not None:
            largest = max(largest, found[0])
        at = data.find(FRAME_MAGIC, at + 4)
    return largest


def read_journal(folder: Folder) -> JournalContent:
    """All that the journal holds, changing nothing; a torn end is left out and told. Raises `DamagedError`."""
    payloads: list[bytes] = []
    torn: str | None = None
    torn_at: tuple[str, int] | None = None
    for name, data in _segments(folder):
        scan = scan_segment(data, f"journal segment {name}", int(name.removesuffix(SUFFIX)))
        if torn is not None and scan.payloads:
            raise DamagedError(torn, "the entry is damaged, and later segments show that it was on disk")
        payloads += scan.payloads
        if scan.torn_at is not None:
            torn = f"journal segment {name}, byte {scan.torn_at}"
            torn_at = (name, scan.torn_at)
    return JournalContent(payloads, torn, torn_at)


def salvage_journal(folder: Folder) -> list[bytes]:
    """Every payload that can still be read, in order, whatever is damaged between them."""
    payloads: list[bytes] = []
    for name, data in _segments(folder):
        number = int(name.removesuffix(SUFFIX))
        at = data.find(FRAME_MAGIC)
        while at >= 0:
            found = _frame_at(data, at, number)
            if found is not None:
                payloads.append(found[1])
            at = data.find(FRAME_MAGIC, at + (4 if found is None else FRAME_HEAD_BYTES + len(found[1])))
    return payloads


def _segments(folder: Folder) -> Iterator[tuple[str, bytes]]:
    for name in folder.names():
        if is_segment_name(name):
            file = folder.open(name)
            try:
                yield name, file.read_all()
            finally:
                file.close()
