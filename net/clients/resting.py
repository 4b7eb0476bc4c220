"""Whether a stranger is heard, or rests since strangers have taken more time than they have. A machine.

`actors/gateway/turns.py` says who rests, and for how long.
"""

from typing import Final, TypeVar

from net.clients.connection_contract import Strangers
from net.protocols.pieces import Pieces

FIRST_BYTES: Final = 256
"""What a client sends first may be a token, if it is no more than this."""

ConnectionT = TypeVar("ConnectionT")


class Resting:
    """Of one client. `unheard`: what it has sent meanwhile; `is_new`: nothing of it was looked at."""

    __slots__ = ("_has_rested", "_rests", "is_new", "unheard")

    def __init__(self) -> None:
        self._rests = 0
        self._has_rested = False
        self.is_new = True
        self.unheard = Pieces()

    @property
    def may_have_token(self) -> bool:
        """Whether what it has sent may be a token."""
        return self.is_new and self.unheard.size <= FIRST_BYTES

    @property
    def is_on(self) -> bool:
        """Whether it rests."""
        return self._rests > 0

    def change(self, rests: bool, *, is_turn: bool) -> None:
        """Begin a rest, or end one. Rests overlap, since each reply may bring one.

        `is_turn`: it has waited in line for that, and what it has sent meanwhile need not wait there again.
        """
        self._rests += 1 if rests else -1
        self._has_rested = is_turn and self._rests == 0

    def is_heard(self) -> None:
        """Let what comes now wait in line again: what it has sent meanwhile was looked at."""
        self._has_rested = False

    def take_unheard(self) -> bytes:
        """Take what it has sent meanwhile, once it does not rest any more."""
        if self._rests:
            return b""
        return self.unheard.take() if self.unheard.size else b""

    def comes_first(self, connection: ConnectionT, strangers: Strangers[ConnectionT]) -> bool:
        """Whether a stranger rests before something large of it is begun; who has rested need not again."""
        if self._has_rested:
            self._has_rested = False
            return False
        return self._rests > 0 or strangers.must_rest(connection)
