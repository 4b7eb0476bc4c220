"""Room: what all clients of a worker make it hold, and who is cut off when that is too much. A part of the Listener."""

from collections.abc import Mapping

from actors.gateway.listener_limits import ReachedLimits
from net.clients.connection import Connection
from net.clients.held_bytes import Account, HeldBytes
from quorate.protocol import ErrorWord


class Room:
    """For `connections`, up to `bytes_max`. `held`: the ledger of it all; `reached`: told of limits."""

    def __init__(self, bytes_max: int, connections: Mapping[Connection, None], reached: ReachedLimits) -> None:
        self.held = HeldBytes(bytes_max)
        self._connections = connections
        self.reached = reached
        self._is_making = False

    def account(self) -> Account:
        """Open a new client's."""
        return Account(self.held)

    def overdrawn(self, connection: Connection, wanted: int) -> None:
        """Cut off whoever holds most for nothing, until all is within its limit: strangers before all others.

        So it is also where a client that is no stranger would take `wanted` bytes more.
        """
        if self._is_making:
            return  # what refuses a client may itself be held back
        self._is_making = True
        self._make(connection, wanted)
        self._is_making = False

    def _make(self, connection: Connection, wanted: int) -> None:
        held = self.held
        while held.is_full or held.are_strangers_full or (connection.account.is_known and not self._fits(wanted)):
            strangers = [one for one in self._connections if not one.account.is_known and one.account.yielding]
            may_be_known = held.is_full and not strangers
            others = [one for one in self._connections if one.account.yielding] if may_be_known else strangers
            if not others:
                return  # what is left is being done, and goes when it is answered
            self._cut_off(max(others, key=lambda one: one.account.yielding))

    def _fits(self, wanted: int) -> bool:
        return self.held.used + wanted <= self.held.bytes_max

    def _cut_off(self, connection: Connection) -> None:
        held = self.held
        self.reached.note("max_held_bytes", f"clients' requests and replies take {held.used} bytes; some are cut off")
        if connection.account.partial * 2 > connection.account.yielding:
            reason = f"the requests and replies of all clients take more than {held.bytes_max} bytes"
            connection.refuse_all(ErrorWord.OVERLOADED, reason)
        if connection.account.yielding:
            connection.abort()
