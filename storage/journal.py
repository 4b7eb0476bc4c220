"""The journal: where an entry becomes durable, with one write and one flush into space that is already there.

LMDB flushes twice a commit (its pages, then the page that names them), and a flush is nearly all that a commit costs
(bench/journal.py prints both). So entries go here first, and into LMDB's log in bulk a little later. The journal
holds only what LMDB does not hold yet; it is a few fixed segments that are used again and again.

A segment is a file named by its number, of `segment_bytes`:

    head   magic "QUORATEJ", format version u32, segment number u64, CRC-32 u32
    frame  magic "QJRN", length u32, low half of the segment number u32, CRC-32 u32, synced u64, payload (one
           entry), zeros up to a multiple of 8
    ...    the rest is zeros, or what an earlier use of the file left

All numbers little-endian. The CRC covers the segment number, the length, `synced` and the payload, so a frame of an
earlier use never counts. `synced` is how far into this segment the writer knew everything to be on disk when it
wrote the frame. That tells damage apart: a frame that does not check is a torn write, and the journal ends before
it, unless a later frame or segment says that it had been flushed; then something broke what was safe, and that is
`DamagedError`.
"""

import struct
import zlib
from typing import Final, NamedTuple

from storage.disk import DiskFile, Folder
from storage.errors import DamagedError, UnknownFormatError

SEGMENT_MAGIC: Final = b"QUORATEJ"
FRAME_MAGIC: Final = b"QJRN"
JOURNAL_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sIQI")
_FRAME: Final = struct.Struct("<4sIIIQ")
_CHECKED: Final = struct.Struct("<QIQ")
HEAD_BYTES: Final = 32
SUFFIX: Final = ".journal"


class Scan(NamedTuple):
    """What reading a segment found: payloads in order, where the next frame goes, and a torn frame's offset if any."""

    number: int
    payloads: list[bytes]
    end: int
    torn_at: int | None


class JournalContent(NamedTuple):
    """All segments' payloads in the order they were written, and what was torn, in words."""

    payloads: list[bytes]
    torn: str | None


def segment_name(number: int) -> str:
    """The file name of a segment."""
    return f"{number:010d}{SUFFIX}"


def _head(number: int) -> bytes:
    plain = _HEAD.pack(SEGMENT_MAGIC, JOURNAL_VERSION, number, 0)[:-4]
    return (plain + zlib.crc32(plain).to_bytes(4, "little")).ljust(HEAD_BYTES, b"\0")


def _frame_crc(number: int, synced: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED.pack(number, len(payload), synced)))


def frame_bytes(payload_bytes: int) -> int:
    """How much of a segment a payload of that size takes."""
    return (_FRAME.size + payload_bytes + 7) & ~7


def _frame(number: int, synced: int, payload: bytes) -> bytes:
    head = _FRAME.pack(FRAME_MAGIC, len(payload), number & 0xFFFFFFFF, _frame_crc(number, synced, payload), synced)
    return b"".join((head, payload, bytes(-(len(head) + len(payload)) % 8)))


def _frame_at(data: bytes, offset: int, number: int) -> tuple[int, bytes] | None:
    """`synced` and payload of the valid frame at `offset`, or None."""
    if offset + _FRAME.size > len(data):
        return None
    magic, length, _, crc, synced = _FRAME.unpack_from(data, offset)
    start = offset + _FRAME.size
    if magic != FRAME_MAGIC or start + length > len(data):
        return None
    payload = data[start : start + length]
    return (synced, payload) if crc == _frame_crc(number, synced, payload) else None


def scan_segment(data: bytes, where: str, expected: int) -> Scan:
    """Read a segment's bytes, whose file name says that it is number `expected`.

    Raises `DamagedError` when something that had been flushed does not check, `UnknownFormatError` for a newer
    version's segment. A segment whose head was never completed holds nothing.
    """
    if data[:HEAD_BYTES] != _head(expected):
        magic, version, number, crc = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
        if magic == SEGMENT_MAGIC and crc == zlib.crc32(data[: _HEAD.size - 4]):
            if version != JOURNAL_VERSION:
                raise UnknownFormatError(f"{where}: journal format {version}, this version reads {JOURNAL_VERSION}")
            if number < expected:
                return Scan(expected, [], HEAD_BYTES, None)  # renamed for its next use, not yet begun
            raise DamagedError(where, f"says that it is segment {number}")
        if _last_synced(data, HEAD_BYTES, expected):
            raise DamagedError(where, "the segment's head is damaged, and there are entries behind it")
        return Scan(expected, [], HEAD_BYTES, None)
    payloads: list[bytes] = []
    offset = HEAD_BYTES
    while (frame := _frame_at(data, offset, expected)) is not None:
        payloads.append(frame[1])
        offset += frame_bytes(len(frame[1]))
    if _last_synced(data, offset, expected) > offset:
        raise DamagedError(f"{where}, byte {offset}", "the entry is damaged, and later ones show that it was on disk")
    begun = data[offset : offset + 4] == FRAME_MAGIC and data[offset + 8 : offset + 12] == _low_half(expected)
    return Scan(expected, payloads, offset, offset if begun else None)


