"""Messages' data between Python and the wire: JSON values as they are, `bytes` as bytes. Nothing changes on the way."""

import base64
import math
from typing import Any, Final

BASE64: Final = "base64"
UTF8: Final = "utf8"
SIMPLE: Final = (str, int, bool, type(None))
"""JSON values that need no other look."""

BYTES: Final = (bytes, bytearray, memoryview)
DEPTH_MAX: Final = 29
"""A node takes 32 levels; a request, its list of messages and a message are three."""


def to_wire(data: Any) -> dict[str, Any]:
    """Make the fields that carry `data`. Raises TypeError, ValueError for what would not come back as it is."""
    if type(data) in SIMPLE:
        return {"data": data}
    if isinstance(data, BYTES):
        return {"data": base64.b64encode(data).decode(), "encoding": BASE64}
    _check(data, "data", DEPTH_MAX)
    return {"data": data}


def _check(value: Any, where: str, depth: int) -> None:
    """JSON would take a datetime for a text and a tuple's elements for a list's: only the first is a loss.

    Objects and lists may be nested `depth` deep.
    """
    if isinstance(value, SIMPLE):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}, which JSON can't say")
        return
    if depth <= 0 and isinstance(value, (list, tuple, dict)):
        raise ValueError(f"data is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth - 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{where}: the name {name!r} is not a string, and JSON has no other")
            _check(item, f"{where}.{name}", depth - 1)
    else:
        raise TypeError(f"{where} is a {type(value).__name__}, which JSON can't say: produce a text, or bytes")


def from_wire(item: dict[str, Any]) -> Any:
    """Read the data of a reply, or of one of its messages."""
    encoding = item.get("encoding")
    if encoding == BASE64:
        return base64.b64decode(item["data"])
    return item["data"].encode() if encoding == UTF8 else item["data"]
