"""The messages of a shard whose time comes first, of all its queues: found in pieces, there may be very many queues.

A machine; part of `Queries`, for who shows what a node is about to do.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappush, heappushpop
from itertools import islice
from typing import Final

from actors.messages.call import Call
from actors.queues.ledger import Ledger
from quorate.actions import Right
from storage.message import Message
from storage.queue_state import QueueState
from storage.records import Place

SOONEST_NAMES: Final = 200
"""Queues that one piece looks at: some 1 ms, where each has some that are soon."""

LOOKED_AT: Final = 200
"""Of a queue, so many that wait are looked at for those that are wanted."""

PLACES: Final = {"delayed": Place.DELAYED, "in_flight": Place.IN_FLIGHT}


class _Search:
    """For one call: the `best` so far, the latest of them first (a heap of negated times and ids)."""

    def __init__(self, call: Call, place: int, count: int) -> None:
        self.call = call
        self.place = place
        self.count = count
        self.seen = ""
        self.best: list[tuple[float, int]] = []


class Soonest:
    """`done` is called with each call and its messages, in the order of their times."""

    def __init__(self, ledger: Ledger, done: Callable[[Call, list[Message]], None]) -> None:
        self._state = ledger.state
        self._done = done
        self._open: deque[_Search] = deque()

    @property
    def has_more(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._open)

    def ask(self, call: Call, place: int, count: int) -> None:
        """Look for the first `count` in that place."""
        self._open.append(_Search(call, place, count))

    def go_on(self) -> None:
        """Look at some more queues for the one that has waited longest; behind the last, answer."""
        search = self._open.popleft()
        if search.call.client.is_gone:
            self._done(search.call, [])  # nobody reads it
            return
        names = self._state.names
        at = names.bisect_right(search.seen)
        some = list(names.islice(at, at + SOONEST_NAMES))
        rights = search.call.principal.rights
        for name in some:
            if rights.may(Right.LOOK, name):
                self._look(search, self._state.queues[name])
        if len(some) == SOONEST_NAMES:
            search.seen = some[-1]
            self._open.append(search)
            return
        live = self._state.messages
        found = [live.get(-msg_id) for _, msg_id in sorted(search.best, reverse=True)]
        self._done(search.call, [message for message in found if message is not None])

    def _look(self, search: _Search, queue: QueueState) -> None:
        place, best, count = search.place, search.best, search.count
        if not (queue.delayed if place == Place.DELAYED else queue.in_flight):
            return
        live = self._state.messages
        for due_at, msg_id in islice(queue.waiting, LOOKED_AT):
            if len(best) >= count and due_at >= -best[0][0]:
                return
            if live[msg_id].place != place:
                continue
            if len(best) < count:
                heappush(best, (-due_at, -msg_id))
            else:
                heappushpop(best, (-due_at, -msg_id))

    def take_open(self) -> list[Call]:
        """The calls that are not answered; they do not go on."""
        calls = [search.call for search in self._open]
        self._open.clear()
        return calls
