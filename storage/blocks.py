"""Blocks: messages of one partition as LMDB keeps them, up to `BLOCK_BYTES` in a row that never changes.

A row's key says what is in it, so that a message is found by its offset, its position or its time with nothing in
memory: the topic's number (4 bytes), the partition (2), and the first message's offset (8), position (8) and time (8,
milliseconds), all big-endian. Its value: the messages' *frames* one behind the other, the table of what a frame does
not say, the table's length (4 bytes), and the CRC-32 of the key and of all before it (4 bytes).

A frame is a message as MetaQ's clients are sent it: the payload's length (4 bytes, big-endian), its CRC-32 without the
highest bit (4), the message's id (8), a flag (4), the payload. Bit 0 of the flag: the payload begins with an attribute,
behind its length (4 bytes). A message's *position* is the sum of the frames before it in its partition.
"""

import struct
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from storage.errors import DamagedError
from storage.message_ids import message_id
from storage.records import Append

BLOCK_BYTES: Final = 32_640
"""Of a row, with its table: it and its key fill eight of LMDB's pages. A larger message has a row of its own."""

FRAME_HEAD_BYTES: Final = 20
HAS_ATTRIBUTE: Final = 1
TABLE_BYTES: Final = 16
"""Of the table, for a message without key and headers."""

_HEAD: Final = struct.Struct(">iIqi")
_KEY: Final = struct.Struct(">IHQQQ")
_LENGTH: Final = struct.Struct(">I")
_END: Final = struct.Struct(">II")
_LENGTH_BYTES: Final = 4
_CRC_MASK: Final = 0x7FFFFFFF
KEY_BYTES: Final = _KEY.size

_crc32: Final = zlib.crc32


class Kept:
    """A message of a topic, in memory or read from a block. Its fields are an `Append`'s, and mean the same.

    `position`: where its frame begins (bytes); `trans_id`: the record that appended it, `msg_id`: with its shard.
    """

    __slots__ = (
        *("attribute", "data", "encoding", "flag", "headers", "key", "msg_id", "offset", "position"),
        *("produced_at", "trans_id"),
    )

    def __init__(
        self,
        offset: int,
        position: int,
        trans_id: int,
        msg_id: int,
        produced_at: float,
        data: bytes,
        encoding: int,
        key: str | None,
        headers: dict[str, str] | None,
        attribute: str | None,
        flag: int,
    ) -> None:
        self.offset = offset
        self.position = position
        self.trans_id = trans_id
        self.msg_id = msg_id
        self.produced_at = produced_at
        self.data = data
        self.encoding = encoding
        self.key = key
        self.headers = headers
        self.attribute = attribute
        self.flag = flag

    @property
    def end_position(self) -> int:
        """Where the next message's frame begins."""
        return self.position + frame_bytes(self.data, self.attribute)


def kept_of(trans_id: int, shard: int, record: Append, position: int) -> Kept:
    """Make the message that a record appends, whose frame begins at that position."""
    return Kept(
        record.offset,
        position,
        trans_id,
        message_id(trans_id, shard),
        record.produced_at,
        record.data,
        record.encoding,
        record.key,
        record.headers,
        record.attribute,
        record.flag,
    )


def frame_bytes(data: bytes, attribute: str | None) -> int:
    """Count the bytes of a message's frame."""
    size = FRAME_HEAD_BYTES + len(data)
    return size if attribute is None else size + _LENGTH_BYTES + len(attribute.encode())


def extra_bytes(key: str | None, headers: dict[str, str] | None) -> int:
    """Reckon what a block's table needs for a message, at most about."""
    size = TABLE_BYTES
    if key is not None:
        size += 4 * len(key)
    if headers is not None:
        size += sum([4 * (len(name) + len(text)) + 6 for name, text in headers.items()])
    return size


def frame(kept: Kept) -> bytes:
    """Make a message's frame."""
    payload, flag = kept.data, kept.flag & ~HAS_ATTRIBUTE
    if kept.attribute is not None:
        attribute = kept.attribute.encode()
        payload = b"".join([_LENGTH.pack(len(attribute)), attribute, payload])
        flag |= HAS_ATTRIBUTE
    return _HEAD.pack(len(payload), _crc32(payload) & _CRC_MASK, kept.msg_id, flag) + payload


class Extra(msgspec.Struct, array_like=True, gc=False):
    """What a block's table says of a message beside its frame, which begins at `place` in the block."""

    place: int
    produced_at: float
    key: str | None
    encoding: int
    headers: dict[str, str] | None


_encode_table = msgspec.msgpack.Encoder().encode
_decode_table = msgspec.msgpack.Decoder(list[Extra]).decode


class BlockKey(NamedTuple):
    """What the key of a block says. `at_ms`: when its first message was appended (Unix milliseconds)."""

    number: int
    partition: int
    offset: int
    position: int
    at_ms: int


def prefix(number: int, partition: int = 0) -> bytes:
    """Make a key before those of all blocks of a partition."""
    return _KEY.pack(number, partition, 0, 0, 0)[:6]


def offset_key(number: int, partition: int, offset: int) -> bytes:
    """Make a key before those of all blocks of a partition that begin at that offset."""
    return prefix(number, partition) + offset.to_bytes(8, "big")


