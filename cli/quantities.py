"""Durations, sizes, times and places in a topic, as people write and read them in a command."""

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import typer

from console.showing import DAY_S, NEVER_S
from quorate.streams import EARLIEST, LATEST, Start

SECONDS: Final[dict[str, float]] = {
    "": 1,
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
}
BYTES: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
BYTES_OF_TWO: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
COMPOUND: Final = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|min|[smhdw])\s*)+", re.ASCII)
FOR_EVER: Final = "forever"
UNITS: Final = ((604_800, "w"), (DAY_S, "d"), (3600, "h"), (60, "m"), (1, "s"))


def seconds(text: str) -> float:
    """Read a duration: 90, 90s, 15m, 1h30m, 7d, 2w, 250ms, or forever (0). Raises ValueError."""
    if text == FOR_EVER:
        return 0.0
    what = "a duration: 5s, 250ms, 15m, 1h30m, 7d, 2w or forever"
    if not COMPOUND.fullmatch(text.strip()):
        return _with_unit(text, SECONDS, what)
    return sum(_with_unit(f"{number}{unit}", SECONDS, what) for number, unit in NUMBER.findall(text))


def moment(text: str) -> float:
    """Read from when on, or until when: so long from now (5s, 1h30m), Unix seconds, or a time (2026-05-01T12:00Z).

    As the protocol takes it: what is below 10 digits counts from now. Raises ValueError.
    """
    if COMPOUND.fullmatch(text.strip()) or re.fullmatch(r"[0-9.]+", text):
        return seconds(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a duration (5s, 1h30m) nor a time (2026-05-01T12:00Z)") from None
    return at.timestamp()


def written(value: float) -> str:
    """Write a duration as `seconds` reads it: 5s, 1h30m, 250ms; the two greatest units."""
    if value < 1:
        return f"{value * 1000:.0f}ms" if value else "0s"
    if value < 60:
        return f"{value:.1f}".removesuffix(".0") + "s"
    left, said = int(value), []
    for unit, name in UNITS:
        count, left = divmod(left, unit)
        if count:
            said.append(f"{count}{name}")
        if len(said) == 2 or (said and not count):
            break
    return "".join(said)


def bytes_written(value: float) -> str:
    """Write a number of bytes as `size` reads it: 900B, 1.5MB."""
    units = ["TB", "GB", "MB", "KB", "B"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop()
    return f"{value:.1f}".removesuffix(".0") + units[-1]


def clock(at: float, now: float | None = None) -> str:
    """Write an instant: 16:14:05Z, with its date where that is another day; never."""
    if at >= NEVER_S:
        return "never"
    form = "%H:%M:%SZ" if at // DAY_S == (time.time() if now is None else now) // DAY_S else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.fromtimestamp(at, UTC).strftime(form)


def from_now(at: float, now: float | None = None) -> str:
    """Write an instant by its distance: in 5s, 3m12s ago, never; nothing for 0."""
    if not at:
        return ""
    if at >= NEVER_S:
        return "never"
    left = at - (time.time() if now is None else now)
    return f"in {written(left)}" if left > 0 else f"{written(-left)} ago"


def duration(text: str | float) -> float:
    """Read an option's duration: a wrong one is a wrong option."""
    return _option(seconds, text)


def until(text: str | float) -> float:
    """Read an option's moment."""
    return _option(moment, text)


def _option(reader: Callable[[str], float], text: str | float) -> float:
    try:
        return reader(text) if isinstance(text, str) else text
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


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


def _with_unit(text: str, units: Mapping[str, float], what: str) -> float:
    found = NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise ValueError(f"{text!r} is no {what.removeprefix('a ')}")
    return float(found[1]) * units[found[2]]
