"""One client's connection: order of replies, limits, what happens to those who do not behave."""

import pytest

from net.clients.connection import TURN_MAX, Connection
from net.clients.open_requests import MESSAGES_MAX
from net.clients.patience import OWED_S
from net.clients.reply_order import UNORDERED
from net.protocols.disque_session import DisqueSession
from net.protocols.json_session import JsonSession
from net.protocols.session import RequestLimits, Say
from quorate.node_replies import ClientReply
from quorate.protocol import Reply
from tests.net.clients.fake_end import ASKED, LIMITS, FakeEnd, connected, reply


def test_replies_leave_in_the_order_of_the_requests() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}{"action":1}{"action":1}')
    orders = [order for order, _ in end.requests]
    connection.answer(orders[2], ASKED, reply(3))
    connection.answer(orders[1], ASKED, reply(2))
    assert end.sent == []
    connection.answer(orders[0], ASKED, reply(1))
    assert [b'"msg_id":%d' % n in data for n, data in enumerate(end.sent, 1)] == [True] * 3


def test_a_request_with_seq_is_answered_at_once() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}{"action":1,"seq":7}')
    assert end.requests[1][0] == UNORDERED
    connection.answer(UNORDERED, ASKED, reply(2))
    assert len(end.sent) == 1


def test_a_fault_is_answered_in_its_place() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}{"action":"x"}')
    assert end.sent == []
    connection.answer(end.requests[0][0], ASKED, reply(1))
    assert b'"code":0' in end.sent[0]
    assert b"field_error" in end.sent[1]


def test_a_request_that_is_too_large_is_answered_and_the_connection_closed() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1,"data":"' + b"x" * 200)
    assert b"too_large" in end.sent[0]
    assert end.closed_how == "eof"
    connection.receive(b'{"action":1}')
    assert end.requests == []
    assert end.is_reading, "to close with bytes unread would throw the refusal away"
    connection.end()
    assert end.closed_how == "close"


def test_a_refused_client_that_sends_on_is_cut_off_in_the_end() -> None:
    end, connection = connected()
    connection.refuse_all("overloaded", "full")
    assert end.closed_how == "eof"
    for _ in range(4):
        connection.receive(b"x" * 1000)
        connection.sweep(1.0)
    assert end.closed_how == "abort"


def test_unfinished_requests_are_counted_until_they_are_whole_or_gone() -> None:
    _, connection = connected()
    connection.receive(b'{"action":1,"da')
    assert connection.account.partial == 15
    connection.receive(b'ta":1}')
    assert connection.account.partial == 0
    connection.receive(b'{"action')
    connection.lost()
    assert connection.account.partial == 0


def test_consumes_that_may_each_bring_a_large_message_are_bounded_but_not_those_that_wait() -> None:
    limits = LIMITS._replace(pipelined_max=1000)
    end = FakeEnd()
    connection = Connection(end, end, JsonSession(limits.request), limits)
    connection.receive(b'{"action":2,"wait":9,"seq":1}' * 30)
    assert len(end.requests) == 30
    connection.receive(b'{"action":2,"seq":2}' * 30)
    assert len(end.requests) == 30 + MESSAGES_MAX
    connection.answer(UNORDERED, end.requests[-1][1], reply(1))
    assert len(end.requests) == 31 + MESSAGES_MAX


def test_a_client_with_many_open_requests_is_not_read_until_they_are_answered() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1,"seq":1}' * 6)
    assert len(end.requests) == 4
    assert not end.is_reading
    connection.answer(UNORDERED, ASKED, reply(1))
    assert len(end.requests) == 5
    assert not end.is_reading
    connection.answer(UNORDERED, ASKED, reply(2))
    assert len(end.requests) == 6
    assert end.is_reading


def test_what_may_have_a_long_reply_is_done_alone() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}{"action":11}{"action":2,"count":9}{"action":1}')
    assert [request.action for _, request in end.requests] == [1, 11]
    connection.answer(0, ASKED, reply(1))
    assert len(end.requests) == 2
    connection.answer(1, end.requests[1][1], reply(2))
    assert [request.action for _, request in end.requests] == [1, 11, 2]
    connection.answer(2, end.requests[2][1], reply(3))
    assert len(end.requests) == 4
    assert end.is_reading


