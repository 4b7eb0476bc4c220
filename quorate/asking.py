"""How the sync client asks: one request, tried over pooled connections until it is answered or its time is over."""

import copy
import time
from typing import Any, Final

from quorate.connection import Connection
from quorate.credentials import Credentials
from quorate.errors import CLOSED, ConnectionFailedError, QuorateError
from quorate.interrupt import Interrupt
from quorate.lost import Lost, NotLetInError
from quorate.nodes import Address, Nodes
from quorate.pool import Pool
from quorate.protocol import Action
from quorate.shard_map import ShardMap
from quorate.trying import LEARN_S, Trying, keeps_connection

NOTHING_THERE: Final[dict[str, Any]] = {"code": 0}
"""What a wait that is interrupted before it begins is answered."""

_SHOW: Final = int(Action.SHOW)
_LEADER: Final = int(Action.LEADER)


class Asking:
    """Requests to any of `nodes`, each within `timeout_s` beyond what it asks to wait. Any thread may use it."""

    def __init__(self, nodes: Nodes, shown: Credentials, timeout_s: float, *, retry_connect: bool) -> None:
        self._nodes = nodes
        self._pool = Pool(nodes, shown)
        self._map = ShardMap()
        self._timeout_s = timeout_s
        self._retry_connect = retry_connect

    def within(self, timeout_s: float, *, retry_connect: bool) -> "Asking":
        """Ask over the same connections, with other limits."""
        limited = copy.copy(self)
        limited._timeout_s = min(timeout_s, self._timeout_s)
        limited._retry_connect = retry_connect and self._retry_connect
        return limited

    @property
    def address(self) -> Address:
        """The node that is asked now."""
        return self._nodes.address

    def close(self) -> None:
        """Close the connections. Nothing may be asked any more."""
        self._pool.close()

    def close_idle(self) -> None:
        """Close the connections that are idle; the next request opens one again."""
        self._pool.close_idle()

    def request(self, action: int, body: dict[str, Any], interrupt: Interrupt | None = None) -> dict[str, Any]:
        """Return the reply to a request. Raises what `Client` says. `interrupt` ends a wait early."""
        if self._pool.is_closed:
            raise ConnectionFailedError(CLOSED)
        if self._map.counted(time.monotonic()):
            self._learn()
        return self._request(action, body, interrupt)

    def _request(self, action: int, body: dict[str, Any], interrupt: Interrupt | None = None) -> dict[str, Any]:
        trying = Trying(
            *(action, body, self._nodes, self._timeout_s, self._map),
            now=time.monotonic(),
            retry_connect=self._retry_connect,
        )
        reply = self._run(trying, action, interrupt)
        ended = trying.ended(reply)
        if ended is not None:
            return ended
        shown: dict[str, Any] | QuorateError
        try:
            shown = self._request(_SHOW, trying.holder)
        except QuorateError as error:
            shown = error
        return trying.of_holder(reply, shown)

    def _run(self, trying: Trying, action: int, interrupt: Interrupt | None = None) -> dict[str, Any]:
        """Return the last reply to what is tried."""
        while True:
            if interrupt is not None and interrupt.is_set:
                return NOTHING_THERE
            if self._pool.is_closed:
                raise trying.closed()
            body, left_s, wait_s = trying.next(time.monotonic())
            try:
                address = trying.direct or self._nodes.address
                connection = self._pool.take(address) or self._pool.connect(address, trying.connect_s(left_s))
                reply = self._ask(connection, {"action": action, **body}, left_s + wait_s, interrupt)
            except NotLetInError as error:
                pause_s: float | None = trying.not_let_in(error)
            except Lost as lost:
                pause_s = trying.lost(time.monotonic(), lost)
            else:
                pause_s = trying.replied(time.monotonic(), reply)
                if pause_s is None:
                    return reply
            if pause_s:
                time.sleep(pause_s)

    def _ask(
        self, connection: Connection, body: dict[str, Any], timeout_s: float, interrupt: Interrupt | None
    ) -> dict[str, Any]:
        """One try. What is left on a connection after anything else than a reply is nobody's: it is closed."""
        try:
            reply = connection.exchange(body, timeout_s, interrupt)
        except Lost:
            connection.close()
            self._nodes.ask_elsewhere(connection.address)
            raise
        except BaseException:
            connection.close()
            raise
        if keeps_connection(self._nodes, connection.address, reply):
            self._pool.give_back(connection)
        else:
            connection.close()
        return reply

    def _learn(self) -> None:
        """Ask where the shards are. A client that is not told asks anywhere, as before."""
        limit_s = min(self._timeout_s, LEARN_S)
        trying = Trying(*(_LEADER, {}, self._nodes, limit_s), now=time.monotonic(), retry_connect=False)
        try:
            reply = self._run(trying, _LEADER)
        except QuorateError:
            self._map.forget()
        else:
            self._map.learned(reply, time.monotonic())
