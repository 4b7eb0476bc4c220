"""ClientIdentities: who a worker's clients are, and which of them may use the last places.

A connection carries its identity and, for each of its requests, its principal. Who shows a token that is none hears of
it late, and no more of it is looked at; a token that is one is answered at once, wherever it comes from.

When all places are taken, the oldest client that has proved nothing makes room, where something can be proved. And some
are left for those who mend that: clients on this machine, and whoever may operate the node. Since a token comes after
its connection, a few more may come in for a moment, to show one.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from actors.gateway.access import AccessTable, KnownClient, Patience
from actors.gateway.auditing import Auditing, Line
from actors.gateway.reception import Reception
from actors.messages.call import Call, Client
from actors.messages.calls import Audit
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToAuditor
from actors.messages.rights import ANONYMOUS, Principal, Rights
from actors.runtime.contract import Runtime, Timer
from net.clients.connection import Connection
from net.clients.udp import DatagramClient
from net.sockets import is_loopback
from quorate.actions import Right
from quorate.authentication import AuthenticatedReply
from quorate.protocol import Action, ErrorWord, Request, done, refusal

RESERVED: Final = 16
"""Places beyond the limit for clients on this machine, and as many for those who may operate the node."""

NEAR: Final = "on this machine"
OPERATORS: Final = "operators"
PROBATION: Final = "on probation"
ENDED: Final = "about to go"
"""Why a connection is there beside the limit; who is about to go takes nobody's place, either."""

AUTHENTICATE_S: Final = 10.0
"""Who may do nothing without a token shows one by then, or makes room."""

PROBATION_MAX: Final = 16
PROBATION_S: Final = 3.0
"""For so long a client that found all places taken may take to show that it may operate the node."""

FAILED: Final = "none"
"""The proof of who has shown a token that is none."""

ALL_TAKEN: Final = "all places for clients are taken"
NO_RIGHTS: Final = Rights({})


class _Nobody:
    """To whom what is written down is not answered: its client was answered already."""

    def tell(self, message: object) -> None:
        """Send it nowhere."""


NOBODY: Final = _Nobody()


class ClientIdentity(NamedTuple):
    """Who a client is, and its address; `is_near`: on this machine. `names`: of the certificate that it has shown."""

    known: KnownClient
    address: str
    is_near: bool
    names: tuple[str, ...] = ()


def host_of(address: Any) -> str:
    """Give the host of an address as sockets give it."""
    return str(address[0]) if isinstance(address, tuple) and address else ""


