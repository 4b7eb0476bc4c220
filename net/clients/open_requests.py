"""What one client has asked and was not answered yet: how many, and what their replies may hold. A machine."""

from typing import Any, Final

from net.clients.connection_contract import ConnectionLimits
from net.clients.held_bytes import Account
from net.clients.reply_length import ALONE, LONG, ONE_MESSAGE, SHORT, reply_length
from quorate.protocol import Request

MESSAGES_MAX: Final = 16
"""Consumes that do not wait, open at once: each may bring a message of the largest size."""


class OpenRequests:
    """Of one client, whose `account` counts those that are large. `count`: how many.

    A request whose reply may hold much is open alone: what comes behind it waits, so that a client makes a worker hold
    one such reply at a time.
    """

    __slots__ = ("_account", "_alone", "_held_max", "_messages", "_most", "_notes", "_sizes", "count")

    def __init__(self, limits: ConnectionLimits, account: Account) -> None:
        self._account = account
        self._most = limits.pipelined_max
        self._held_max = limits.held_bytes_max
        self.count = 0
        self._alone = SHORT
        self._messages = 0
        self._sizes: dict[int, int] = {}
        self._notes: dict[int, Any] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more may be begun. One that has as much open, or unread, as it may is not read from."""
        if self._alone or self._messages >= MESSAGES_MAX:
            return False
        return self.count < self._most and self._account.own < self._held_max

    @property
    def has_long(self) -> bool:
        """Whether a request is open whose reply may hold as much as one can."""
        return self._alone == LONG

    @property
    def is_waiting_alone(self) -> bool:
        """Whether a request is open that waits for something, and that nothing may overtake."""
        return self._alone == ALONE

    def keep_size(self, order: int, size: int) -> None:
        """Count so many bytes of the request of that order, until it is answered."""
        self._sizes[order] = size
        self._account.take(size)

    def keep_note(self, order: int, note: Any) -> None:
        """Keep what the session wants to be told again with the reply."""
        self._notes[order] = note

    def take_note(self, order: int) -> Any:
        """Take what was kept for the reply of that order, if something was."""
        return self._notes.pop(order, None) if self._notes else None

    def begin(self, request: Request) -> int:
        """Count a request that is handed on: how long its reply may be (`reply_length`)."""
        length = reply_length(request)
        if length >= LONG:
            self._alone = length
        elif length == ONE_MESSAGE:
            self._messages += 1
        return length

    def end(self, order: int, request: Request) -> int:
        """Forget a request that is answered: its size (bytes), or 0 if it was small."""
        self.count -= 1
        size = self._sizes.pop(order, 0) if self._sizes else 0
        if size:
            self._account.take(-size)
        if self._alone or self._messages:
            length = reply_length(request)
            if length >= LONG:
                self._alone = SHORT
            elif length == ONE_MESSAGE:
                self._messages -= 1
        return size
