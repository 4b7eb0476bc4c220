"""Reception: what clients ask about themselves and each other, and about the node's settings. A part of the Listener,
with its clients' connections and the runtime's timers.

A client's number is this worker's. Who sees, closes or holds up other clients, and who sees or changes settings, may
operate the node.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

from actors.messages.rights import not_allowed
from actors.runtime.contract import Runtime, Timer
from net.clients.connection import Connection
from net.protocols import spoken
from quorate.actions import Right
from quorate.node_replies import ClientReply, ConfigReply
from quorate.protocol import Action, ErrorWord, Reply, Request, done, refusal

LISTED_MAX: Final = 10_000

NOTED: Final = frozenset({"set", "kill", "end_waits"})
"""What changes something, and is written down."""

OF_OPERATORS: Final = frozenset({"list", "kill", "sleep", "end_waits"})
SLEEP_MAX_S: Final = 3600.0


class OwnSettings(NamedTuple):
    """The node's settings: `told` gives those that are no secret; `change` sets one until the node starts again.

    `change` takes a name and a text, and gives what is wrong with it, None: nothing.
    """

    told: Callable[[], dict[str, Any]]
    change: Callable[[str, str], str | None]


class _Guest:
    """One client: its number, since when it is there (monotonic s), what it calls itself, until when it sleeps."""

    __slots__ = ("name", "number", "since", "sleeping")

    def __init__(self, number: int, since: float) -> None:
        self.number = number
        self.since = since
        self.name: str | None = None
        self.sleeping: Timer | None = None


def _address_of(connection: Connection) -> str:
    """Host and port, as far as they are known."""
    peer = connection.transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else str(connection.identity.address)


Note = Callable[[Connection, int, Request, str | None, str | None], None]
"""Writes down what a client asked, the right that is missing, and the word that it was refused with otherwise."""


class Reception:
    """Of one worker's clients. `note`: see `Note`."""

    def __init__(self, runtime: Runtime, note: Note) -> None:
        self._runtime = runtime
        self._note = note
        self._guests: dict[Connection, _Guest] = {}
        self._numbers = count(1)
        self._settings: OwnSettings | None = None
        self._end_waits: Callable[[], None] = lambda: None

    def attach(self, end_waits: Callable[[], None], settings: OwnSettings | None) -> None:
        """Who lets clients wait no more, and the node's settings; without them there are none. Before any client."""
        self._end_waits, self._settings = end_waits, settings

    def connected(self, connection: Connection) -> None:
        """Take in a client that has connected."""
        self._guests[connection] = _Guest(next(self._numbers), self._runtime.monotonic())

    def disconnected(self, connection: Connection) -> None:
        """Forget a client that is gone."""
        guest = self._guests.pop(connection, None)
        if guest is not None and guest.sleeping is not None:
            guest.sleeping.cancel()

    def asked(self, connection: Connection, order: int, request: Request) -> str | None:
        """Answer. The word of the refusal; None: it was done."""
        rights, of_node = connection.principal.rights, request.action == Action.NODE_CONFIG
        needs_right = of_node or request.command in OF_OPERATORS
        is_allowed = not needs_right or rights.has(Right.OPERATE)
        if of_node and request.command is None:
            is_allowed = is_allowed or Right.LOOK in rights.everywhere
        if needs_right and not is_allowed:
            self._note(connection, order, request, Right.OPERATE, None)
        if not is_allowed:
            reply: Reply | None = not_allowed(request, Right.OPERATE, connection.principal.name)
        elif request.action == Action.NODE_CONFIG:
            reply = self._config(request)
        else:
            reply = self._client(connection, order, request)
        if is_allowed and needs_right and request.command in NOTED:
            self._note(connection, order, request, None, None if reply is None else reply.error)
        if reply is None:
            return None
        connection.answer(order, request, reply)
        return reply.error

    def _client(self, connection: Connection, order: int, request: Request) -> Reply | None:
        """Reply to a request about clients; None: the reply comes later."""
        guest, command = self._guests[connection], request.command
        rows: list[dict[str, Any]] = []
        if command == "name":
            guest.name = request.consumer
        elif command == "list":
            rows = [self._row(one, its) for one, its in list(self._guests.items())[:LISTED_MAX]]
        elif command == "kill":
            rows = self._kill(connection, request.key or "")
        elif command == "end_waits":
            self._end_waits()
        elif command == "sleep":
            if guest.sleeping is not None:
                return refusal(request, ErrorWord.OVERLOADED, "this connection sleeps already")
            sleep_s = min(request.wait or 0.0, SLEEP_MAX_S)
            guest.sleeping = self._runtime.call_later(sleep_s, lambda: self._slept(connection, order, request))
            return None
        elif command is not None:
            return refusal(request, ErrorWord.FIELD, f"command: {command!r} is none of name, list, kill, sleep")
        return done(request, ClientReply, number=guest.number, clients=rows)

    def _slept(self, connection: Connection, order: int, request: Request) -> None:
        guest = self._guests.get(connection)
        if guest is not None:
            guest.sleeping = None
            connection.answer(order, request, done(request, ClientReply, number=guest.number))

    def _row(self, connection: Connection, guest: _Guest) -> dict[str, Any]:
        age = int(self._runtime.monotonic() - guest.since)
        return {
            "number": guest.number,
            "address": _address_of(connection),
            "name": guest.name,
            "age": age,
            "protocol": spoken(connection.protocol),
            "principal": connection.principal.name,
        }

    def _kill(self, own: Connection, key: str) -> list[dict[str, Any]]:
        """Close the client of that number, or all of that address but the one who asks."""
        found: list[dict[str, Any]] = []
        for connection, guest in list(self._guests.items()):
            at = _address_of(connection), connection.identity.address
            is_meant = key == str(guest.number) or (connection is not own and key in at)
            if is_meant:
                found.append(self._row(connection, guest))
                self._runtime.call_later(0.0, connection.abort)  # who closes itself is answered first
        return found

    def _config(self, request: Request) -> Reply:
        settings = self._settings
        if settings is None:
            return refusal(request, ErrorWord.NOT_SUPPORTED, "this node has no settings that can be seen or changed")
        if request.command == "set":
            if request.key is None or request.value is None:
                return refusal(request, ErrorWord.FIELD, "key or value is missing")
            fault = settings.change(request.key, request.value)
            if fault is not None:
                return refusal(request, ErrorWord.FIELD, fault)
        elif request.command not in (None, "check"):
            return refusal(request, ErrorWord.FIELD, f"command: {request.command!r} is neither set nor check")
        return done(request, ConfigReply, options=settings.told())
