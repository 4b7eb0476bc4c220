"""Bytes of a task queue's own encoding, as a message's data: as a text where they are one, which others can read."""

from typing import Any


def packed(data: bytes) -> str | bytes:
    """Pack what is produced."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def unpacked(data: Any) -> bytes:
    """Unpack what was packed. Raises ValueError for what nobody has packed."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes):
        return data
    raise ValueError(f"a task is a text or bytes, not a {type(data).__name__}")
