"""Durations, sizes and places in a topic, as people write them in a command."""

import re
import time
from datetime import datetime
from typing import Final

from quorate.streams import EARLIEST, LATEST, Start

SECONDS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
BYTES: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
BYTES_OF_TWO: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
FOR_EVER: Final = "forever"


def seconds(text: str) -> float:
    """Read a duration: 90, 90s, 15m, 12h, 7d, 2w, or forever (0). Raises ValueError."""
    if text == FOR_EVER:
        return 0.0
    return _with_unit(text, SECONDS, "a duration: 90s, 15m, 12h, 7d, 2w or forever")


def size(text: str) -> int:
    """Read a number of bytes: 1000, 10MB, 1GiB; 0: any number. Raises ValueError."""
    return int(_with_unit(text, {**BYTES, **BYTES_OF_TWO}, "a size: 500MB, 1GB, 2GiB, or 0 for any"))


def start(text: str) -> Start:
    """Read a place: earliest, latest, an offset, so long ago (10m), or a time (2026-05-01T12:00, with a zone or here).

    Raises ValueError.
    """
    if text in (EARLIEST, LATEST):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    if NUMBER.fullmatch(text):
        return datetime.fromtimestamp(time.time() - seconds(text)).astimezone()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        reason = f"{text!r} is no place: {EARLIEST}, {LATEST}, an offset, 10m (ago), or a time as 2026-05-01T12:00"
        raise ValueError(reason) from None
    return at if at.tzinfo is not None else at.astimezone()


def _with_unit(text: str, units: dict[str, int], what: str) -> float:
    found = NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise ValueError(f"{text!r} is no {what.removeprefix('a ')}")
    return float(found[1]) * units[found[2]]
