"""What one client can break, and what it can make a worker hold."""

from typing import Any

from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.held_bytes import OBJECT_BYTES
from net.clients.reply_order import UNORDERED
from net.clients.strangers_time import MANY
from net.node_facts import NodeFacts
from net.protocols.gmq_session import GmqSession
from net.protocols.json_session import JsonSession, encode_reply, fault_reply
from net.protocols.session import Ask, Fault, Found, RequestLimits, Session
from quorate.protocol import Reply, Request
from tests.net.clients.fake_end import ASKED, LIMITS, FakeEnd, connected, reply


class Breaking(Session):
    """A protocol with a fault of its own."""

    state = b""

    def receive(self, data: bytes) -> list[Found]:
        if b"break" in data:
            raise RecursionError("too deep for me")
        return JsonSession(LIMITS.request).receive(data)

    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        if reply.msg_id == 666:
            raise ValueError("that number")
        return encode_reply(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        return fault_reply(fault)


def test_what_a_session_raises_on_what_came_refuses_its_client_and_nobody_else() -> None:
    end = FakeEnd()
    connection = Connection(end, end, Breaking(), LIMITS)
    connection.receive(b'{"action":1}')
    connection.receive(b'{"break":1}')
    connection.answer(end.requests[0][0], ASKED, reply(1))
    assert [type(error) for error in end.errors] == [RecursionError]
    assert b'"msg_id":1' in end.sent[0], "what was asked before is answered"
    assert b"bad_json" in end.sent[1]
    assert end.closed_how == "eof"


def test_what_a_session_raises_on_a_reply_cuts_its_client() -> None:
    end = FakeEnd()
    connection = Connection(end, end, Breaking(), LIMITS)
    connection.receive(b'{"action":1}')
    connection.answer(end.requests[0][0], ASKED, reply(666))
    assert [type(error) for error in end.errors] == [ValueError]
    assert end.sent == []
    assert end.closed_how == "abort"


def test_a_session_that_lacks_a_method_harms_its_client_alone_compiled_too() -> None:
    end = FakeEnd()
    incomplete: Any = type("Incomplete", (Session,), {"state": b"", "receive": lambda self, data: [ASKED]})
    try:
        session = incomplete()  # refused when it is made, or compiled, when it is called
    except TypeError:
        return
    Connection(end, end, session, LIMITS).answer(UNORDERED, ASKED, Reply(action=1, code=0))
    assert [type(error) for error in end.errors] == [NotImplementedError]
    assert end.closed_how == "abort"


LARGE = b'{"action":1,"queue":"q","data":"' + b"x" * 5000 + b'"}'
WIDE = LIMITS._replace(request=RequestLimits(), held_bytes_max=20_000, pipelined_max=1000)


def wide() -> tuple[FakeEnd, Connection]:
    end = FakeEnd()
    end.reads = True
    return end, Connection(end, end, JsonSession(WIDE.request), WIDE)


def test_large_requests_count_as_long_as_they_are_open_also_when_their_client_is_gone() -> None:
    end, connection = wide()
    connection.receive(LARGE)
    connection.receive(LARGE[:-1] + b',"seq":1}')
    held = connection.account.open
    assert held > 10_000
    connection.lost()
    assert end.ledger.used == held
    for order, request in end.requests:
        connection.answer(order, request, reply(1))
    assert end.ledger.used == 0


def test_a_large_request_that_is_asked_in_two_steps_counts_in_both() -> None:
    """128 produces of 1 MiB were open on one connection, and counted nothing behind the question for their ids."""
    end = FakeEnd()
    end.reads = True
    session = GmqSession(WIDE.request, NodeFacts(shards=2))
    connection = Connection(end, end, session, WIDE)
    connection.receive(b'{"method":"Service.Push","params":[{"id":"a","topic":"t","body":"' + b"x" * 5000 + b'"}]}')
    held = connection.account.open
    assert held > 5000
    order, find = end.requests[0]
    connection.answer(order, find, Reply(action=25, code=-1, error="no_such_message", reason="x"))
    assert connection.account.open == held
    order, produce = end.requests[1]
    connection.answer(order, produce, reply(1))
    assert connection.account.open == 0
    assert end.sent == [b'{"id":null,"result":"success","error":null}\n']


def test_a_client_whose_open_requests_take_too_much_is_not_read() -> None:
    end, connection = wide()
    for _ in range(6):
        connection.receive(LARGE)
    assert len(end.requests) == 4
    assert not end.is_reading
    connection.answer(0, ASKED, reply(1))
    assert len(end.requests) == 5
    assert connection.account.waiting > 5000


def test_replies_that_wait_for_their_turn_count_and_their_client_is_not_read() -> None:
    """A consumer without seq that waits, and looks behind it: each look's reply stayed, and was counted nowhere."""
    end, connection = wide()
    connection.receive(b'{"action":2,"wait":3600}')
    for looks in range(30):
        connection.receive(b'{"action":11,"queue":"q"}')
        for order, request in end.requests[1 + looks :]:
            connection.answer(order, request, Reply(action=11, code=0, reason="x" * 5000))
    assert connection.account.held_back < 30_000
    assert not end.is_reading
    connection.answer(0, end.requests[0][1], reply(1))
    assert connection.account.held_back == 0


def test_somebody_makes_room_when_replies_that_wait_for_their_turn_take_too_much() -> None:
    """Found by bench.hostile: each client kept within its own limit, and all together had a gigabyte."""
    end, connection = wide()
    end.ledger.bytes_max = 6000
    connection.receive(b'{"action":2,"wait":3600}')
    connection.receive(b'{"action":11,"queue":"q"}')
    connection.answer(*end.requests[1], Reply(action=11, code=0, reason="x" * 5000))
    assert end.overdrawn_by == []
    connection.receive(b'{"action":11,"queue":"q"}')
    connection.answer(*end.requests[2], Reply(action=11, code=0, reason="x" * 5000))
    assert end.overdrawn_by == [0]


def test_a_request_that_does_not_fit_what_all_clients_may_hold_is_refused_and_the_next_may_fit() -> None:
    end, connection = wide()
    end.ledger.bytes_max = 6000
    connection.receive(LARGE)
    connection.receive(LARGE)
    connection.receive(b'{"action":1,"queue":"q","data":1,"seq":5}')
    assert len(end.requests) == 2
    assert end.overdrawn_by == [len(LARGE)]
    connection.answer(0, ASKED, reply(1))
    assert b"overloaded" in end.sent[-1]


def test_unread_replies_count_when_they_are_large_or_found_and_are_timed_out_however_small() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1}')
    connection.answer(0, ASKED, Reply(action=1, code=0, reason="x" * 3000))
    assert connection.account.unsent > 3000
    for _ in range(7):
        connection.sweep(1.0)
    assert end.closed_how == ""
    for _ in range(2):
        connection.sweep(1.0)
    assert end.closed_how == "abort"


