"""Clients that are gone: what strangers waited for ends some in each turn, since hundreds may go at one moment.

It is done in the strangers' part of a turn, before what others of them ask. Until then they stand in line, count for no
limit, and get no message (`Delivery`).
"""

from collections import deque

from actors.messages.call import Client
from actors.queues.admission import Admission
from actors.queues.delivery import Delivery
from actors.queues.ledger import Ledger


class Departures:
    """Of one owner."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._gone: deque[Client] = deque()

    @property
    def has_any(self) -> bool:
        """Whether there is more to do."""
        return bool(self._gone)

    def note(self, client: Client, delivery: Delivery, ledger: Ledger) -> None:
        """Let a client wait for nothing any more: soon if it is a stranger that has left, else now."""
        if client.has_left and delivery.lines.are_strangers(client):
            delivery.lines.has_left(client)
            self._gone.append(client)
        else:
            self._forget(client, delivery, ledger)

    def go_on(self, delivery: Delivery, ledger: Ledger) -> None:
        """Forget some that are gone, one at least."""
        gone, part = self._gone, self._admission.slice
        if not gone:
            return
        at = part.begin()
        while gone:
            self._forget(gone.popleft(), delivery, ledger)
            at = part.spent(at)
            if not part.has_time:
                break

    def _forget(self, client: Client, delivery: Delivery, ledger: Ledger) -> None:
        delivery.forget(client)
        if client.is_gone:
            ledger.replicated.forget(client)
        self._admission.forget(client)
