"""Strangers have a share of the loop's time, all together; who costs little is never kept waiting."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.reading_turn import SLICE_S
from net.clients.strangers_time import (
    FREE_S,
    LONG_S,
    LONG_SHARE,
    QUANTUM_S,
    SHARE,
    SMALL_BYTES,
    StrangersTime,
)
from net.clients.tcp import TcpProtocol
from net.protocols.json_session import JsonSession
from net.protocols.session import RequestLimits
from quorate.protocol import Reply
from tests.net.clients.fake_end import FakeEnd, connected

ASK = msgspec.json.encode({"action": 11, "queue": "q"})


@given(st.lists(st.tuples(st.floats(0.0, 0.3), st.floats(0.0, 0.05), st.booleans()), min_size=1, max_size=50))
def test_all_together_they_take_no_more_than_their_share(steps: list[tuple[float, float, bool]]) -> None:
    """As many as there are, each rests until the work of all before it is paid for, its own too."""
    time, now, work, long, free_at = StrangersTime(), 0.0, 0.0, 0.0, 0.0
    for idle_s, took_s, is_small in steps:
        now = max(now + idle_s, free_at)
        now += took_s
        rest_s = time.spent(now, took_s, SMALL_BYTES if is_small else SMALL_BYTES + 1)
        if is_small and took_s < FREE_S:
            assert rest_s == 0.0
            continue
        work += took_s
        long += max(took_s - LONG_S, 0.0)
        free_at = now + rest_s
        assert work <= (free_at + QUANTUM_S) * SHARE * 1.001
        assert long <= (free_at + QUANTUM_S) * LONG_SHARE * 1.001


def test_those_that_come_at_once_pay_one_after_the_other() -> None:
    time = StrangersTime()
    rests = [time.spent(1.0, LONG_S, 1 << 20) for _ in range(10)]
    assert rests == sorted(rests)
    assert 0.079 < rests[-1] < 0.081, "ten times 2 ms are a fifth of a tenth of a second"


def test_a_turn_that_is_long_costs_more_than_as_many_that_are_short() -> None:
    """Twenty milliseconds at once, five times a second, had made the p99 of all others ten times what it was."""
    at_once, in_turns = StrangersTime(), StrangersTime()
    assert at_once.spent(0.0, 0.02, 4 << 20) > 1.7
    assert in_turns.spent(0.0, 0.002, 4 << 20, turns=10) < 0.081


def test_what_is_large_is_reckoned_however_little_it_takes() -> None:
    """Replies of 800 KB that took 0.8 ms each were free: one after the other, they filled another node's link."""
    time = StrangersTime()
    assert time.spent(0.0, 0.0008, 800_000, turns=5) > 0.0
    assert time.owed(0.0) > 0.0


def test_little_is_owed_for_a_while_and_not_forgotten() -> None:
    """A rest for each piece of 64 KiB took as long as the pieces: strangers had a core to themselves."""
    time = StrangersTime()
    rests = [time.spent(0.0, 0.0001, 64 << 10) for _ in range(30)]
    assert rests[:12] == [0.0] * 12
    assert rests[-1] > 0.01
    assert time.owed(0.011) == 0.0, "what is left is less than is worth a rest"


def test_who_rests_is_not_heard_and_then_goes_on() -> None:
    end, connection = connected()
    connection.rest(True)
    connection.rest(True)
    connection.receive(ASK)
    assert end.requests == []
    assert end.is_reading is False
    connection.rest(False)
    assert end.requests == [], "one rest is over, and not the other"
    connection.rest(False)
    assert len(end.requests) == 1
    assert end.is_reading is True


def test_a_rest_that_ends_behind_its_client_harms_nobody() -> None:
    end, connection = connected()
    connection.rest(True)
    connection.lost()
    connection.rest(False)
    assert end.requests == []


def stranger() -> tuple[FakeEnd, Connection]:
    end = FakeEnd()
    limits = ConnectionLimits(request=RequestLimits(request_bytes_max=1 << 20))
    connection = Connection(end, end, JsonSession(limits.request), limits)
    connection.account.know(False)
    return end, connection


LARGE = msgspec.json.encode({"action": 1, "queue": "q", "data": "x" * SMALL_BYTES})


def test_who_becomes_known_meanwhile_is_heard_in_order() -> None:
    """The access table may be read again while something waits."""
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.account.know(True)
    connection.receive(ASK)
    connection.rest(False)
    assert [request.action for _, request in end.requests] == [1, 11]


def test_a_stranger_with_something_large_waits_for_the_debt_of_others_before_it_is_looked_at() -> None:
    """Else a new connection for each large request would be a way around the share."""
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.receive(ASK)
    assert end.requests == []
    assert end.is_reading is False
    assert connection.account.partial == len(LARGE) + len(ASK)
    connection.rest(False, is_turn=True)
    assert [request.action for _, request in end.requests] == [1, 11], "in their order, and rested for both"
    assert connection.account.partial == 0
    assert end.spent_s > 0.0, "a large request takes more than its reading"


def test_a_stranger_with_a_long_reply_waits_too_and_small_requests_do_not() -> None:
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(msgspec.json.encode({"action": 2, "queue": "q"}))
    connection.receive(ASK)
    connection.receive(msgspec.json.encode({"action": 2, "queue": "q"}))
    assert [request.action for _, request in end.requests] == [2]
    connection.rest(False, is_turn=True)
    assert [request.action for _, request in end.requests] == [2, 11], "what is behind a long one waits for its reply"


