"""How much all clients are heard in one turn of the loop, and strangers of that."""

import pytest

from net.clients.connection import LOOK_EVERY, Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.held_bytes import HeldBytes
from net.clients.reading_turn import (
    CHARGED_MAX_S,
    FORWARDED_S,
    LINE_S,
    OTHERS_S,
    READ_S,
    READ_S_PER_BYTE,
    SLICE_S,
    WRITE_S_PER_BYTE,
    ReadingTurn,
)
from net.clients.strangers_time import SHARE
from net.protocols.json_session import JsonSession
from quorate.protocol import Request
from tests.net.clients.fake_end import FakeEnd, connected, reply


class Clocked:
    """A turn, and its clock."""

    def __init__(self) -> None:
        self.time = 50.0
        self.woken = 0
        self.held = HeldBytes(1 << 20)
        self.turn = ReadingTurn(lambda: self.time, self._wake, self.held)

    def _wake(self) -> None:
        self.woken += 1

    def known(self, took_s: float, size: int = 1) -> bool:
        """Somebody known sends something, and it takes so long; whether it was heard."""
        is_heard = self.turn.may_hear()
        if is_heard:
            self.held.read += size
            self.time += took_s
        return is_heard

    def stranger(self, took_s: float, size: int = 1) -> bool:
        is_heard = self.turn.may_hear_stranger()
        if is_heard:
            self.turn.begin_stranger(size)
            self.held.read += size
            self.time += took_s
            self.turn.end_stranger()
        return is_heard

    def heard_beside_others(self, took_s: float, *, forwarded: int = 0) -> int:
        """For a second others ask in each turn: how many strangers are heard that take so long, each in each turn."""
        until, heard = self.time + 1.0, 0
        while self.time < until:
            assert self.known(SLICE_S / 100)
            while self.stranger(took_s):
                heard += 1
                self.turn.charge(forwarded)
            self.pause(SLICE_S / 10)
        return heard

    def pause(self, seconds: float = 0.0) -> None:
        self.turn.end()
        self.time += seconds


def test_whose_bytes_hold_a_token_is_one_of_the_others() -> None:
    """Clients that connect for each request, with their token before it, come in as strangers every time."""
    clocked = Clocked()
    assert not clocked.turn.look_for_others()
    assert clocked.stranger(0.0, 100)
    assert not clocked.turn.look_for_others()
    clocked.turn.was_known(100)
    assert clocked.turn.look_for_others()
    clocked.time += OTHERS_S
    assert not clocked.turn.look_for_others(), "it is seen once"


def test_all_that_come_in_one_turn_have_a_budget_together_and_a_new_one_in_the_next() -> None:
    clocked = Clocked()
    heard = [clocked.known(0.001) for _ in range(100)]
    assert sum(heard) == pytest.approx(READ_S / 0.001, abs=1)
    assert clocked.woken == 1
    clocked.pause()
    assert clocked.known(1.0), "one at least"
    assert not clocked.known(0.0)
    assert clocked.woken == 2


def test_a_part_of_a_turn_has_a_budget_of_its_own() -> None:
    clocked = Clocked()
    clocked.known(1.0)
    clocked.turn.begin(LINE_S)
    assert [clocked.known(LINE_S), clocked.known(0.0)] == [True, False]
    assert clocked.woken == 1


def test_strangers_have_all_of_each_turn_while_nobody_else_is_heard() -> None:
    clocked = Clocked()
    for _ in range(5):
        assert sum(clocked.stranger(READ_S / 4) for _ in range(100)) in (4, 5)
        clocked.pause()


def test_strangers_have_a_fifth_of_the_time_while_others_are_heard() -> None:
    clocked = Clocked()
    assert clocked.heard_beside_others(SLICE_S / 4) * SLICE_S / 4 == pytest.approx(SHARE, rel=0.05)


def test_what_strangers_forward_is_reckoned_while_others_are_heard() -> None:
    """Sixteen thousand of their requests that other nodes did took a follower's loop and half of theirs."""
    clocked = Clocked()
    forwarded = clocked.heard_beside_others(SLICE_S / 100, forwarded=1)
    assert forwarded * (FORWARDED_S + SLICE_S / 100) == pytest.approx(SHARE, rel=0.05)
    clocked.turn.charge(1_000_000)
    clocked.known(0.0)
    assert not clocked.stranger(0.0)
    assert clocked.turn.slice_in_s <= CHARGED_MAX_S / SHARE + 0.01, "nobody is kept for no end"
    clocked.pause(OTHERS_S * 2)
    assert clocked.stranger(0.0), "where nobody else asks they pay for nothing"


def test_others_that_were_heard_lately_are_heard_again_soon() -> None:
    """Who asks a hundred times a second met strangers who had a slice of each turn between two of its requests."""
    clocked = Clocked()
    clocked.known(0.0)
    assert clocked.stranger(2 * SLICE_S)
    clocked.pause(OTHERS_S / 2)
    assert clocked.stranger(2 * SLICE_S)
    clocked.pause(SLICE_S)
    assert not clocked.stranger(0.0)
    assert clocked.turn.slice_in_s > 0.0
    clocked.pause(OTHERS_S)
    assert clocked.stranger(SLICE_S)
    assert clocked.turn.slice_in_s == 0.0, "nobody else asks any more"