def test_a_client_that_reads_a_little_all_the_time_is_not_cut_off() -> None:
    end, connection = connected()
    connection.receive(b'{"action":2}')
    end.sent = [b"x" * 30] * 30
    for _ in range(25):
        connection.sweep(1.0)
        end.sent.pop()
    assert end.closed_how == ""


def test_a_pipeline_of_tiny_requests_counts_what_its_objects_take() -> None:
    _, connection = wide()
    connection.receive(b'{"action":1,"seq":1}' * 3000)
    for _ in range(20):
        connection.end_turn()
    account = connection.account
    assert account.waiting == 200 * OBJECT_BYTES, "no more objects are made than a turn begins"
    assert account.partial == 1800 * 20, "the rest counts as it came"


def test_what_a_stranger_asks_about_many_messages_is_told_and_nobody_elses() -> None:
    ids = ",".join(map(str, range(1024, 1024 * (MANY + 2), 1024)))
    bodies = [b'{"action":3,"msg_ids":[%s]}' % ids.encode(), b'{"action":3,"msg_ids":[1024]}']
    for is_known, told in ((True, []), (False, [MANY + 1])):
        end, limits = FakeEnd(), ConnectionLimits()
        connection = Connection(end, end, JsonSession(limits.request), limits)
        connection.account.know(is_known)
        for body in bodies:
            connection.receive(body)
        assert len(end.requests) == 2
        assert end.items == told
