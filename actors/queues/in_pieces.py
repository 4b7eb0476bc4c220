"""Calls about many messages: they are done a piece at a time. A machine, of Settling's.

A thousand messages of two million lie anywhere in memory: to find and remove them takes as long as an election may not
wait. So a call goes on with its next piece until it is late, and the rest of it in the turns to come; each piece is a
record of each queue, and what is answered at the end counts them all. What happens between two pieces counts: a
message whose time came meanwhile is in nobody's hands any more.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from actors.messages.call import Call, is_strangers
from actors.queues.ledger import Ledger

SETTLE_PIECE: Final = 100
"""So many messages at once: some 2 ms of work where there are millions."""


class Many:
    """How far a call is, which is about those `ids`, each of them once.

    So many were `found` that its client may have, the `first` of them, were `flying`, if that was looked at, and
    are `done`. `some` does what is asked to those that it is given; `end` answers, when there are no more.
    """

    def __init__(
        self, call: Call, ids: list[int], some: "Callable[[Many, list[int]], None]", end: "Callable[[Many], None]"
    ) -> None:
        self.call = call
        self.ids = ids
        self.found = self.flying = self.done = 0
        self.first: int | None = None
        self.deliveries: dict[int, int] | None = None
        self._some = some
        self._end = end
        self._at = 0

    def go_on(self, count: int) -> bool:
        """Do it to the next so many; whether that was the end."""
        at = self._at
        self._at = at + count
        self._some(self, self.ids if at == 0 and count >= len(self.ids) else self.ids[at : self._at])
        if self._at < len(self.ids):
            return False
        self._end(self)
        return True


class InPieces:
    """Those of one broker that are under way. `piece`: so many messages are one.

    Those of clients without a token are begun with one piece, and go on when their host has them do so.
    """

    def __init__(self, ledger: Ledger, piece: int) -> None:
        self._ledger = ledger
        self._piece = piece
        self._known: deque[Many] = deque()
        self._strangers: deque[Many] = deque()

    @property
    def has_known(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._known)

    @property
    def has_strangers(self) -> bool:
        """Whether `go_on_stranger` has something to do."""
        return bool(self._strangers)

    def begin(self, many: Many) -> None:
        """Do that, as much of it as there is time for."""
        if many.go_on(self._piece):
            return
        if is_strangers(many.call):
            self._strangers.append(many)
        elif not self._is_done(many):
            self._known.append(many)

    def go_on(self) -> None:
        """Do one piece more, and others until it is late."""
        known = self._known
        while known:
            many = known[0]
            is_done = many.go_on(self._piece) or self._is_done(many)
            if not is_done:
                return
            known.popleft()
            if self._ledger.is_late():
                return

    def go_on_stranger(self) -> None:
        """Do one piece more of what a stranger asked for."""
        if self._strangers[0].go_on(self._piece):
            self._strangers.popleft()

    def _is_done(self, many: Many) -> bool:
        """Go on with it until it is late, which it may be already; whether it is done."""
        while not self._ledger.is_late():
            if many.go_on(self._piece):
                return True
        return False

    def take_open(self) -> list[Call]:
        """Hand over those that are under way; they do not go on."""
        calls = [many.call for many in (*self._known, *self._strangers)]
        self._known.clear()
        self._strangers.clear()
        return calls

    def may_be_cut(self, call: Call) -> bool:
        """Whether some of it may be done where its end is not: it names more than one piece."""
        ids: Any = call.request.msg_ids
        return ids is not None and len(ids) > self._piece