class ClientIdentities:
    """One worker's. `auditor` writes down what is to be, if there is one."""

    def __init__(self, runtime: Runtime, table: AccessTable, auditor: Mailbox[ToAuditor] | None) -> None:
        self._runtime = runtime
        self.table = table
        self._auditor = auditor
        self._auditing = Auditing()
        self._patience = Patience()
        self._beside: dict[Connection, str] = {}
        self._unproved: dict[Connection, None] = {}
        self._timers: dict[Connection, list[Timer]] = {}
        self.reception = Reception(runtime, self._note_one)
        self.datagrams_near = table.stranger(is_near=True).principal
        self.datagrams_far = table.stranger(is_near=False).principal

    # -- coming in ---------------------------------------------------------------------------------------------

    def connected(self, connection: Connection, address: Any, names: tuple[str, ...]) -> None:
        """Take in a client that has connected, with a certificate of those `names`."""
        host = host_of(address)
        is_near = is_loopback(host)
        known = self.table.by_certificate(names) or self.table.stranger(is_near=is_near)
        self._admit(connection, ClientIdentity(known, host, is_near, names))

    def _admit(self, connection: Connection, identity: ClientIdentity) -> None:
        self.reception.connected(connection)
        self._identify(connection, identity)
        if not identity.known.principal.rights.has_some:
            self._later(connection, AUTHENTICATE_S, self._has_shown_nothing)

    def _later(self, connection: Connection, delay_s: float, callback: Callable[[Connection], None]) -> None:
        """Call that with the client then, if it is still there: one that is gone leaves nothing."""
        self._timers.setdefault(connection, []).append(self._runtime.call_later(delay_s, lambda: callback(connection)))

    def _has_shown_nothing(self, connection: Connection) -> None:
        identity: ClientIdentity = connection.identity
        if not identity.known.proof and not identity.known.principal.rights.has_some:
            reason = f"no token within {AUTHENTICATE_S:g} s, and nothing is allowed without one"
            connection.refuse_all(ErrorWord.NOT_AUTHENTICATED, reason)

    def moved_in(self, connection: Connection, address: Any, name: str, proof: str) -> None:
        """Another worker of this node gives a client away, which it knew by that name for that proof."""
        host = host_of(address)
        is_near = is_loopback(host)
        known = self.table.named(name, proof, is_near=is_near) or KnownClient(Principal(name, NO_RIGHTS))
        self._admit(connection, ClientIdentity(known, host, is_near))

    def _identify(self, connection: Connection, identity: ClientIdentity) -> None:
        connection.identity = identity
        connection.principal = identity.known.principal
        is_proved = self.table.is_open or identity.known.proof not in ("", FAILED)
        connection.account.know(is_proved)
        if is_proved:
            self._unproved.pop(connection, None)
        else:
            self._unproved.setdefault(connection)

    def has_place(self, connection: Connection, taken: int, allowed: int) -> bool:
        """Whether one more may come where so many are there, of those `allowed`; some beside them, or for a moment."""
        if taken - len(self._beside) < allowed:
            return True
        identity: ClientIdentity = connection.identity
        is_operator = identity.known.principal.rights.has(Right.OPERATE)
        if (identity.is_near or is_operator) and self._takes_beside(
            connection, NEAR if identity.is_near else OPERATORS
        ):
            return True
        if self.table.is_open:
            return False
        if self._makes_room(connection):
            return True
        if identity.known.proof:
            return False
        tried = [one for one, why in self._beside.items() if why == PROBATION]
        if len(tried) >= PROBATION_MAX:
            self._beside[tried[0]] = ENDED
            tried[0].abort()
        self._beside[connection] = PROBATION
        self._later(connection, PROBATION_S, self._end_probation)
        return True

    def _makes_room(self, newcomer: Connection) -> bool:
        """Whether the oldest of those that have proved nothing goes, so that a place is free for one who may."""
        for oldest in self._unproved:
            if oldest is not newcomer and self._beside.get(oldest) is None:
                self._beside[oldest] = ENDED
                oldest.abort()
                return True
        return False

    def _takes_beside(self, connection: Connection, why: str) -> bool:
        if sum(one == why for one in self._beside.values()) >= RESERVED:
            return False
        self._beside[connection] = why
        return True

    def is_refused(self, connection: Connection, order: int, request: Request) -> bool:
        """Whether a client that may only show a token has asked for something else, and is refused."""
        if self._beside.get(connection) != PROBATION:
            return False
        self._beside[connection] = ENDED
        connection.answer(order, request, refusal(request, ErrorWord.OVERLOADED, ALL_TAKEN))
        connection.close_when_answered()
        return True

    def _end_probation(self, connection: Connection) -> None:
        if self._beside.get(connection) == PROBATION:
            self._beside[connection] = ENDED
            connection.refuse_all(ErrorWord.OVERLOADED, ALL_TAKEN)

    def disconnected(self, connection: Connection) -> None:
        """Forget a client that is gone."""
        self._beside.pop(connection, None)
        self._unproved.pop(connection, None)
        for timer in self._timers.pop(connection, ()):
            timer.cancel()
        self.reception.disconnected(connection)

    def asked(self, connection: Connection, order: int, request: Request) -> str | None:
        """Do what is about a client, or about the node's settings. The word of its refusal; None: it was done."""
        if request.action == Action.AUTHENTICATE:
            return self.authenticate(connection, order, request)
        if self.is_refused(connection, order, request):
            return ErrorWord.OVERLOADED
        return self.reception.asked(connection, order, request)

    # -- tokens ------------------------------------------------------------------------------------------------

    def authenticate(self, connection: Connection, order: int, request: Request) -> str | None:
        """Look at who a client says it is. The word of its refusal; None: it is somebody."""
        identity: ClientIdentity = connection.identity
        if request.token is None:
            connection.answer(order, request, refusal(request, ErrorWord.FIELD, "token is missing"))
            return ErrorWord.FIELD
        if self.table.is_open:
            rights = connection.principal.rights.shown()
            reply = done(request, AuthenticatedReply, queue=None, principal=ANONYMOUS, rights=rights)
            reply.warning = "this node has no access_file, so this token was not looked at: everybody may ask"
            connection.answer(order, request, reply)
            return None
        if identity.known.proof == FAILED:
            connection.abort()  # it has had its answer, or is about to
            return ErrorWord.NOT_AUTHENTICATED
        known = self.table.by_token(request.token)
        if known is None:
            self._not_known(connection, order, request, identity)
            return ErrorWord.NOT_AUTHENTICATED
        self._identify(connection, identity._replace(known=known))
        name, rights = known.principal
        is_tried = self._beside.get(connection) == PROBATION
        if is_tried and not (rights.has(Right.OPERATE) and self._takes_beside(connection, OPERATORS)):
            self.is_refused(connection, order, request)
            return ErrorWord.OVERLOADED
        reply = done(request, AuthenticatedReply, queue=None, principal=name, rights=rights.shown())
        connection.answer(order, request, reply)
        return None

    def _not_known(self, connection: Connection, order: int, request: Request, identity: ClientIdentity) -> None:
        claimed = (request.token or "").rpartition(".")[0]
        named = claimed if claimed in self.table.entries else ""
        what = {"action": "authenticate", **({"claimed": named} if named else {})}
        line = self._auditing.noted(
            self._runtime.now(),
            self._runtime.monotonic(),
            identity.known.principal.name,
            identity.address,
            what,
            "token",
        )
        if line is not None:
            self._audit([line])
        failed = KnownClient(Principal(identity.known.principal.name, NO_RIGHTS), FAILED)
        self._identify(connection, identity._replace(known=failed))
        delay_s = self._patience.failed(self._runtime.monotonic(), identity.address)
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

    def changed(
        self, table: AccessTable, connections: list[Connection], datagrams: list[DatagramClient]
    ) -> list[tuple[Connection | DatagramClient, Principal]]:
        """Go by what the access file says now. Returns who may do something else now.

        Who is known by the same proof goes on, with the rights of now; who is not may do nothing, is told so behind the
        answers that it is owed, and has to come again.
        """
        self.table = table
        others: list[tuple[Connection | DatagramClient, Principal]] = []
        near, far = (table.stranger(is_near=is_near).principal for is_near in (True, False))
        for client in datagrams:
            is_near = is_loopback(client.address[0])
            if (near if is_near else far) != (self.datagrams_near if is_near else self.datagrams_far):
                others.append((client, near if is_near else far))
        self.datagrams_near, self.datagrams_far = near, far
        for connection in connections:
            identity: ClientIdentity = connection.identity
            was = identity.known
            if was.proof == FAILED:
                continue  # it is about to go
            now = table.named(was.principal.name, was.proof, is_near=identity.is_near)
            if identity.names and not was.proof:
                now = table.by_certificate(identity.names) or now  # the file knows it only now
            if now is None:
                nobody = KnownClient(Principal(was.principal.name, NO_RIGHTS))
                self._identify(connection, identity._replace(known=nobody))
                reason = "what this client was known by is not valid any more"
                connection.refuse_all(ErrorWord.NOT_AUTHENTICATED, reason)
                continue
            self._identify(connection, identity._replace(known=now))
            if now.principal != was.principal:
                others.append((connection, now.principal))
        return others

    # -- writing down ------------------------------------------------------------------------------------------

    def note(self, rows: list[tuple[Call, str, str | None]], error: str | None = None) -> None:
        """Write down calls with the address that they come from and the right that is missing, None: none is.

        `error`: the word that they were refused with otherwise.
        """
        now, monotonic = self._runtime.now(), self._runtime.monotonic()
        lines = [self._auditing.line(now, monotonic, call, address, missing, error) for call, address, missing in rows]
        found = [line for line in lines if line is not None]
        if found:
            self._audit(found)

    def _audit(self, lines: list[Line]) -> None:
        if self._auditor is not None:
            self._auditor.tell(Audit(lines))

    def note_forwarded(self, node_id: int, refused: list[tuple[Call, str]]) -> None:
        """Write down what clients of another node, or of another worker, may not do."""
        where = f"node {node_id}" if node_id > 0 else "another worker"
        self.note([(call, where, right) for call, right in refused])

    def _note_one(
        self, connection: Connection, order: int, request: Request, missing: str | None, error: str | None = None
    ) -> None:
        call = Call(request, connection, order, NOBODY, principal=connection.principal)
        self.note([(call, connection.identity.address, missing)], error)

    def say_left_out(self) -> None:
        """Write down how much was not written down."""
        found = self._auditing.left_out(self._runtime.now(), self._runtime.monotonic())
        if found:
            self._audit(found)


def address_of(client: Client) -> str:
    """Where a client is, for people; empty where that is not known."""
    if isinstance(client, DatagramClient):
        return f"{client.address[0]} (UDP)"
    identity = getattr(client, "identity", None)
    return identity.address if isinstance(identity, ClientIdentity) else ""
