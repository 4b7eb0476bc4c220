"""A call that several answers make one reply of: copies of a produce, or parts that several shards do. A machine."""

from abc import ABC, abstractmethod
from typing import Final

from actors.messages.call import Call
from quorate.protocol import ErrorWord, Reply, Request

UNDONE: Final = frozenset({ErrorWord.REDIRECT, ErrorWord.NO_LEADER, ErrorWord.STOPPING})
"""What says that a part was not done, and may be asked for again."""


class Gather(ABC):
    """Waits for `size` replies; it is the client of what is asked for them, each under its order from 0."""

    has_left = False
    is_gone = False

    def __init__(self, call: Call, size: int) -> None:
        self.call = call
        self._by_order: list[Reply | None] = [None] * size
        self._missing = size

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """The reply to part number `order`."""
        self._by_order[order] = reply
        self._missing -= 1

    @property
    def is_complete(self) -> bool:
        """Whether all replies are there."""
        return not self._missing

    @property
    def replies(self) -> list[Reply]:
        """All of them, by their order. Only when it is complete."""
        assert self.is_complete, "a reply is made when all parts are answered"
        return [reply for reply in self._by_order if reply is not None]

    @abstractmethod
    def reply(self) -> Reply:
        """The one reply."""
