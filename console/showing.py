"""How things are told on a page: numbers, times, data. All of it is text, which the templates escape."""

import base64
import json
import time
from typing import Any, Final

from quorate.messages import ShownMessage

DATA_SHOWN: Final = 64 << 10
"""Characters of a message's data, or of a header, that a page shows; the rest is a download."""

DAY_S: Final = 86_400
NEVER_S: Final = 253_402_300_000.0


def count(value: float | None) -> str:
    """1,234; nothing for None."""
    return "" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """So many a second; nothing for None: that is not known yet."""
    if value is None:
        return ""
    if not value:
        return "0"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def duration(seconds: float | None) -> str:
    """In two units: 3 m 12 s."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for size, name, small, small_name in ((DAY_S, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = int(seconds % size // small)
            return f"{int(seconds // size)} {name}" + (f" {rest} {small_name}" if rest else "")
    return ""


def instant(at: float | None) -> str:
    """UTC, to the millisecond."""
    if not at:
        return ""
    if at >= NEVER_S:
        return "never"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}"


def ago(at: float | None) -> str:
    """How long that is ago, or until then."""
    if not at or at >= NEVER_S:
        return ""
    left = at - time.time()
    return f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago"


def size(value: float | None) -> str:
    """In bytes, KiB, MiB or GiB."""
    found = float(value or 0)
    for unit in ("B", "KiB", "MiB"):
        if found < 1024:
            return f"{found:.0f} {unit}" if unit == "B" or found >= 10 else f"{found:.1f} {unit}"
        found /= 1024
    return f"{found:,.1f} GiB"


def bytes_of(message: dict[str, Any]) -> bytes:
    """Make a message's data what is downloaded."""
    data = message.get("data")
    if isinstance(data, bytes):
        return data
    return data.encode() if isinstance(data, str) else json.dumps(data, ensure_ascii=False).encode()


def shown(message: dict[str, Any]) -> tuple[str, str, bool]:
    """Make a message's data a text, say what they are, and whether that is all of it."""
    data = message.get("data")
    if isinstance(data, bytes):
        try:
            text, kind = data.decode(), "text, as bytes"
        except UnicodeDecodeError:
            text, kind = data[: DATA_SHOWN // 2].hex(" "), f"{len(data):,} bytes"
            return text, kind, len(data) <= DATA_SHOWN // 2
    elif isinstance(data, str):
        text, kind = data, "text"
    else:
        text, kind = json.dumps(data, ensure_ascii=False), "JSON"
        if len(text) <= DATA_SHOWN:  # of what is deep and long, spaces alone could be many times as much
            text = json.dumps(data, indent=2, ensure_ascii=False)
    return text[:DATA_SHOWN], kind, len(text) <= DATA_SHOWN


def brief(message: dict[str, Any]) -> str:
    """Make a line of it."""
    data = message.get("data")
    text = base64.b64encode(data[:60]).decode() if isinstance(data, bytes) else data
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def as_shown(message: ShownMessage) -> dict[str, Any]:
    """Give a message as pages show it: what says something, with its data as it was produced."""
    return {**message.as_dict(), "data": message.data}