def test_what_is_done_for_one_stranger_while_another_is_heard_counts_once() -> None:
    """The inner end reckoned from no beginning, and nobody without a token was heard again."""
    clocked = Clocked()
    clocked.turn.begin_stranger(1)
    clocked.turn.begin_stranger(0)
    clocked.time += SLICE_S / 4
    clocked.turn.end_stranger()
    clocked.turn.end_stranger()
    assert clocked.turn.has_slice
    assert clocked.turn.slice_in_s == 0.0


def test_long_answers_to_strangers_count_for_what_it_takes_to_send_them() -> None:
    clocked = Clocked()
    assert clocked.turn.has_slice
    clocked.turn.begin_stranger(1)
    clocked.held.written += int(1.01 * READ_S / WRITE_S_PER_BYTE)
    clocked.turn.end_stranger()
    assert not clocked.turn.has_slice


def test_what_strangers_send_is_reckoned_though_nobody_has_looked_at_it() -> None:
    clocked = Clocked()
    clocked.known(0.0)
    assert clocked.stranger(0.0)
    clocked.turn.note_stranger(int(1.01 * SLICE_S / READ_S_PER_BYTE))
    assert not clocked.stranger(0.0)
    clocked.turn.note_stranger(1 << 40)
    assert clocked.turn.slice_in_s <= (SLICE_S / 2 + CHARGED_MAX_S) / SHARE, "it is forgotten in the end"


def test_pieces_of_something_large_take_strangers_no_more_than_their_share() -> None:
    clocked, piece = Clocked(), 256 << 10
    until, taken = clocked.time + 1.0, 0
    while clocked.time < until:
        assert clocked.known(SLICE_S / 100)
        while clocked.stranger(0.0, piece):
            taken += 1
        clocked.pause(SLICE_S)
    assert SHARE * 0.8 < taken * piece * READ_S_PER_BYTE < SHARE * 1.2


def test_strangers_that_wait_are_heard_before_others_of_them() -> None:
    clocked = Clocked()
    clocked.turn.strangers_wait = True
    assert not clocked.stranger(0.0)
    assert clocked.turn.has_slice
    assert clocked.known(0.0), "whoever is known does not wait for them"


def test_it_is_said_when_there_is_time_for_strangers_again() -> None:
    clocked = Clocked()
    clocked.known(0.0)
    assert clocked.stranger(SLICE_S)
    assert clocked.turn.slice_in_s == pytest.approx((SLICE_S / 2 + READ_S_PER_BYTE) / SHARE)
    clocked.pause(clocked.turn.slice_in_s)
    clocked.known(0.0)
    assert clocked.turn.has_slice
    assert clocked.turn.slice_in_s == 0.0


def test_what_is_put_off_is_kept_and_looked_at_later_in_its_order() -> None:
    end, connection = connected()
    connection.receive(b'{"action":4,"queue":"a"}{"acti', in_time=False)
    assert (end.requests, end.is_reading, end.cut_ones) == ([], False, [connection])
    assert end.ledger.used == 30
    connection.receive(b'on":4,"queue":"b"}', in_time=False)
    assert end.cut_ones == [connection], "it stands in the line already"
    connection.end_turn()
    assert [request.queue for _, request in end.requests] == ["a", "b"]
    assert (end.is_reading, end.ledger.used) == (True, 0)


def test_who_ends_its_side_while_it_is_put_off_is_answered() -> None:
    end, connection = connected()
    connection.receive(b'{"action":4,"queue":"a"}', in_time=False)
    connection.end()
    connection.end_turn()
    [(order, request)] = end.requests
    connection.answer(order, request, reply(1))
    assert (len(end.sent), end.closed_how) == (1, "close")


def test_who_is_gone_while_it_is_put_off_holds_nothing() -> None:
    end, connection = connected()
    connection.receive(b'{"action":4,"queue":"a"}', in_time=False)
    connection.lost()
    connection.end_turn()
    assert (end.requests, end.ledger.used) == ([], 0)


def test_who_rests_while_it_is_put_off_goes_on_behind_that() -> None:
    end, connection = connected()
    connection.rest(True)
    connection.receive(b'{"action":4,"queue":"a"}', in_time=False)
    connection.end_turn()
    assert end.requests == []
    connection.rest(False)
    assert [request.queue for _, request in end.requests] == ["a"]


class Slow(FakeEnd):
    """What is answered at once takes its time."""

    def received(self, connection: Connection, order: int, request: Request) -> None:
        super().received(connection, order, request)
        self.time += READ_S / 20


def test_one_clients_many_requests_are_cut_when_the_turn_is_over() -> None:
    end = Slow()
    limits = ConnectionLimits()
    connection = Connection(end, end, JsonSession(limits.request), limits)
    end.turn.begin()
    connection.receive(b'{"action":4,"queue":"a"}' * 100)
    assert (len(end.requests), end.cut_ones) == (2 * LOOK_EVERY, [connection])
    end.turn.begin()
    connection.end_turn()
    assert len(end.requests) == 4 * LOOK_EVERY
