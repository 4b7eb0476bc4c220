"""A client's end of a connection, and who takes its requests."""

from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits, Room, Strangers
from net.clients.held_bytes import Account, HeldBytes
from net.clients.reading_turn import ReadingTurn
from net.protocols import PROTOCOLS, NodeFacts
from net.protocols.session import RequestLimits
from quorate.protocol import Reply, Request

LIMITS = ConnectionLimits(
    request=RequestLimits(request_bytes_max=100), pipelined_max=4, partial_s_max=5, stalled_s_max=7, idle_s_max=9
)

ASKED = Request(1)


class FakeEnd:
    """Both the transport and the sink."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reads = False
        self.is_reading = True
        self.closed_how = ""
        self.requests: list[tuple[int, Request]] = []
        self.gone = 0
        self.ledger = HeldBytes(1 << 20)
        self.overdrawn_by: list[int] = []
        self.errors: list[Exception] = []
        self.settled_count = 0
        self.spent_s = 0.0
        self.is_in_debt = False
        self.strangers: Strangers[Connection] = self
        self.room: Room[Connection] = self
        self.asked_long: list[Connection] = []
        self.items: list[int] = []
        self.time = 0.0
        self.cut_ones: list[Connection] = []
        self.turn = ReadingTurn(lambda: self.time, lambda: None, self.ledger)

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def get_write_buffer_size(self) -> int:
        return 0 if self.reads else sum(map(len, self.sent))

    def write_eof(self) -> None:
        self.closed_how = "eof"

    def close(self) -> None:
        self.closed_how = "close"

    def abort(self) -> None:
        self.closed_how = "abort"

    def get_extra_info(self, name: str) -> None:
        """No socket is below."""

    def received(self, connection: Connection, order: int, request: Request) -> None:
        self.requests.append((order, request))

    def ended(self, connection: Connection) -> None:
        self.gone += 1

    def closed(self, connection: Connection) -> None:
        self.gone += 1

    def settled(self, connection: Connection) -> None:
        self.settled_count += 1

    def cut(self, connection: Connection, *, may_have_token: bool = False) -> None:
        self.cut_ones.append(connection)

    def account(self) -> Account:
        return Account(self.ledger)

    def overdrawn(self, connection: Connection, wanted: int) -> None:
        self.overdrawn_by.append(wanted)

    def spent(self, connection: Connection, took_s: float, size: int, turns: float = 1.0) -> None:
        self.spent_s += took_s * turns

    def must_rest(self, connection: Connection) -> bool:
        if self.is_in_debt:
            connection.rest(True)
        return self.is_in_debt

    def asks_much(self, connection: Connection, items: int) -> None:
        self.items.append(items)

    def asks_long(self, connection: Connection) -> None:
        self.asked_long.append(connection)

    def broken(self, connection: Connection, error: Exception) -> None:
        self.errors.append(error)


def connected(protocol: str = "json") -> tuple[FakeEnd, Connection]:
    end = FakeEnd()
    return end, Connection(end, end, PROTOCOLS[protocol].sessions()(LIMITS.request, NodeFacts(1, 5)), LIMITS)


def reply(number: int) -> Reply:
    return Reply(action=1, code=0, msg_id=number)
