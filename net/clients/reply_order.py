"""In which order a client's replies leave, and those that wait for their turn. A machine."""

from typing import Final

from net.clients.held_bytes import OBJECT_BYTES, Account

UNORDERED: Final = -1
"""The order of a request that may be answered out of order: this, or anything below it."""


class ReplyOrder:
    """Of one client, whose `account` counts what waits. `held`: how many do."""

    __slots__ = ("_account", "_held", "_next_loose", "_next_order", "_next_to_send", "held")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._held: dict[int, bytes] = {}
        self.held = 0
        self._next_order = 0
        self._next_loose = UNORDERED
        self._next_to_send = 0

    def place(self, *, is_ordered: bool) -> int:
        """Give the place of one more request's reply."""
        if is_ordered:
            self._next_order += 1
            return self._next_order - 1
        self._next_loose -= 1
        return self._next_loose + 1

    def is_next(self, order: int) -> bool:
        """Whether that reply may leave now. Where it does, those that `take_held` gives leave behind it."""
        if order < 0:
            return True
        if order != self._next_to_send:
            return False
        self._next_to_send += 1
        return True

    def hold(self, order: int, data: bytes) -> bool:
        """Keep a reply until those before it have left. Whether somebody has to make room for it."""
        self._held[order] = data
        self.held = len(self._held)
        return self._account.hold_back(len(data) + OBJECT_BYTES)

    def take_held(self) -> bytes | None:
        """Take the reply that may leave now since the one before it has, if it is there."""
        data = self._held.pop(self._next_to_send, None)
        if data is not None:
            self._next_to_send += 1
            self.held -= 1
            self._account.hold_back(-len(data) - OBJECT_BYTES)
        return data

    def clear(self) -> None:
        """Forget all that is held: the client is gone, and its account is closed, too."""
        self._held.clear()
        self.held = 0
