"""Where a reply stopped among the messages of a queue: a key of `ready`, or of an order by time, as text and back."""

from typing import Final

READY_KEY: Final = 3
"""Priority, time and id; what waits has no priority."""

WAITING_KEY: Final = 2


def told(key: tuple[float, ...]) -> str:
    """Make what a reply calls `next`."""
    return ":".join(map(repr, key))


def key_of(after: int | str) -> tuple[float, ...] | None:
    """Read the key that was told; None: it is none. Its length says of which order it is."""
    parts = str(after).split(":")
    if len(parts) not in (READY_KEY, WAITING_KEY):
        return None
    try:
        numbers = [int(parts[0])] if len(parts) == READY_KEY else []
        return (*numbers, float(parts[-2]), int(parts[-1]))
    except ValueError:
        return None
