"""What a node must never forget about elections, and who it is: one small file, written in two places in turn.

A file of its own, since LMDB's one writer may be busy with a bulk when a vote is asked for, and since it must be
writable on a full disk. A write goes to the slot with the older content, so that a torn write leaves the newer one.

    slot   magic "QRTV", length u32, CRC-32 u32, serial u64, payload (msgpack), zeros up to 4096 bytes; there are two
"""

import struct
import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from storage.disk import DiskFile, Folder
from storage.errors import DamagedError

NAME: Final = "votes"
MAGIC: Final = b"QRTV"
SLOT_BYTES: Final = 4096
ID_MAX: Final = 1 << 62
_HEAD: Final = struct.Struct("<4sIIQ")


class Identity(msgspec.Struct, array_like=True, frozen=True):
    """A node's part in its cluster.

    `cluster_id` is 0 until it belongs to one. `disk_id` is drawn when the data folder is first used: a folder that
    was emptied has another, and is not taken for the node that voted. `voted_for` is who got this node's vote in
    `vote_id`, 0 for nobody. `promise_s`: for so long after it has heard a leader this node votes for no other (0: of a
    version that did not note it): a leader counts on that, also when the node starts again with a shorter time-out.
    `abstains`: its log was damaged and is put aside; it votes for nobody, and does not lead, before it has all again
    that its leader has, and so all that it had said it has.
    """

    cluster_id: int
    node_id: int
    disk_id: int
    vote_id: int = 0
    voted_for: int = 0
    promise_s: float = 0.0
    abstains: bool = False


def drawn_id(random: Callable[[], float]) -> int:
    """Draw a new cluster's or disk's id, from 1; `random` draws from [0, 1)."""
    return int(random() * ID_MAX) + 1


class VoteFile:
    """The open file. `identity` is what is on disk; `is_new`: it was not there before."""

    def __init__(self, file: DiskFile, serial: int, identity: Identity, *, is_new: bool = False) -> None:
        self.is_new = is_new
        self._file = file
        self._serial = serial
        self.identity = identity

    def save(self, identity: Identity) -> None:
        """Make it durable. Blocks."""
        self._serial += 1
        payload = msgspec.msgpack.encode(identity)
        checked = self._serial.to_bytes(8, "little") + payload
        head = _HEAD.pack(MAGIC, len(payload), zlib.crc32(checked), self._serial)
        self._file.write_durably_at((self._serial % 2) * SLOT_BYTES, (head + payload).ljust(SLOT_BYTES, b"\0"))
        self.identity = identity

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


def open_vote_file(folder: Folder, new: Identity) -> VoteFile:
    """Open the file in `folder`; one that is not there is made, and says `new`. Blocks.

    Raises `DamagedError` if it can't be read: a node that forgot its votes must not guess them.
    """
    if NAME not in folder.names():
        file = folder.create(NAME, 2 * SLOT_BYTES)
        made = VoteFile(file, 0, new, is_new=True)
        made.save(new)
        return made
    file = folder.open(NAME)
    data = file.read_all()
    found = [slot for at in (0, SLOT_BYTES) if (slot := _read_slot(data[at : at + SLOT_BYTES])) is not None]
    if found:
        serial, identity = max(found, key=lambda slot: slot[0])
        file.flush()  # it may have been read from the system's cache: what was promised once must outlast a power cut
        return VoteFile(file, serial, identity)
    if not any(data):  # made, and the power cut before the first write was done: nothing was promised yet
        made = VoteFile(file, 0, new, is_new=True)
        made.save(new)
        return made
    file.close()
    raise DamagedError(NAME, "neither of its copies can be read: this node does not know how it voted")


def _read_slot(data: bytes) -> tuple[int, Identity] | None:
    if len(data) < _HEAD.size:
        return None
    magic, length, crc, serial = _HEAD.unpack_from(data)
    payload = data[_HEAD.size : _HEAD.size + length]
    if magic != MAGIC or crc != zlib.crc32(serial.to_bytes(8, "little") + payload):
        return None
    try:
        return serial, msgspec.msgpack.decode(payload, type=Identity)
    except msgspec.DecodeError:
        return None