def read_key(key: bytes) -> BlockKey:
    """Read a block's key. Raises `DamagedError`."""
    if len(key) != KEY_BYTES:
        raise DamagedError(f"block {key!r}", "its key is none")
    return BlockKey(*_KEY.unpack(key))


class Block:
    """Messages of one partition that follow each other, at least one: a row of LMDB, or one that is to be stored."""

    __slots__ = ("kept", "key")

    def __init__(self, number: int, partition: int, kept: list[Kept]) -> None:
        first = kept[0]
        self.kept = kept
        self.key = BlockKey(number, partition, first.offset, first.position, int(first.produced_at * 1000))

    @property
    def end(self) -> int:
        """The offset behind its last message."""
        return self.kept[-1].offset + 1

    def row(self) -> tuple[bytes, bytes]:
        """Make its row: key and value."""
        key = _KEY.pack(*self.key)
        frames: list[bytes] = []
        table: list[Extra] = []
        place = 0
        for one in self.kept:
            data = frame(one)
            frames.append(data)
            table.append(Extra(place, one.produced_at, one.key, one.encoding, one.headers))
            place += len(data)
        told = _encode_table(table)
        body = b"".join([*frames, told])
        length = _LENGTH.pack(len(told))
        return key, b"".join([body, length, _LENGTH.pack(_crc32(length, _crc32(body, _crc32(key))))])


class BlockView:
    """A stored block. Raises `DamagedError` for what is not what was written."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self.key = read_key(key)
        size = len(value)
        told = -1
        if size > _END.size:
            told, checksum = _END.unpack(value[size - _END.size :])
            if _crc32(memoryview(value)[: size - 4], _crc32(key)) != checksum:
                told = -1
        self._frames_end = size - _END.size - told
        if told < 0 or self._frames_end < 0:
            raise DamagedError(self.name, "the checksum does not fit the block")
        self._value = value
        try:
            self._table = _decode_table(value[self._frames_end : size - _END.size])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedError(self.name, str(error)) from error
        if not self._table:
            raise DamagedError(self.name, "it holds no message")

    @property
    def name(self) -> str:
        """How it is called, for people."""
        its = self.key
        return f"block of topic number {its.number}, partition {its.partition}, offset {its.offset}"

    @property
    def end(self) -> int:
        """The offset behind its last message."""
        return self.key.offset + len(self._table)

    @property
    def end_position(self) -> int:
        """The position behind its last message."""
        return self.key.position + self._frames_end

    def index_of_position(self, position: int) -> int:
        """Find the message whose frame holds that position, which is not beyond the end: its place in the block."""
        at = position - self.key.position
        return max(bisect_right(self._table, at, key=_place_of) - 1, 0)

    def index_of_time(self, at: float) -> int:
        """Find the first message that was appended then or later (Unix seconds); behind the last, if none was."""
        low, high = 0, len(self._table)
        while low < high:
            middle = (low + high) // 2
            if self._table[middle].produced_at < at:
                low = middle + 1
            else:
                high = middle
        return low

    def kept(self, index: int) -> Kept:
        """Give the message at that place."""
        extra = self._table[index]
        length, _, msg_id, flag = _HEAD.unpack_from(self._value, extra.place)
        begin = extra.place + FRAME_HEAD_BYTES
        attribute: str | None = None
        at = begin
        if flag & HAS_ATTRIBUTE:
            size = int.from_bytes(self._value[begin : begin + _LENGTH_BYTES], "big")
            at = begin + _LENGTH_BYTES + size
            attribute = self._value[begin + _LENGTH_BYTES : at].decode()
        return Kept(
            self.key.offset + index,
            self.key.position + extra.place,
            0,
            msg_id,
            extra.produced_at,
            self._value[at : begin + length],
            extra.encoding,
            extra.key,
            extra.headers,
            attribute,
            flag & ~HAS_ATTRIBUTE,
        )

    def place_of(self, index: int) -> int:
        """Where the frame of the message at that place begins in the block (bytes); behind the last, where they end."""
        return self._table[index].place if index < len(self._table) else self._frames_end

    def fitting(self, begin: int, end: int, room: int) -> int:
        """Say up to which place, `end` at most, the frames of the messages from one on have that many bytes at most."""
        upto = self.place_of(begin) + room
        if self.place_of(end) <= upto:
            return end
        return max(bisect_right(self._table, upto, lo=begin, hi=end, key=_place_of) - 1, begin)

    def frames(self, begin: int, end: int) -> bytes:
        """Give the frames of the messages from one place to another, the second one not included."""
        return self._value[self.place_of(begin) : self.place_of(end)]


def _place_of(extra: Extra) -> int:
    return extra.place


def cut(number: int, partition: int, kept: Sequence[Kept]) -> list[Block]:
    """Make blocks of messages that follow each other."""
    blocks: list[Block] = []
    part: list[Kept] = []
    size = _END.size
    for one in kept:
        its = frame_bytes(one.data, one.attribute) + extra_bytes(one.key, one.headers)
        if part and size + its > BLOCK_BYTES:
            blocks.append(Block(number, partition, part))
            part, size = [], _END.size
        part.append(one)
        size += its
    if part:
        blocks.append(Block(number, partition, part))
    return blocks
