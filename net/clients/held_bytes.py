"""What clients make a worker hold, in bytes: one ledger for all of them, with an account for each. A machine.

| kind | what it is | goes when |
|---|---|---|
| partial | a request that is not whole yet | it is whole, or the client is gone |
| waiting | whole requests that nobody has looked at yet | they are taken, or the client is gone |
| open | large requests that were handed on and are not answered | they are answered, also where the client is gone |
| held_back | replies that wait for those before them | their turn comes, or the client is gone |
| unsent | replies that the client has not read | it reads, or is gone |

Strangers, who have proved nothing where something can be proved, have a share of it and no more: what they fill keeps
nobody out who has a token. Small requests that are open are bounded by their count, and cost nothing here.
"""

from typing import Final

OBJECT_BYTES: Final = 400
"""What a request takes at least, once it is decoded."""

STRANGERS_SHARE: Final = 0.75
"""Of all; the rest is for those that have proved who they are."""


class HeldBytes:
    """One worker's. `bytes_max`: of all clients. `read`, `written`: what came from them and went to them since the
    start."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.strangers = 0
        self.read = 0
        self.written = 0

    @property
    def is_full(self) -> bool:
        """Whether all clients together hold too much."""
        return self.used > self.bytes_max

    @property
    def strangers_max(self) -> int:
        """What strangers may hold together."""
        return int(self.bytes_max * STRANGERS_SHARE)

    @property
    def are_strangers_full(self) -> bool:
        """Whether strangers together hold too much."""
        return self.strangers > self.strangers_max


class Account:
    """One client's. `is_known`: it has proved who it is, or nobody needs to."""

    __slots__ = ("bytes", "held_back", "is_known", "ledger", "open", "partial", "unsent", "waiting")

    def __init__(self, ledger: HeldBytes) -> None:
        self.ledger = ledger
        self.is_known = True
        self.bytes = 0
        self.partial = 0
        self.waiting = 0
        self.open = 0
        self.held_back = 0
        self.unsent = 0

    @property
    def is_over(self) -> bool:
        """Whether somebody has to make room, since this client and those of its kind hold too much."""
        ledger = self.ledger
        return ledger.is_full or (not self.is_known and ledger.are_strangers_full)

    @property
    def yielding(self) -> int:
        """What would be free at once if the client were cut off: not its open requests, which are still done."""
        return self.bytes - self.open

    @property
    def own(self) -> int:
        """What counts against what one client may have: a client that has so much is not read from."""
        return self.open + self.held_back + self.unsent

    def may_open(self, size: int) -> bool:
        """Whether one more request of that size may be handed on."""
        ledger = self.ledger
        if ledger.used + size > ledger.bytes_max:
            return False
        return self.is_known or ledger.strangers + size <= ledger.strangers_max

    def _grow(self, grown: int) -> bool:
        self.bytes += grown
        self.ledger.used += grown
        if not self.is_known:
            self.ledger.strangers += grown
        return grown > 0 and self.is_over

    def know(self, is_known: bool) -> None:
        """Know that the client has proved who it is, or that what it proved does not hold any more."""
        if is_known != self.is_known:
            self.is_known = is_known
            self.ledger.strangers += -self.bytes if is_known else self.bytes

    def note_partial(self, size: int) -> bool:
        """So much of a request has come that is not whole. Whether somebody has to make room for it."""
        grown, self.partial = size - self.partial, size
        return self._grow(grown)

    def note_unsent(self, size: int) -> bool:
        """So much has the client not read, as far as is known now. Whether somebody has to make room for it."""
        grown, self.unsent = size - self.unsent, size
        return self._grow(grown)

    def wait(self, grown: int) -> None:
        """Whole requests wait; below 0: they do not any more."""
        self._grow(grown)
        self.waiting += grown

    def take(self, grown: int) -> None:
        """Count a large request that is open; below 0: it is answered."""
        self._grow(grown)
        self.open += grown

    def hold_back(self, grown: int) -> bool:
        """Count a reply that waits for its turn; below 0: it does not any more. Whether somebody has to make room for
        it."""
        self.held_back += grown
        return self._grow(grown)

    def leave(self) -> None:
        """Count nothing of a client that is gone but what is still being done for it."""
        self._grow(self.open - self.bytes)
        self.partial = self.waiting = self.held_back = self.unsent = 0
