"""The order of a list of queues, which every shard and whoever puts their parts together go by.

Each queue has a rank, and those of the same rank stand in the order of their names. What has no value (no message is
ready, so none is the oldest) comes last, also from the greatest down.
"""

import math
from typing import Final

from quorate.protocol import Request
from quorate.queue_replies import QueueRow

NAME: Final = "name"
OF_TOTALS: Final = (
    *("produced", "delivered", "redelivered", "confirmed"),
    *("released", "expired", "buried", "moved", "taken", "cleared", "arrived"),
)
OF_FULL: Final = ("oldest", "dead_letters", "came", "left", *OF_TOTALS)
"""What stands in rows of a list that is `full` alone."""

SORTS: Final = (NAME, "size", "ready", "delayed", "in_flight", "wait_status", "paused", *OF_FULL)


def fault(request: Request) -> tuple[str, str] | None:
    """Find the field of a list that can't be, and why; None: its order can be made."""
    sort = request.sort
    if sort is not None and sort not in SORTS:
        return "sort", f"is {sort!r}: one of {', '.join(SORTS)}"
    if sort in OF_FULL and not request.full:
        return "sort", f"is {sort!r}, which only a list that is full tells"
    if request.after is not None and not isinstance(request.after, str):
        return "after", "the name of a queue is wanted, the last of the list before"
    if is_ranked(request) and request.after is not None and position(str(request.after)) is None:
        return "after", "is not what a reply to list in that order called next"
    return None


def is_ranked(request: Request) -> bool:
    """Whether it is in another order than that of names."""
    return request.sort is not None and request.sort != NAME


def value_of(row: QueueRow, sort: str) -> float | None:
    """Say what a row is sorted by."""
    if sort in OF_TOTALS:
        return 0.0 if row.totals is None else float(getattr(row.totals, sort))
    value = getattr(row, sort)
    return None if value is None else float(value)


def rank(value: float | None, *, is_descending: bool) -> float:
    """Least first."""
    if value is None:
        return math.inf
    return -value if is_descending else value


def cursor(at: float, name: str) -> str:
    """Say what a list goes on after."""
    return f"{at!r}:{name}"


def position(after: str) -> tuple[float, str] | None:
    """Read what `cursor` made it of; None: it did not."""
    number, colon, name = after.partition(":")
    try:
        return (float(number), name) if colon else None
    except ValueError:
        return None
