"""Clients that are gone: what they waited for ends some in each turn, since hundreds may go at one moment.

Until then they stand in line; no message goes to one that has left (`Delivery`).
"""

from collections import deque
from collections.abc import Callable

from actors.messages.call import Client
from actors.queues.admission import Admission
from actors.queues.delivery import Delivery
from actors.queues.ledger import Ledger


class Departures:
    """Of one owner. `is_late`: whether its turn should end."""

    def __init__(self, admission: Admission, is_late: Callable[[], bool]) -> None:
        self._admission = admission
        self._is_late = is_late
        self._gone: deque[Client] = deque()

    @property
    def has_any(self) -> bool:
        """Whether there is more to do."""
        return bool(self._gone)

    def note(self, client: Client, delivery: Delivery, ledger: Ledger) -> None:
        """Let a client wait for nothing any more: soon if it is gone, now if it may ask again."""
        if client.has_left:
            self._gone.append(client)
        else:
            self._forget(client, delivery, ledger)

    def go_on(self, delivery: Delivery, ledger: Ledger) -> None:
        """Forget some that are gone, one at least."""
        gone = self._gone
        while gone:
            self._forget(gone.popleft(), delivery, ledger)
            if self._is_late():
                break

    def _forget(self, client: Client, delivery: Delivery, ledger: Ledger) -> None:
        delivery.forget(client)
        if client.is_gone:
            ledger.replicated.forget(client)
        self._admission.forget(client)
