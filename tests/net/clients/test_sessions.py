"""What a connection does for a protocol that is not JSON: the order, the notes, what needs no node, and the end."""

from net.clients.connection import Connection
from quorate.protocol import Action
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
    is_alone = [connection.has_long_open]
    for nth in (0, -1):
        connection.answer(*end.requests[nth], reply(nth))
        is_alone.append(connection.has_long_open)
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
