"""What a client's connection has around it: the stream below, who takes its requests above, and its limits."""

from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from net.clients.held_bytes import Account
from net.clients.reading_turn import ReadingTurn
from net.protocols.session import RequestLimits
from quorate.protocol import Request

ClientT = TypeVar("ClientT", contravariant=True)
"""The connection: what is around it knows it as that."""


class ConnectionLimits(NamedTuple):
    """Counts and seconds. `pipelined_max`: requests a client may have open; more of them wait, and
    it is not read meanwhile.

    `partial_s_max`: how long a request may take to come in whole. `stalled_s_max`: how long a client may leave its
    replies unread. `idle_s_max`: how long it may say nothing at all, with nothing open; 0: for ever.
    `held_bytes_max`: what its open requests and its replies may take; with more it is not read from.
    """

    request: RequestLimits = RequestLimits()
    pipelined_max: int = 128
    held_bytes_max: int = 32 << 20
    partial_s_max: float = 30.0
    stalled_s_max: float = 60.0
    idle_s_max: float = 0.0


class Transport(Protocol):
    """The client's end of a stream."""

    def write(self, data: bytes) -> None:
        """Send, now or when there is room."""

    def get_write_buffer_size(self) -> int:
        """How much waits to be sent (bytes)."""

    def write_eof(self) -> None:
        """Say that nothing more will be sent, when all that was written has left."""

    def pause_reading(self) -> None:
        """Take nothing more from the client."""

    def resume_reading(self) -> None:
        """Take from the client again."""

    def close(self) -> None:
        """Close when all that was written has left."""

    def abort(self) -> None:
        """Close at once."""

    def get_extra_info(self, name: str) -> Any:
        """Give what asyncio knows of the stream by that name (`socket`, `peername`); None: nothing."""


class Strangers(Protocol[ClientT]):
    """Who sees to it that clients without a token take no more time than they have."""

    def spent(self, connection: ClientT, took_s: float, size: int, turns: float = 1.0) -> None:
        """Reckon a stranger's `size` bytes, which have taken so much time (s) of each of so many turns."""

    def must_rest(self, connection: ClientT) -> bool:
        """Whether a stranger that has come with something large waits first; if so, it is made to rest."""

    def asks_much(self, connection: ClientT, items: int) -> None:
        """Note that a stranger has asked for something about so many messages."""

    def asks_long(self, connection: ClientT) -> None:
        """Note that a stranger has asked for a reply that may hold as much as one can, and that is not there yet."""


class Room(Protocol[ClientT]):
    """What all clients of a worker may make it hold."""

    def account(self) -> Account:
        """Open a new client's account of that."""

    def overdrawn(self, connection: ClientT, wanted: int) -> None:
        """All clients of its kind hold too much together, or would with so many bytes more: some should make room."""


class Sink(Protocol[ClientT]):
    """Where requests go."""

    @property
    def strangers(self) -> "Strangers[ClientT]":
        """Of this worker."""

    @property
    def room(self) -> "Room[ClientT]":
        """Of this worker."""

    @property
    def turn(self) -> ReadingTurn:
        """Of this worker."""

    def received(self, connection: ClientT, order: int, request: Request) -> None:
        """Do what a request asks; answer it by `connection.answer(order, request, reply)`."""

    def ended(self, connection: ClientT) -> None:
        """Keep no messages waiting for a client that asks nothing more, and may be gone."""

    def closed(self, connection: ClientT) -> None:
        """Forget a client that is gone."""

    def settled(self, connection: ClientT) -> None:
        """All is answered, of a client that `is_moving`."""

    def cut(self, connection: ClientT, *, may_have_token: bool = False) -> None:
        """Let others have their turn: its own is over, and `end_turn` is to be called soon, so that it goes on.

        `may_have_token`: nothing of it was looked at, and what it has sent may be a token.
        """

    def broken(self, connection: ClientT, error: Exception) -> None:
        """Refuse or cut the client: its session has raised on what it sent, or on what it is answered."""


class State(Enum):
    """See the table in `net/clients/connection.py`."""

    OPEN = "open"
    ENDED = "ended"
    CLOSING = "closing"
    FINISHING = "finishing"
    LINGERING = "lingering"
    DEAD = "dead"
