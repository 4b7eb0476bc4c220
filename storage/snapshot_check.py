"""What a part of a snapshot from elsewhere must be, before it is kept: it takes the place of good data in the end."""

import msgspec

from storage import sections
from storage.errors import DamagedError
from storage.log_store import (
    SnapshotPart,
    decode_message_row,
    decode_queue_row,
)
from storage.topic_rows import check_row

KEY_BYTES_MAX = 511
"""What LMDB takes as a key."""

NUMBER_BYTES = 8


def check_part(part: SnapshotPart) -> None:
    """Raise `DamagedError` for what could not be read again: rows of no table, unfit keys, what does not decode."""
    where = f"a snapshot of what stands before record {part.trimmed + 1}"
    try:
        sections.check(part.sections)
        for key, value in part.rows:
            _check_row(key, value, where)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedError(where, str(error)) from error
    if len(part.cursor) > KEY_BYTES_MAX + 1:
        raise DamagedError(where, f"a cursor of {len(part.cursor)} bytes")


def _check_row(key: bytes, value: bytes, where: str) -> None:
    letter, name = key[:1], key[1:]
    if letter == b"m":
        message = decode_message_row(value)
        if len(name) != NUMBER_BYTES or message.msg_id != int.from_bytes(name, "big"):
            raise DamagedError(where, f"message {message.msg_id} under another key")
    elif letter == b"q":
        settings, _ = decode_queue_row(value)
        if not 0 < len(name) <= KEY_BYTES_MAX or settings.queue.encode() != name:
            raise DamagedError(where, f"queue {settings.queue[:100]!r} under another key")
    elif letter == b"t":
        check_row(name, value)
    else:
        raise DamagedError(where, f"a row of no table: {key[:20]!r}")