def test_a_consumer_that_waits_holds_up_nothing_behind_it() -> None:
    end, connection = connected()
    connection.receive(b'{"action":2,"wait":600,"seq":1}{"action":11,"seq":2}{"action":1,"seq":3}')
    assert [request.action for _, request in end.requests] == [2, 11]
    connection.answer(UNORDERED, end.requests[1][1], reply(2))
    assert [request.action for _, request in end.requests] == [2, 11, 1], "it may be what the consumer waits for"


def test_thousands_of_faults_in_one_read_are_all_answered() -> None:
    end, connection = connected()
    connection.receive(b'{"x":1}' * 3000)
    assert len(end.sent) == TURN_MAX, "then others have their turn"
    assert not end.is_reading
    for turn in range(2, 3000 // TURN_MAX + 1):
        connection.end_turn()
        assert len(end.sent) == turn * TURN_MAX
    connection.end_turn()
    assert end.is_reading


def test_who_waits_for_a_job_is_read_on_so_that_its_end_is_noticed() -> None:
    """Its connection was not read any more with something behind the GETJOB, and jobs were handed to who had left."""
    end, connection = connected(protocol="disque")
    connection.receive(b"GETJOB FROM q\r\nPING\r\n")
    assert [request.action for _, request in end.requests] == [2]
    assert end.is_reading
    connection.receive(b"PING\r\n" * 50)
    assert end.is_reading
    assert end.sent == []
    connection.end()
    assert end.gone == 1
    connection.receive(b"PING\r\n" * 300)


def test_behind_who_waits_for_a_job_little_is_read_on() -> None:
    end, connection = connected(protocol="disque")
    connection.receive(b"GETJOB FROM q\r\n" + b"PING\r\n" * 300)
    reading = [end.is_reading]
    connection.answer(*end.requests[0], Reply(action=2, code=0))
    for _ in range(10):
        connection.end_turn()
    assert [*reading, end.is_reading] == [False, True]
    assert end.sent[0] == b"*-1\r\n"
    assert len(end.sent) == 301


def test_what_stands_behind_a_switch_of_resp_is_answered_as_that_says_and_before_it_as_before() -> None:
    end, connection = connected(protocol="disque")
    connection.receive(b"CLIENT GETNAME\r\nHELLO 3\r\nCLIENT GETNAME\r\nHELLO 2\r\nCLIENT GETNAME\r\n")
    for number in range(2):
        order, request = end.requests[number]
        assert request.action == 24
        connection.answer(order, request, ClientReply(action=24, code=0, number=7))
        connection.end_turn()
    assert [end.sent[at] for at in (0, 2, 4)] == [b"$-1\r\n", b"_\r\n", b"$-1\r\n"]


def test_a_client_that_wants_no_answers_gets_none_until_it_says_so() -> None:
    end, connection = connected(protocol="disque")
    connection.receive(b"CLIENT REPLY OFF\r\nPING a\r\nFOO\r\nCLIENT ID\r\nCLIENT REPLY SKIP\r\nPING b\r\n")
    connection.answer(*end.requests[0], ClientReply(action=24, code=0, number=7))
    connection.receive(b"CLIENT REPLY ON\r\nPING c\r\nCLIENT REPLY SKIP\r\nCLIENT ID\r\nCLIENT ID\r\n")
    for asked in end.requests[1:]:
        connection.answer(*asked, ClientReply(action=24, code=0, number=7))
    connection.receive(b"CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nCLIENT REPLY NEVER\r\n")
    said = [data for data in end.sent if data]
    assert said[:-1] == [b"+OK\r\n", b"$1\r\nc\r\n", b":7\r\n", b"+OK\r\n"]
    assert said[-1].startswith(b"-ERR Unknown subcommand")


def test_another_workers_session_goes_on_as_silent_as_it_was() -> None:
    before, after = DisqueSession(RequestLimits()), DisqueSession(RequestLimits())
    before.receive(b"CLIENT REPLY OFF\r\n")
    assert before.state is not None
    after.resume(before.state)
    assert after.receive(b"PING\r\nCLIENT REPLY ON\r\n") == [Say(b""), Say(b"+OK\r\n")]


def test_a_client_that_does_not_read_gets_no_more_done() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}' * 6)
    connection.stall(True)
    connection.answer(end.requests[0][0], ASKED, reply(1))
    assert len(end.requests) == 4
    connection.stall(False)
    assert len(end.requests) == 5


