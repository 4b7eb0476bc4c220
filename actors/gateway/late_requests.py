"""Requests that must not be done late: before one that was forwarded is done, its client is asked for. A machine.

A request may lie in a stream between two nodes for as long as nobody notices that they are cut off; its client has
given up by then, and may have asked for something else since. So the leader of what sets or clears something asks the
node that forwarded it whether its client is still there, and does it only if the answer comes within `ANSWER_S` by its
own clock.
"""

from collections import Counter
from typing import Final

from actors.messages.call import Call, Client
from quorate.actions import UNLESS_GONE

ANSWER_S: Final = 1.0
"""So late at most is done what was asked for: less than any client's patience."""

Asker = tuple[int, int]
"""A node (or worker) and its session."""


class LateRequests:
    """One Router's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._asked: dict[Asker, dict[int, tuple[Call, float]]] = {}
        self._clients: Counter[Client] = Counter()

    def wanted(self, calls: list[Call]) -> list[Call]:
        """Those of the calls to ask for: what sets or clears something, and what its client asked behind that."""
        found: list[Call] = []
        clients: set[Client] = set()
        for call in calls:
            if call.request.action in UNLESS_GONE or call.client in self._clients or call.client in clients:
                found.append(call)
                clients.add(call.client)
        return found

    def ask(self, now: float, asker: Asker, calls: list[Call]) -> list[int]:
        """Let these calls wait; the serial numbers by which their node is asked for them."""
        waiting = self._asked.setdefault(asker, {})
        for call in calls:
            waiting[call.order] = (call, now)
            self._clients[call.client] += 1
        return [call.order for call in calls]

    def confirmed(self, now: float, asker: Asker, serials: list[int]) -> tuple[list[Call], list[int]]:
        """Their clients are there: the calls that may be done, and those for which that comes too late."""
        waiting = self._asked.get(asker, {})
        found = [(serial, *self._take(waiting, serial)) for serial in serials if serial in waiting]
        if not waiting:
            self._asked.pop(asker, None)
        return (
            [call for _, call, asked_at in found if now <= asked_at + ANSWER_S],
            [serial for serial, _, asked_at in found if now > asked_at + ANSWER_S],
        )

    def expired(self, now: float) -> list[tuple[Asker, list[int]]]:
        """Those that nobody has spoken for in time: they are not done."""
        late: list[tuple[Asker, list[int]]] = []
        for asker, waiting in list(self._asked.items()):
            serials = [serial for serial, (_, asked_at) in waiting.items() if now > asked_at + ANSWER_S]
            for serial in serials:
                self._take(waiting, serial)
            if serials:
                late.append((asker, serials))
            if not waiting:
                del self._asked[asker]
        return late

    def forget(self, node_id: int) -> None:
        """Forget what that node forwarded: it is not done any more."""
        for asker in [asker for asker in self._asked if asker[0] == node_id]:
            waiting = self._asked.pop(asker)
            for serial in list(waiting):
                self._take(waiting, serial)

    def _take(self, waiting: dict[int, tuple[Call, float]], serial: int) -> tuple[Call, float]:
        call, asked_at = waiting.pop(serial)
        self._clients[call.client] -= 1
        if not self._clients[call.client]:
            del self._clients[call.client]
        return call, asked_at
