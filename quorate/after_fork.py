"""What a client's parts do in a child after a fork: two processes on one connection would get each other's replies."""

import os
from typing import Any, Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """A part of a client that a child must not go on with."""

    def after_fork(self) -> None:
        """Begin anew: this is the child. No other thread runs."""


_parts: Final[WeakSet[Any]] = WeakSet()


def forget_after_fork(part: Forked) -> None:
    """From now on `part` is told when it is in a child."""
    _parts.add(part)


def _in_child() -> None:
    for part in list(_parts):
        part.after_fork()


os.register_at_fork(after_in_child=_in_child)
