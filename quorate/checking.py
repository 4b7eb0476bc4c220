"""What a client is asked to send, looked at before it leaves: what can't be asked is a TypeError or a ValueError."""

import math
from collections.abc import Iterable
from typing import Any, Final

TEXTS: Final = frozenset(
    {"state", "expire", "reason", "queue", "key", "pattern", "reader", "consumer", "command", "host", "encoding"}
)
NUMBERS: Final = frozenset({"delay", "ttl", "retry", "priority", "wait", "count", "replicate", "msg_id", "trans_id"})


CERTAIN: Final[dict[str, type]] = {**dict.fromkeys(TEXTS, str), **dict.fromkeys(NUMBERS, int)}
"""What needs no other look, under these names."""


def checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Choose what is sent of them: None is left out, but for `data`.

    Raises TypeError, ValueError for a field that JSON would say as something else than what was meant.
    """
    found = {}
    for name, value in fields.items():
        if value is not None:
            if type(value) is not CERTAIN.get(name):
                _check_field(name, value)
            found[name] = value
        elif name == "data":
            found[name] = None
    return found


def _check_field(name: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}, which JSON can't say")
    wanted = CERTAIN.get(name)
    if wanted is str and not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}, and a text is wanted: {value!r}")
    if wanted is int and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{name} is a {type(value).__name__}, and a number is wanted: {value!r}")
    if name != "data" and isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} is a {type(value).__name__}, and a text is wanted: {value!r}")


def check_names(name: str, values: Iterable[Any]) -> list[str]:
    """Check a list of names. Raises TypeError."""
    found = list(values)
    for value in found:
        if not isinstance(value, str):
            raise TypeError(f"{name} has a {type(value).__name__}, and texts are wanted: {value!r}")
    return found


def check_seconds(name: str, value: Any, *, may_be_0: bool = False) -> float:
    """Check a time to wait. Raises TypeError, ValueError for one that is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, and a number of seconds is wanted")
    if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_0):
        raise ValueError(f"{name} is {value!r}: more than 0 seconds are wanted")
    return float(value)
