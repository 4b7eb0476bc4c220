"""What a connection does for a protocol that is not JSON: the order, the notes, what needs no node, and the end."""

from typing import Any

import pytest

from net.clients.connection import Connection
from net.clients.held_bytes import OBJECT_BYTES
from net.protocols.session import Ask, Found
from quorate.protocol import Action, Reply, Request
from tests.net.clients.fake_end import LIMITS, FakeEnd, reply
from tests.net.protocols.line_session import LineSession


def lines(*, is_ordered: bool = True) -> tuple[FakeEnd, Connection]:
    end = FakeEnd()
    end.reads = True
    return end, Connection(end, end, LineSession(is_ordered=is_ordered), LIMITS)


def test_what_needs_no_node_is_answered_in_its_place() -> None:
    end, connection = lines()
    connection.receive(b"GET\nPING\n")
    assert end.sent == [], "the ping was asked behind it"
    [(order, request)] = end.requests
    connection.answer(order, request, reply(1))
    assert end.sent == [b"1\n", b"PONG\n"]


def test_without_an_order_each_answer_leaves_when_it_is_there() -> None:
    end, connection = lines(is_ordered=False)
    connection.receive(b"GET\nGET\nPING\nnonsense\n")
    first, second = end.requests
    connection.answer(*second, reply(2))
    connection.answer(*first, reply(1))
    assert end.sent == [b"PONG\n", b"-bad_json\n", b"2\n", b"1\n"]


def test_one_command_may_be_several_requests_and_has_one_place() -> None:
    end, connection = lines()
    connection.receive(b"USE a\nTWICE\nPING\n")
    [(order, first)] = end.requests
    connection.answer(order, first, reply(1))
    [_, (again, second)] = end.requests
    assert (again, second.action, second.pattern) == (order, Action.LIST, "a")
    assert not connection.is_quiet
    connection.answer(again, second, reply(2))
    assert end.sent == [b"OK\n", b"1 and 2\n", b"PONG\n"]
    assert connection.is_quiet


def test_a_client_that_ends_is_told_the_rest_of_what_it_asked() -> None:
    end, connection = lines()
    connection.receive(b"TWICE\n")
    connection.end()
    connection.answer(*end.requests[0], reply(1))
    assert end.closed_how == ""
    connection.answer(*end.requests[1], reply(2))
    assert end.sent == [b"1 and 2\n"]
    assert end.closed_how == "close"


def test_a_last_word_closes_when_all_is_answered_and_silently() -> None:
    end, connection = lines()
    connection.receive(b"GET\nQUIT\nGET\n")
    assert len(end.requests) == 1
    assert end.closed_how == ""
    connection.answer(*end.requests[0], reply(1))
    assert end.sent == [b"1\n"]
    assert end.closed_how == "eof"


def test_a_reply_that_holds_much_is_alone_also_if_it_is_asked_for_later() -> None:
    end, connection = lines()
    connection.receive(b"TWICE\nGET\n")
    is_alone = [connection.open.has_long]
    for nth in (0, -1):
        connection.answer(*end.requests[nth], reply(nth))
        is_alone.append(connection.open.has_long)
    assert is_alone == [False, True, False]


def test_what_a_session_remembers_goes_with_its_client_and_without_it_the_client_stays() -> None:
    _, connection = lines()
    connection.receive(b"USE mail\n")
    assert (connection.session_state, connection.is_quiet) == (b"mail", True)
    connection.receive(b"GE")
    assert (connection.session_state, connection.is_quiet) == (None, False)
    there = LineSession()
    there.resume(b"mail")
    [request] = there.receive(b"GET\n")
    assert getattr(request, "queue", None) == "mail"


def test_what_waits_for_its_turn_counts_with_what_it_takes_itself() -> None:
    end, connection = lines()
    connection.receive(b"GET\n" + b"PING\n" * 50)
    assert connection.account.held_back == 50 * (len("PONG\n") + OBJECT_BYTES)
    connection.answer(*end.requests[0], reply(1))
    assert connection.account.held_back == 0


def test_a_last_word_keeps_no_message_waiting() -> None:
    end, connection = lines()
    connection.receive(b"GET\nQUIT\n")
    assert end.gone == 1, "the Listener is told, as of a client that has ended its side"
    connection.answer(*end.requests[0], reply(1))
    assert end.closed_how == "eof"


class Noting(LineSession):
    """Each request has a note; what it is answered with is kept."""

    def __init__(self, fault: str = "") -> None:
        super().__init__(is_ordered=False)
        self.fault = fault
        self.heard: list[tuple[Any, str | None]] = []

    @property
    def state(self) -> bytes | None:
        if self.fault == "state":
            raise ValueError("no state")
        return b""

    def resume(self, state: bytes) -> None:
        raise ValueError("that is none of mine")

    def discard(self) -> None:
        if self.fault == "discard":
            raise ValueError("nothing goes")
        super().discard()

    def receive(self, data: bytes) -> list[Found]:
        self.large = {0: 5000} if self.fault == "large" else {}
        return [Ask(Request(Action.CONSUME, queue="q"), data)]

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        self.heard.append((note, reply.error))
        return bytearray(b"x") if self.fault == "answer" else b"x"  # type: ignore[return-value]


def noting(fault: str = "") -> tuple[FakeEnd, Connection, Noting]:
    end, session = FakeEnd(), Noting(fault)
    end.reads = True
    return end, Connection(end, end, session, LIMITS), session


def test_a_refusal_for_want_of_room_has_its_note() -> None:
    end, connection, session = noting("large")
    end.ledger.bytes_max = 100
    connection.receive(b"seven")
    assert session.heard == [(b"seven", "overloaded")]
    assert not connection.has_left


@pytest.mark.parametrize("fault", ["state", "discard", "answer"])
def test_whatever_of_a_session_raises_costs_its_client_alone(fault: str) -> None:
    end, connection, _ = noting(fault)
    connection.receive(b"x")
    connection.answer(*end.requests[0], reply(1))
    assert connection.is_quiet == (fault != "state")
    connection.lost()
    assert len(end.errors) == 1
    assert end.closed_how == ("abort" if fault == "answer" else "")


def test_a_state_that_is_none_cuts_the_client_that_brings_it() -> None:
    end, connection, _ = noting()
    connection.resume(b"of another version")
    assert (len(end.errors), end.closed_how) == (1, "abort")
