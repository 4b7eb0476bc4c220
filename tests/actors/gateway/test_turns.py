"""Clients whose turn was cut: two lines, each of which goes on, and neither waits for the other."""

from actors.gateway.turns import NEWCOMER_S, Turns
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.reading_turn import CHARGED_MAX_S, LINE_S, READ_S_PER_BYTE, SLICE_S, ReadingTurn
from net.clients.resting import FIRST_BYTES
from net.protocols.json_session import JsonSession
from quorate.protocol import Request
from tests.actors.cranked import CrankedRuntime
from tests.net.clients.fake_end import FakeEnd

ASK = b'{"action":4,"queue":"q"}'


class Hall(FakeEnd):
    """Connections whose requests take their time."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = CrankedRuntime()
        self.turn = ReadingTurn(lambda: self.runtime.time, lambda: None, self.ledger)
        self.turns = Turns(self.runtime, self.turn)
        self.takes_s = 0.0
        self.heard: list[Connection] = []

    def cut(self, connection: Connection, *, may_have_token: bool = False) -> None:
        self.turns.cut(connection, may_have_token=may_have_token)

    def received(self, connection: Connection, order: int, request: Request) -> None:
        self.heard.append(connection)
        self.runtime.time += self.takes_s

    def ask_on(self, seconds: float) -> None:
        """For so long somebody who is known asks, all the time."""
        until = self.runtime.time + seconds
        while self.runtime.time < until:
            self.ledger.read += 1
            self.runtime.crank(NEWCOMER_S / 10)

    def client(self, *, is_known: bool) -> Connection:
        limits = ConnectionLimits()
        connection = Connection(self, self, JsonSession(limits.request), limits)
        connection.account.know(is_known)
        return connection


def test_those_in_the_line_are_heard_in_their_order_some_in_each_turn() -> None:
    hall = Hall()
    hall.takes_s = LINE_S
    clients = [hall.client(is_known=True) for _ in range(5)]
    for client in clients:
        client.receive(ASK, in_time=False)
    turns = []
    while len(hall.heard) < 5:
        [timer] = [timer for timer in hall.runtime._timers if timer.callback]
        hall.runtime._timers.remove(timer)
        assert timer.callback is not None
        timer.callback()
        turns.append(len(hall.heard))
    assert hall.heard == clients
    assert turns == [1, 2, 3, 4, 5]


def test_strangers_in_the_line_are_heard_as_their_slice_allows_and_hold_up_nobody() -> None:
    hall = Hall()
    hall.takes_s = SLICE_S
    strangers = [hall.client(is_known=False) for _ in range(5)]
    for stranger in strangers:
        stranger.receive(ASK, in_time=False)
    known = hall.client(is_known=True)
    known.receive(ASK, in_time=False)
    begun = hall.runtime.time
    hall.runtime.crank(1.0)
    assert [one for one in hall.heard if one is not known] == strangers
    assert known in hall.heard[:2]
    assert not hall.turn.strangers_wait
    assert hall.runtime.time >= begun + 6 * SLICE_S


def test_who_is_cut_again_stands_at_the_end() -> None:
    hall = Hall()
    greedy, other = hall.client(is_known=True), hall.client(is_known=True)
    hall.takes_s = LINE_S / 10
    greedy.receive(ASK * 40, in_time=False)
    other.receive(ASK, in_time=False)
    hall.runtime.crank(1.0)
    assert hall.heard.index(other) == 16, "behind what the first was heard in its turn"
    assert hall.heard.count(greedy) == 40


def test_who_is_gone_is_passed_by() -> None:
    hall = Hall()
    gone, other = hall.client(is_known=False), hall.client(is_known=False)
    gone.receive(ASK, in_time=False)
    other.receive(ASK, in_time=False)
    gone.lost()
    hall.runtime.crank(1.0)
    assert hall.heard == [other]


def test_strangers_in_the_line_are_heard_though_the_sockets_have_used_up_the_turn() -> None:
    hall = Hall()
    stranger = hall.client(is_known=False)
    stranger.receive(ASK, in_time=False)
    hall.turn.begin()
    hall.runtime.time += 1.0
    assert not hall.turn.may_hear()
    hall.runtime.crank(0.0)
    assert hall.heard == [stranger]


def owing() -> Hall:
    """Strangers have sent so much that they owe a second, and somebody else asks."""
    hall = Hall()
    hall.ledger.read += 1
    assert hall.turn.has_slice
    hall.turn.note_stranger(int(2 * CHARGED_MAX_S / READ_S_PER_BYTE))
    return hall


def test_newcomers_that_may_show_a_token_are_heard_though_strangers_owe_much() -> None:
    hall = owing()
    large, *newcomers = [hall.client(is_known=False) for _ in range(5)]
    large.receive(b'{"action":1,"queue":"q","data":"%s"}' % (b"x" * FIRST_BYTES), in_time=False)
    for one in newcomers:
        one.receive(ASK, in_time=False)
    hall.ask_on(2 * NEWCOMER_S)
    assert 1 <= len(hall.heard) <= 3, "one every so often"
    hall.ask_on(4 * NEWCOMER_S)
    assert hall.heard == newcomers
    hall.ask_on(2 * CHARGED_MAX_S / 0.1)
    assert hall.heard == [*newcomers, large]


def test_newcomers_that_are_gone_take_no_time_of_others() -> None:
    hall = owing()
    *gone, stays = [hall.client(is_known=False) for _ in range(50)]
    for one in (*gone, stays):
        one.receive(ASK, in_time=False)
    for one in gone:
        one.lost()
    hall.ask_on(2 * NEWCOMER_S)
    assert hall.heard == [stays]


def test_who_was_heard_is_no_newcomer() -> None:
    hall = owing()
    client = hall.client(is_known=False)
    client.receive(ASK)
    assert hall.heard == [client]
    client.receive(ASK, in_time=False)
    hall.ask_on(4 * NEWCOMER_S)
    assert hall.heard == [client]


def test_newcomers_and_other_strangers_take_turns() -> None:
    hall = Hall()
    hall.takes_s = SLICE_S
    others = [hall.client(is_known=False) for _ in range(4)]
    for one in others:
        one.receive(ASK)
        one.receive(ASK, in_time=False)
    newcomers = [hall.client(is_known=False) for _ in range(4)]
    for one in newcomers:
        one.receive(ASK, in_time=False)
    hall.heard.clear()
    hall.ask_on(1.0)
    assert hall.heard == [one for pair in zip(newcomers, others, strict=True) for one in pair]
