"""Requests about many messages: which, and how they are done a piece at a time. Machines, of Settling's and Moving's.

A thousand messages of two million lie anywhere in memory: to find and remove them takes as long as an election may
not wait. So a call goes on with its next piece until it is late, and the rest of it in the turns to come; each piece
is a record of each queue, and what is answered at the end counts them all. What happens between two pieces counts: a
message whose time came meanwhile is in nobody's hands any more.

`NamedMessages`: those that a request names, by their ids or by a key: those that there are, and that its client may
have. With `delivery` a request says which delivery of each message it is about: one that has been handed out again
since is in other hands, and what is asked about it is as if it were not in flight. A delivery that the log does not
know yet was given by a leader whose record of it was lost in a crash: nobody was given a later one, so a confirmation
of it is the newest consumer's.
"""

from collections import deque
from collections.abc import Callable
from operator import eq
from typing import Any, Final

from actors.messages.call import Call, Client, is_strangers
from actors.messages.naming import naming_fault
from actors.messages.rights import Principal, not_allowed
from actors.queues.ledger import Ledger
from quorate.actions import Right
from quorate.protocol import ErrorWord, Request
from storage.message import Message, deliveries_in_all, is_of_all
from storage.records import Place

NO_DELIVERY: Final = -1
"""Stands for the delivery of a message that the request says none of: no message was delivered so often."""

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
    """Those of one broker that are under way. `piece`: so many messages are one.

    Those of clients without a token are begun with one piece, and go on when their host has them do so. Of all others
    one is at work that is more than a piece; what comes behind it stands in line, and is asked again in its turn: who
    asked may be gone by then, or may not any more.
    """

    def __init__(self, ledger: Ledger, piece: int) -> None:
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
            if self._ledger.is_late():
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


class NamedMessages:
    """Of one shard. What is asked of many of them goes in `pieces`."""

    def __init__(self, ledger: Ledger, pieces: InPieces) -> None:
        self._ledger = ledger
        self.pieces = pieces

    def begin(self, call: Call, some: Callable[[Many, list[int]], None], end: Callable[[Many], None]) -> None:
        """Do `some` to the messages that the request names, and then `end`."""
        ids = self.ids_of(call)
        if ids is not None:
            self.pieces.begin(Many(call, ids, some, end))

    def ids_of(self, call: Call) -> list[int] | None:
        """Find the ids that the request names, each once: none, where no message has its key; None if it was
        refused."""
        request = call.request
        fault = naming_fault(request)
        if fault is not None:
            self._ledger.refuse_field(call, *fault)
            return None
        ids: list[int] | None = None
        if request.msg_ids is not None:
            ids = list(dict.fromkeys([*([] if request.msg_id is None else [request.msg_id]), *request.msg_ids]))
        elif request.msg_id is not None:
            ids = [request.msg_id]
        if ids is not None:
            return None if self.are_taken_away(call, ids) else ids
        message = self._ledger.state.keys.get(request.key or "")
        return [] if message is None else [message.msg_id]

    def are_taken_away(self, call: Call, ids: list[int]) -> bool:
        """Whether a client may have none of these any more, and could: it is told so, since it may hold one."""
        rights, queue = call.principal.rights, None
        if rights.before is None:  # nearly always
            return False
        for msg_id in ids:
            message = self._ledger.state.messages.get(msg_id)
            if message is None:
                continue
            if rights.is_unlimited or rights.may(Right.CONSUME, message.queue):
                return False
            if message.place == Place.IN_FLIGHT and rights.before.may(Right.CONSUME, message.queue):
                queue = message.queue
        if queue is not None:
            self._ledger.answer_when_committed(call, not_allowed(call.request, Right.CONSUME))
        return queue is not None

    def message(self, call: Call, msg_id: int) -> Message | None:
        """Find a live message, in the queue if the request names one, that its client may have: others are not
        there."""
        message = self._ledger.state.messages.get(msg_id)
        if message is None:
            return None
        asked, rights = call.request.queue, call.principal.rights
        if asked is None and rights.is_unlimited:
            return message
        queue = message.queue
        if asked is not None and queue != asked:
            return None
        return message if rights.is_unlimited or rights.may(Right.CONSUME, queue) else None

    def found(self, many: Many, ids: list[int], *, by_id: bool = True) -> dict[str, list[Message]]:
        """Those of the messages that there are, by queue; `by_id` False: but for those that are known by their keys
        alone."""
        found: dict[str, list[Message]] = {}
        for msg_id in ids:
            message = self.message(many.call, msg_id)
            if message is not None and (by_id or not is_of_all(message)):
                if not many.found:
                    many.first_id, many.first_place = msg_id, message.place
                    many.first_deliveries = deliveries_in_all(message)
                many.found += 1
                found.setdefault(message.queue, []).append(message)
        return found

    @staticmethod
    def meant(
        many: Many, found: dict[str, list[Message]], fits: Callable[[int, Any], bool] = eq
    ) -> dict[str, list[Message]]:
        """Those of the messages whose deliveries fit the one that the request means; all, if it says none. They are
        counted as done.

        `eq`: it is the newest; `le`: nobody was given a later one, also where the log has lost that one.
        """
        delivery = many.call.request.delivery
        if delivery is not None:
            counts = many.deliveries
            if counts is None:
                counts = many.deliveries = _deliveries_of(many.call.request, delivery)
            found = only(
                found, lambda message: fits(deliveries_in_all(message), counts.get(message.msg_id, NO_DELIVERY))
            )
        many.done += count_of(found)
        return found

    def refuse_missing(self, many: Many) -> None:
        """Refuse the call: none of its messages is there. The refusal names what the request did.

        Which message has a key is for those who may have it.
        """
        ids, call = many.ids, many.call
        is_by_key = call.request.msg_id is None and call.request.msg_ids is None
        named = f"message with the key {call.request.key!r}" if is_by_key else f"message {ids[0]}"
        self._ledger.refuse(call, ErrorWord.NO_SUCH_MESSAGE, f"there is no {named}")

    def refuse_level(self, call: Call) -> None:
        """Refuse the call: nodes of the cluster may not know such a record yet."""
        reason = f"the cluster is at feature level {self._ledger.level}: see qctl cluster upgrade"
        self._ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)


def count_of(by_queue: dict[str, list[Message]]) -> int:
    """Count the messages of all queues."""
    return sum([len(messages) for messages in by_queue.values()])


def only(found: dict[str, list[Message]], wanted: Callable[[Message], bool]) -> dict[str, list[Message]]:
    """Those that are wanted, of the queues that have such."""
    by_queue = {name: [message for message in messages if wanted(message)] for name, messages in found.items()}
    return {name: messages for name, messages in by_queue.items() if messages}


def _deliveries_of(request: Request, delivery: int | list[int]) -> dict[int, int]:
    """Which delivery of each message the request is about; of an id that stands there twice the first counts."""
    if isinstance(delivery, int):
        return {} if request.msg_id is None else {request.msg_id: delivery}
    counts: dict[int, int] = {}
    for msg_id, count in zip(request.msg_ids or (), delivery, strict=False):
        counts.setdefault(msg_id, count)
    return counts
