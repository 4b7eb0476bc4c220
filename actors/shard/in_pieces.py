"""How calls about many messages are done, a piece at a time.

A thousand messages of two million lie anywhere in memory: to find and remove them takes as long as an election may
not wait. So a call goes on with its next piece until it is late, and the rest of it in the turns to come; each piece
is a record of each queue, and what is answered at the end counts them all. What happens between two pieces counts: a
message whose time came meanwhile is in nobody's hands any more.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from actors.messages.call import Call, Client, is_strangers
from actors.messages.rights import Principal
from actors.shard.ledger import Ledger
from storage.records import Place

SETTLE_PIECE: Final = 100
"""So many messages at once: some 2 ms of work where there are millions."""


class Many:
    """How far a call is, which is about those `ids`, each of them once.

    So many were `found` that its client may have, the first of them `first_id`, in that place and delivered so often;
    were `flying`, if that was looked at; are `done`. `first_record`: from that one on the log may hold what it did; 0:
    nothing yet. `fault`: why some of it was left. `some` does what is asked to those that it is given; `end` answers,
    when there are no more.
    """

    def __init__(
        self, call: Call, ids: list[int], some: "Callable[[Many, list[int]], None]", end: "Callable[[Many], None]"
    ) -> None:
        self.call = call
        self.ids = ids
        self.found = self.flying = self.done = 0
        self.first_id = self.first_deliveries = 0
        self.first_place = Place.UNPLACED
        self.deliveries: dict[int, int] | None = None
        self.first_record = 0
        self.fault: str | None = None
        self._some = some
        self._end = end
        self._at = 0

    @property
    def size(self) -> int:
        """How many it is about."""
        return len(self.ids)

    def go_on(self, count: int) -> bool:
        """Do it to the next so many; whether there are no more."""
        at = self._at
        self._at = at + count
        self._some(self, self.ids if at == 0 and count >= len(self.ids) else self.ids[at : self._at])
        return self._at >= len(self.ids)

    def end(self) -> None:
        """Answer."""
        self._end(self)


class InPieces:
    """Those of one broker that are under way. `piece`: so many messages are one; `is_late`: the host's turn was long
    enough.

    Those of clients without a token are begun with one piece, and go on when their host has them do so. Of all others
    one is at work that is more than a piece; what comes behind it stands in line, and is asked again in its turn: who
    asked may be gone by then, or may not any more.
    """

    def __init__(self, ledger: Ledger, piece: int) -> None:
        self.is_late: Callable[[], bool] = _never
        self._ledger = ledger
        self._piece = piece
        self._known: Many | None = None
        self._later: deque[Call] = deque()
        self._strangers: deque[Many] = deque()
        self._answered: deque[tuple[int, int, Call]] = deque()

    @property
    def has_known(self) -> bool:
        """Whether `go_on` has something to do."""
        return self._known is not None or bool(self._later)

    @property
    def has_strangers(self) -> bool:
        """Whether `go_on_stranger` has something to do."""
        return bool(self._strangers)

    def begin(self, many: Many) -> None:
        """Do that, as much of it as there is time for."""
        if many.size <= self._piece:  # nearly always
            self._is_done(many)
        elif is_strangers(many.call):
            if not self._is_done(many):
                self._strangers.append(many)
        elif self._known is not None:
            self._later.append(many.call)
        elif not self._is_done_in_time(many):
            self._known = many

    def go_on(self) -> Call | None:
        """Do one piece more, and others until it is late. The call that is to be executed next, if none is at work."""
        if self._known is not None:
            if self._is_done_in_time(self._known):
                self._known = None
            return None
        return self._later.popleft() if self._later else None

    def withdraw(self, call: Call) -> None:
        """Do no more of a call that raised before a record was made."""
        if self._known is not None and self._known.call is call:
            self._known = None
        self._later = deque([one for one in self._later if one is not call])
        self._strangers = deque([many for many in self._strangers if many.call is not call])

    def go_on_stranger(self) -> None:
        """Do one piece more of what a stranger asked for."""
        if self._is_done(self._strangers[0]):
            self._strangers.popleft()

    def _is_done_in_time(self, many: Many) -> bool:
        """Do one piece more, and others until it is late; whether that was all."""
        while not self._is_done(many):
            if self.is_late():
                return False
        return True

    def _is_done(self, many: Many) -> bool:
        """Do one piece more; whether it was the last, and is answered. Which record was its first is of interest where
        it is not the last that the answer waits for."""
        state = self._ledger.state
        before = state.trans_id
        is_done = many.go_on(self._piece)
        if not many.first_record and state.trans_id > before:
            many.first_record = before + 1
        if is_done:
            many.end()
            if 0 < many.first_record < state.trans_id:
                self._answered.append((state.trans_id, many.first_record, many.call))
        return is_done

    def committed(self, trans_id: int) -> None:
        """Note that records up to that one are committed."""
        answered = self._answered
        while answered and answered[0][0] <= trans_id:
            answered.popleft()

    def take_open(self, logged: int) -> tuple[list[Call], list[Call]]:
        """Hand over those that are under way, which do not go on: those of which the log may hold something, where
        records up to `logged` have left for it, and those of which it certainly holds nothing."""
        at_work = [] if self._known is None else [self._known]
        at_work += self._strangers
        begun: list[Call] = []
        undone: list[Call] = []
        for many in at_work:
            (begun if 0 < many.first_record <= logged else undone).append(many.call)
        undone += self._later
        self._known = None
        self._strangers.clear()
        self._later.clear()
        return begun, undone

    def rejudge(self, client: Client, principal: Principal, allowed: Callable[[list[Call]], list[Call]]) -> None:
        """Go on with what a client has asked for by what it may do now; `allowed` refuses what it may not of what was
        not begun."""
        self._later = deque(allowed(list(self._later)))
        at_work = [] if self._known is None else [self._known]
        for many in [*at_work, *self._strangers]:
            if many.call.client is client:
                many.call.principal = principal

    def take_begun(self, logged: int) -> list[Call]:
        """Those that are answered, of which the log may hold something, and their ends may not be committed."""
        begun = [call for _, first_record, call in self._answered if first_record <= logged]
        self._answered.clear()
        return begun


def _never() -> bool:
    """Say what a host does that has all the time there is."""
    return False
