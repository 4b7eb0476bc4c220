"""What one client has asked and nobody has looked at yet, since there was no room. A machine."""

from collections import deque
from typing import Final

from net.clients.held_bytes import OBJECT_BYTES, Account
from net.protocols.session import Found

FEW: Final = 128
FEW_BYTES: Final = 128 << 10


class WaitingRequests:
    """Of one client, in its order; its `account` counts them. `count`: how many."""

    __slots__ = ("_account", "_line", "count")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._line: deque[tuple[Found, int]] = deque()
        self.count = 0

    @property
    def are_few(self) -> bool:
        """Whether little waits: 128 requests, or 128 KiB."""
        return self.count < FEW and self._account.waiting < FEW_BYTES

    @property
    def first(self) -> Found:
        """The one whose turn comes next. Raises IndexError if none waits."""
        return self._line[0][0]

    def add(self, found: list[Found], large: dict[int, int]) -> None:
        """Add some more; `large`: the bytes of those that are large, by place."""
        for index, one in enumerate(found):
            size = large.get(index, 0)
            self._line.append((one, size))
            self._account.wait(max(size, OBJECT_BYTES))
        self.count = len(self._line)

    def take(self) -> tuple[Found, int]:
        """Take the first, and its bytes if it is large. Raises IndexError if none waits."""
        taken = self._line.popleft()
        self.count -= 1
        self._account.wait(-max(taken[1], OBJECT_BYTES))
        return taken

    def clear(self) -> None:
        """None of them is looked at any more."""
        self._line.clear()
        self.count = 0
        self._account.wait(-self._account.waiting)
