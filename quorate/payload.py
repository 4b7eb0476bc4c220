"""Messages' data between Python and the wire: JSON values as they are, `bytes` as bytes.

What JSON does not have, msgspec turns into what it has.
"""

import base64
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

BASE64: Final = "base64"
UTF8: Final = "utf8"
SIMPLE: Final = (str, int, bool, type(None))
"""JSON values that need no other look."""

BYTES: Final = (bytes, bytearray, memoryview)
Encoder = Callable[[Any], Any]
"""Gives a value that msgspec can encode for one that it can not. Raises NotImplementedError for others."""

DEPTH_MAX: Final = 29
"""A node takes 32 levels; a request, its list of messages and a message are three."""


def to_wire(data: Any, encoder: Encoder | None = None) -> dict[str, Any]:
    """Make the fields that carry `data`: JSON values and bytes as they are, else what msgspec makes of it.

    That is a text of a datetime, UUID or Decimal, a list of a set, an object of a dataclass or a Struct. `encoder`
    gives a value of these for one of another type. Raises TypeError, ValueError for what none of them can say.
    """
    if type(data) in SIMPLE:
        return {"data": data}
    if isinstance(data, BYTES):
        return {"data": base64.b64encode(data).decode(), "encoding": BASE64}
    try:
        _check(data, "data", DEPTH_MAX)
    except TypeError:
        data = _built_in(data, encoder)
        _check(data, "data", DEPTH_MAX)
    return {"data": data}


def _built_in(data: Any, encoder: Encoder | None) -> Any:
    """Make plain values of what is none. Bytes among them stay, and are refused: nobody would know them again."""
    try:
        return msgspec.to_builtins(data, builtin_types=BYTES, enc_hook=encoder)
    except RecursionError as error:
        raise ValueError(f"data is nested deeper than {DEPTH_MAX} levels") from error


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


def _plain(value: Any) -> Any:
    """Give the number or text that an instance of a class of one's own is, as `Produced` is a number."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return "".join(value)
    raise TypeError(f"a {type(value).__name__} can not be sent: {value!r}")


encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode
"""Writes a request."""


def from_wire(item: dict[str, Any]) -> Any:
    """Read the data of a reply, or of one of its messages."""
    encoding = item.get("encoding")
    if encoding == BASE64:
        return base64.b64decode(item["data"])
    return item["data"].encode() if encoding == UTF8 else item["data"]
