"""Visitors: who a worker's clients are, and which of them may use the last places.

A connection carries its visitor and, for each of its requests, its principal. Who shows a token that is none hears of
it late, and no more of it is looked at; a token that is one is answered at once, wherever it comes from.

When all places are taken, some are left for those who mend that: clients on this machine, and whoever may operate the
node. Since a token comes after its connection, a few more may come in for a moment, to show one.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from actors.gateway.access import AccessTable, Known, Patience
from actors.gateway.auditing import Auditing, Line
from actors.messages.calls import Call
from actors.messages.rights import Principal, Rights
from actors.runtime.contract import Runtime
from net.clients.connection import Connection
from net.sockets import is_loopback
from quorate.actions import Right
from quorate.authentication import AuthenticatedReply
from quorate.protocol import ErrorWord, Request, done, refusal

RESERVED: Final = 16
"""Places beyond the limit for those who may mend a node that is full of clients."""

PROBATION_MAX: Final = 16
PROBATION_S: Final = 3.0
"""For so long a client that found all places taken may take to show that it may operate the node."""

ALL_TAKEN: Final = "all places for clients are taken"
NO_RIGHTS: Final = Rights({})


class Visitor(NamedTuple):
    """Who a client is, and its address; `is_near`: on this machine."""

    known: Known
    address: str
    is_near: bool


def host_of(address: Any) -> str:
    """The host of an address as sockets give it."""
    return str(address[0]) if isinstance(address, tuple) and address else ""


class Visitors:
    """One worker's. `audit` is given what is to be written down."""

    def __init__(self, runtime: Runtime, table: AccessTable, audit: Callable[[list[Line]], None]) -> None:
        self._runtime = runtime
        self.table = table
        self._audit = audit
        self._auditing = Auditing()
        self._patience = Patience()
        self._probation: dict[Connection, None] = {}
        self.datagrams_near = table.stranger(is_near=True).principal
        self.datagrams_far = table.stranger(is_near=False).principal

    # -- coming in ---------------------------------------------------------------------------------------------

    def came(self, connection: Connection, address: Any, names: tuple[str, ...]) -> None:
        """A client has connected, with a certificate of those `names`."""
        host = host_of(address)
        is_near = is_loopback(host)
        known = self.table.by_certificate(names) or self.table.stranger(is_near=is_near)
        self._is(connection, Visitor(known, host, is_near))

    def came_over(self, connection: Connection, address: Any, name: str, proof: str) -> None:
        """Another worker of this node gives a client away, which it knew by that name for that proof."""
        host = host_of(address)
        is_near = is_loopback(host)
        known = self.table.named(name, proof, is_near=is_near) or Known(Principal(name, NO_RIGHTS))
        self._is(connection, Visitor(known, host, is_near))

    def _is(self, connection: Connection, visitor: Visitor) -> None:
        connection.visitor = visitor
        connection.principal = visitor.known.principal

    def has_place(self, connection: Connection, taken: int, allowed: int) -> bool:
        """Whether one more may come where so many are there, of those `allowed`; some only for a moment."""
        taken -= len(self._probation)
        if taken < allowed:
            return True
        visitor: Visitor = connection.visitor
        if taken < allowed + RESERVED and (visitor.is_near or visitor.known.principal.rights.has(Right.OPERATE)):
            return True
        if self.table.is_open or visitor.known.proof:
            return False
        if len(self._probation) >= PROBATION_MAX:
            self._end_probation(next(iter(self._probation)))
        self._probation[connection] = None
        self._runtime.call_later(PROBATION_S, lambda: self._end_probation(connection))
        return True

    def is_refused(self, connection: Connection, order: int, request: Request) -> bool:
        """Whether a client that may only show a token has asked for something else, and is refused."""
        if connection not in self._probation:
            return False
        del self._probation[connection]
        connection.answer(order, request, refusal(request, ErrorWord.OVERLOADED, ALL_TAKEN))
        connection.close_when_answered()
        return True

    def _end_probation(self, connection: Connection) -> None:
        if connection in self._probation:
            del self._probation[connection]
            connection.refuse_all(ErrorWord.OVERLOADED, ALL_TAKEN)

    def left(self, connection: Connection) -> None:
        """It is gone."""
        self._probation.pop(connection, None)

    # -- tokens ------------------------------------------------------------------------------------------------

    def authenticate(self, connection: Connection, order: int, request: Request) -> None:
        """A client says who it is."""
        visitor: Visitor = connection.visitor
        if request.token is None:
            connection.answer(order, request, refusal(request, ErrorWord.FIELD, "token is missing"))
            return
        if self.table.is_open:
            reason = "this node has no access_file, so there are no tokens: everybody may ask"
            connection.answer(order, request, refusal(request, ErrorWord.NOT_SUPPORTED, reason))
            return
        known = self.table.by_token(request.token)
        if known is None:
            self._not_known(connection, order, request, visitor)
            return
        self._is(connection, visitor._replace(known=known))
        name, rights = known.principal
        if connection in self._probation:
            if not rights.has(Right.OPERATE):
                self.is_refused(connection, order, request)
                return
            del self._probation[connection]
        reply = done(request, AuthenticatedReply, queue=None, principal=name, rights=rights.shown())
        connection.answer(order, request, reply)

    def _not_known(self, connection: Connection, order: int, request: Request, visitor: Visitor) -> None:
        claimed = (request.token or "").rpartition(".")[0]
        named = claimed if claimed in self.table.entries else ""
        what = {"action": "authenticate", **({"claimed": named} if named else {})}
        line = self._auditing.noted(
            self._runtime.now(), self._runtime.monotonic(), visitor.known.principal.name, visitor.address, what, "token"
        )
        if line is not None:
            self._audit([line])
        self._is(connection, visitor._replace(known=Known(Principal(visitor.known.principal.name, NO_RIGHTS))))
        delay_s = self._patience.failed(self._runtime.monotonic(), visitor.address)
        if delay_s is None:
            connection.abort()
            return

        def answer() -> None:
            reason = "this is nobody's token (any more)"
            connection.answer(order, request, refusal(request, ErrorWord.NOT_AUTHENTICATED, reason))
            connection.close_when_answered()

        if delay_s:
            self._runtime.call_later(delay_s, answer)
        else:
            answer()

    def changed(self, table: AccessTable, connections: list[Connection]) -> None:
        """The access file says something else: whoever may not do the same as before has to come again."""
        self.table = table
        self.datagrams_near = table.stranger(is_near=True).principal
        self.datagrams_far = table.stranger(is_near=False).principal
        for connection in connections:
            visitor: Visitor = connection.visitor
            known = table.still(visitor.known, is_near=visitor.is_near)
            if known is not None:
                self._is(connection, visitor._replace(known=known))
            else:
                self._is(connection, visitor._replace(known=Known(Principal(visitor.known.principal.name, NO_RIGHTS))))
                connection.refuse_all(ErrorWord.NOT_ALLOWED, "what this client may do was changed: connect again")

    # -- writing down ------------------------------------------------------------------------------------------

    def note(self, rows: list[tuple[Call, str, str | None]]) -> None:
        """Write down calls with the address that they come from and the right that is missing, None: none is."""
        now, monotonic = self._runtime.now(), self._runtime.monotonic()
        lines = [self._auditing.line(now, monotonic, call, address, missing) for call, address, missing in rows]
        found = [line for line in lines if line is not None]
        if found:
            self._audit(found)
