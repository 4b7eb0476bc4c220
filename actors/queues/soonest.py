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

SOONEST_LOOKED: Final = 5000
"""Messages that one piece looks at: some 1.5 ms."""

SOONEST_LOOKED_MAX: Final = 200_000
"""Of a queue: what stands behind so many that expire while they are ready, or may not come in, is not found."""

PLACES: Final = {"delayed": Place.DELAYED, "in_flight": Place.IN_FLIGHT}


class _Search:
    """For one call: the `best` so far, the latest of them first (a heap of negated times and ids).

    `seen`: up to this queue all are looked at, of itself what stands up to `key`, if there is one: `looked` messages.
    """

    def __init__(self, call: Call, place: int, count: int) -> None:
        self.call = call
        self.place = place
        self.count = count
        self.seen = ""
        self.key: tuple[float, int] | None = None
        self.looked = 0
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
        names, rights = self._state.names, search.call.principal.rights
        at = names.bisect_right(search.seen) if search.key is None else names.bisect_left(search.seen)
        room, some = SOONEST_LOOKED, list(names.islice(at, at + SOONEST_NAMES))
        for name in some:
            if search.key is not None and name != search.seen:  # the queue that it stopped in is gone
                search.key = None
            search.seen = name
            if rights.may(Right.LOOK, name):
                room -= self._look(search, self._state.queues[name], room)
            if room <= 0:
                break
        if len(some) == SOONEST_NAMES or room <= 0:
            self._open.append(search)
            return
        live = self._state.messages
        found = [live.get(-msg_id) for _, msg_id in sorted(search.best, reverse=True)]
        self._done(search.call, [message for message in found if message is not None])

    def _look(self, search: _Search, queue: QueueState, room: int) -> int:
        """Look at up to `room` of the queue's messages; how many there were. `key` tells where to go on."""
        place, best, count, live = search.place, search.best, search.count, self._state.messages
        begun, search.key = search.key, None
        if begun is None:
            search.looked = 0
        if not (queue.delayed if place == Place.DELAYED else queue.in_flight):
            return 0
        looked, order = 0, queue.order_of(place)
        if begun is None and len(best) >= count and order.first[0] >= -best[0][0]:
            return 0  # nothing here is sooner than the latest of them, which is known from one look
        for due_at, msg_id in islice(order if begun is None else order.behind(begun), room):
            if len(best) >= count and due_at >= -best[0][0]:
                return looked
            looked += 1
            if live[msg_id].place == place:
                if len(best) < count:
                    heappush(best, (-due_at, -msg_id))
                else:
                    heappushpop(best, (-due_at, -msg_id))
        search.looked += looked
        if looked == room and search.looked < SOONEST_LOOKED_MAX:
            search.key = (due_at, msg_id)
        return looked

    def take_open(self) -> list[Call]:
        """Hand over the calls that are not answered; they do not go on."""
        calls = [search.call for search in self._open]
        self._open.clear()
        return calls