def test_a_client_that_does_not_read_is_not_read_and_in_the_end_cut_off() -> None:
    end, connection = connected()
    connection.stall(True)
    assert not end.is_reading
    for _ in range(7):
        connection.sweep(1.0)
    assert end.closed_how == ""
    connection.sweep(1.0)
    assert end.closed_how == "abort"


def test_a_request_that_does_not_come_in_whole_is_told_so() -> None:
    end, connection = connected()
    connection.receive(b'{"action":')
    for _ in range(7):
        connection.sweep(1.0)
        connection.receive(b" ")
    assert b"too_slow" in end.sent[0]
    assert end.closed_how == "eof"


def test_an_idle_client_is_told_so_but_not_while_it_waits_for_a_reply() -> None:
    end, connection = connected()
    end.reads = True
    connection.receive(b'{"action":2}')
    for _ in range(20):
        connection.sweep(1.0)
    assert end.sent == []
    connection.answer(end.requests[0][0], ASKED, reply(1))
    for _ in range(12):
        connection.sweep(1.0)
    assert b"no request for 9 s" in end.sent[1]


def test_a_client_that_ends_gets_its_open_replies_before_the_connection_closes() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}')
    connection.end()
    assert end.gone == 1
    assert end.closed_how == ""
    connection.answer(end.requests[0][0], ASKED, reply(1))
    assert len(end.sent) == 1
    assert end.closed_how == "close"


def test_replies_to_a_client_that_is_gone_are_dropped() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}')
    connection.lost()
    connection.answer(end.requests[0][0], ASKED, reply(1))
    assert end.sent == []


def quiet(connection: Connection) -> bool:
    return connection.is_quiet


def test_a_client_that_is_to_move_is_quiet_when_nothing_is_under_way() -> None:
    end, connection = connected()
    assert quiet(connection)
    connection.receive(b'{"action":4,"queue":"q"}')
    assert not quiet(connection), "a request is open"
    connection.is_moving = True
    connection.answer(0, end.requests[0][1], reply(1))
    assert end.settled_count == 1
    assert not quiet(connection), "the reply has not left"
    end.sent.clear()
    assert quiet(connection)
    connection.receive(b'{"action":4,')
    assert not quiet(connection), "half a request is here"
    connection.receive(b'"queue":"q"}')
    connection.answer(1, end.requests[1][1], reply(2))
    end.sent.clear()
    assert quiet(connection)
    connection.stall(True)
    assert not quiet(connection)
    connection.stall(False)
    connection.end()
    assert not quiet(connection), "it has ended its side"


def test_who_does_not_move_is_not_told_of() -> None:
    end, connection = connected()
    connection.receive(b'{"action":4,"queue":"q"}')
    connection.answer(0, end.requests[0][1], reply(1))
    assert end.settled_count == 0


@pytest.mark.parametrize("fields", ["", ',"seq":7'])
def test_a_client_that_is_refused_hears_so_behind_the_replies_that_it_is_owed(fields: str) -> None:
    """Found with real nodes: a token was taken away, and what its client was told was refused was done all the same."""
    end, connection = connected()
    connection.receive(b'{"action":1%b}' % fields.encode() * 3)
    orders = [order for order, _ in end.requests]
    connection.refuse_all("not_authenticated", "gone")
    assert end.sent == []
    assert end.closed_how == ""
    assert end.gone == 1, "what waits is answered at once"
    connection.receive(b'{"action":1,"seq":9}')
    for number, order in enumerate(orders):
        connection.answer(order, ASKED, reply(number))
    assert len(end.requests) == 3
    assert [b"not_authenticated" in data for data in end.sent] == [False, False, False, True]
    assert b"seq" not in end.sent[-1]
    assert end.closed_how == "eof"


def test_what_a_refused_client_is_not_answered_in_time_may_have_been_done() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1,"seq":1}{"action":1,"seq":2}')
    connection.refuse_all("not_authenticated", "gone")
    connection.answer(UNORDERED, ASKED, reply(1))
    connection.sweep(OWED_S - 1)
    assert len(end.sent) == 1
    connection.sweep(1.0)
    assert b"unknown_outcome" in end.sent[1]
    assert end.closed_how == "eof"
    connection.answer(UNORDERED, ASKED, reply(2))
    assert len(end.sent) == 2, "it was told that it is not answered"