def _low_half(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def _last_synced(data: bytes, offset: int, number: int) -> int:
    """The largest `synced` of the valid frames behind a broken one at `offset`; 0 if there is none."""
    largest = 0
    at = data.find(FRAME_MAGIC, offset)
    while at >= 0:
        frame = _frame_at(data, at, number)
        if frame is not None:
            largest = max(largest, frame[0])
        at = data.find(FRAME_MAGIC, at + 4)
    return largest


def read_journal(folder: Folder, *, tolerant: bool = False) -> JournalContent:
    """All that the journal holds, changing nothing.

    A torn end is left out and told. Raises `DamagedError` for anything else, or, if `tolerant`, stops before it and
    tells it as torn.
    """
    payloads: list[bytes] = []
    torn: str | None = None
    for name in [name for name in folder.names() if name.endswith(SUFFIX)]:
        if not name.removesuffix(SUFFIX).isdigit():
            continue
        file = folder.open(name)
        try:
            data = file.read_all()
        finally:
            file.close()
        try:
            scan = scan_segment(data, f"journal segment {name}", int(name.removesuffix(SUFFIX)))
            if torn is not None and scan.payloads:
                raise DamagedError(torn, "the entry is damaged, and later segments show that it was on disk")
        except DamagedError as error:
            if not tolerant:
                raise
            return JournalContent(payloads, str(error))
        payloads += scan.payloads
        if scan.torn_at is not None:
            torn = f"journal segment {name}, byte {scan.torn_at}"
    return JournalContent(payloads, torn)


class Journal:
    """The writer. One thread owns it.

    `begin` starts a new segment, always: what older ones hold has been read by then, and they are recycled by
    `recycle` once LMDB has it. `append` needs `room`; the caller asks first.
    """

    def __init__(self, folder: Folder, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._file: DiskFile | None = None
        self._number = 0
        self._offset = 0
        self._synced = 0
        self._spare: list[str] = []
        self._full: list[tuple[int, str]] = []
        self._last_trans_id = 0

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that a segment takes."""
        return self._segment_bytes - HEAD_BYTES - frame_bytes(0)

    @property
    def room_bytes(self) -> int:
        """What can be appended before a new segment needs space on the disk (bytes, a little less)."""
        return self._segment_bytes - self._offset + len(self._spare) * (self._segment_bytes - HEAD_BYTES)

    def begin(self, last_trans_id: int, spares: int = 1) -> None:
        """Start a new segment after all that are there, which hold records up to `last_trans_id`.

        Makes `spares` more, so that later ones need no space. Raises `DiskFullError`.
        """
        names = [name for name in self._folder.names() if name.endswith(SUFFIX)]
        numbered = [name for name in names if name.removesuffix(SUFFIX).isdigit()]
        for name in set(names) - set(numbered):
            self._folder.remove(name)
        self._number = max((int(name.removesuffix(SUFFIX)) for name in numbered), default=0)
        self._full = [(last_trans_id, name) for name in numbered]
        self._last_trans_id = last_trans_id
        self._start_segment()
        for index in range(spares):
            name = f"spare-{self._number}-{index}{SUFFIX}"
            self._folder.create(name, self._segment_bytes).close()
            self._spare.append(name)

    def append(self, payload: bytes, last_trans_id: int) -> None:
        """Write one entry, whose last record is `last_trans_id`; durable after `flush`.

        Raises `DiskFullError` when a new segment was needed and there was no space for it: nothing was written.
        """
        size = frame_bytes(len(payload))
        assert size <= self._segment_bytes - HEAD_BYTES, "an entry never outgrows a segment"
        if self._offset + size > self._segment_bytes:
            self.flush()  # what later segments hold proves this one's content: it must be on disk before them
            self._next_segment()
        assert self._file is not None
        self._file.write_at(self._offset, _frame(self._number, self._synced, payload))
        self._offset += size
        self._last_trans_id = last_trans_id

    def flush(self) -> None:
        """Return when all that was appended is on disk."""
        if self._synced != self._offset and self._file is not None:
            end = self._offset
            self._file.flush()
            self._synced = end

    def recycle(self, stored_trans_id: int) -> None:
        """Let go of full segments whose records, up to `stored_trans_id`, are in LMDB."""
        while self._full and self._full[0][0] <= stored_trans_id:
            _, name = self._full.pop(0)
            if len(self._spare) < 2:
                spare = f"spare-{name}"
                self._folder.rename(name, spare)
                self._spare.append(spare)
            else:
                self._folder.remove(name)

    def close(self) -> None:
        """Flush and give the file back."""
        if self._file is not None:
            self.flush()
            self._file.close()
            self._file = None

    def _next_segment(self) -> None:
        assert self._file is not None
        full = (self._last_trans_id, segment_name(self._number))
        file = self._file
        self._start_segment()
        file.close()
        self._full.append(full)

    def _start_segment(self) -> None:
        name = segment_name(self._number + 1)
        if self._spare:
            self._folder.rename(self._spare[0], name)
            del self._spare[0]
            file = self._folder.open(name)
        else:
            file = self._folder.create(name, self._segment_bytes)
        file.write_at(0, _head(self._number + 1))
        file.flush()
        self._file = file
        self._number += 1
        self._offset = self._synced = HEAD_BYTES