def test_what_a_stranger_sent_before_it_closed_its_side_is_done_when_the_debt_is_paid() -> None:
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.end()
    assert end.closed_how == ""
    connection.rest(False)
    assert [request.action for _, request in end.requests] == [1]
    order, request = end.requests[0]
    connection.answer(order, request, Reply(action=1, code=0))
    assert end.closed_how == "close"
    assert len(end.sent) == 1


def test_what_waits_is_let_go_of_with_its_client() -> None:
    end, connection = stranger()
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.lost()
    connection.rest(False)
    assert end.requests == []
    assert end.ledger.used == 0


def test_who_has_shown_a_token_pays_nothing() -> None:
    end, connection = stranger()
    connection.account.know(True)
    end.is_in_debt = True
    connection.receive(LARGE)
    connection.receive(ASK)
    assert [request.action for _, request in end.requests] == [1, 11]
    assert end.spent_s == 0.0


def in_steps(end: FakeEnd) -> Connection:
    """A client that may hold much, and whose requests are answered at once."""
    end.ledger.bytes_max = 64 << 20
    limits = ConnectionLimits(request=RequestLimits(), held_bytes_max=32 << 20)
    return Connection(end, end, JsonSession(limits.request), limits)


LARGEST = msgspec.json.encode({"action": 1, "queue": "q", "data": ["x" * 100] * 30_000})


def test_a_large_request_is_judged_in_turns_and_its_client_is_not_read_meanwhile() -> None:
    end = FakeEnd()
    connection = in_steps(end)
    connection.receive(LARGEST + ASK)
    assert (end.requests, end.is_reading, len(end.cut_ones)) == ([], False, 1)
    assert connection.account.partial == len(LARGEST) + len(ASK)
    assert not connection.is_quiet, "it can't move now"
    turns = 0
    while not end.is_reading:
        connection.end_turn()
        turns += 1
    assert turns > 5
    assert [request.action for _, request in end.requests] == [1, 11]
    assert connection.account.partial == 0
    assert connection.account.open == len(LARGEST)


def test_who_ends_its_side_while_its_request_is_judged_is_answered() -> None:
    end = FakeEnd()
    connection = in_steps(end)
    connection.receive(LARGEST)
    connection.end()
    for _ in range(20):
        connection.end_turn()
    assert [request.action for _, request in end.requests] == [1]
    order, request = end.requests[0]
    connection.answer(order, request, Reply(action=1, code=0))
    assert (end.closed_how, len(end.sent)) == ("close", 1)


def test_who_rests_while_its_request_is_judged_goes_on_behind_that_and_does_not_spin() -> None:
    end = FakeEnd()
    connection = in_steps(end)
    connection.receive(LARGEST)
    connection.end_turn()
    connection.rest(True)
    asked = len(end.cut_ones)
    for _ in range(20):
        connection.end_turn()
    assert (end.requests, len(end.cut_ones)) == ([], asked)
    connection.rest(False)
    for _ in range(20):
        connection.end_turn()
    assert [request.action for _, request in end.requests] == [1]


def test_who_is_gone_while_its_request_is_judged_holds_nothing() -> None:
    end = FakeEnd()
    connection = in_steps(end)
    connection.receive(LARGEST)
    connection.end_turn()
    connection.lost()
    connection.end_turn()
    assert (end.requests, end.ledger.used) == ([], 0)


class Socket(FakeEnd):
    """A transport for a protocol, too."""

    def set_write_buffer_limits(self, high: int) -> None:
        """Of no account."""

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""


def test_the_last_piece_of_something_large_is_reckoned_however_short_it_is() -> None:
    """With it all is judged: 255 KiB whose last 100 bytes came apart cost their client nothing."""
    end = Socket()
    end.ledger.bytes_max = 64 << 20
    limits = ConnectionLimits(request=RequestLimits())

    def admit(connection: Connection, _address: object, _names: object) -> None:
        connection.account.know(False)

    protocol = TcpProtocol(end, lambda one: JsonSession(one), lambda: limits, admit)
    protocol.connection_made(end)  # type: ignore[arg-type]  # all that is asked of a transport
    body = msgspec.json.encode({"action": 1, "queue": "q", "priority": "x", "data": ["x" * 100] * 2_000})
    protocol.data_received(body[:-100])
    before = end.spent_s
    protocol.data_received(body[-100:])
    assert end.spent_s > before
    assert end.requests == [], "and it was a fault"


def test_bytes_of_strangers_that_wait_are_nobody_elses() -> None:
    """They counted as somebody's who is known: a crowd that was alone got a fifth of the time."""
    end = Socket()
    limits = ConnectionLimits(request=RequestLimits())

    def admit(connection: Connection, _address: object, _names: object) -> None:
        connection.account.know(False)

    protocol = TcpProtocol(end, lambda one: JsonSession(one), lambda: limits, admit)
    protocol.connection_made(end)  # type: ignore[arg-type]  # all that is asked of a transport
    end.turn.strangers_wait = True
    protocol.data_received(b'{"action":4,"queue":"q"}')
    assert (end.requests, len(end.cut_ones)) == ([], 1)
    end.turn.begin_stranger(0)
    end.time += 2 * SLICE_S
    end.turn.end_stranger()
    end.turn.begin()
    assert end.turn.has_slice, "nobody else was heard"
