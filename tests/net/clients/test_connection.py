"""One client's connection: order of replies, limits, what happens to those who do not behave."""

from typing import Any

from net.clients.connection import AT_ONCE, MESSAGES_MAX, Connection, ConnectionLimits
from net.clients.held_bytes import OBJECT_BYTES, Account, HeldBytes
from net.protocols.codec import Codec, CodecLimits, Fault
from net.protocols.json_codec import JsonCodec, encode_reply, fault_reply
from quorate.protocol import Reply, Request

LIMITS = ConnectionLimits(
    codec=CodecLimits(request_bytes_max=100), pipelined_max=4, partial_s_max=5, stalled_s_max=7, idle_s_max=9
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

    def received(self, connection: Connection, order: int, request: Request) -> None:
        self.requests.append((order, request))

    def ended(self, connection: Connection) -> None:
        self.gone += 1

    def closed(self, connection: Connection) -> None:
        self.gone += 1

    def settled(self, connection: Connection) -> None:
        self.settled_count += 1

    def account(self) -> Account:
        return Account(self.ledger)

    def overdrawn(self, connection: Connection, wanted: int) -> None:
        self.overdrawn_by.append(wanted)

    def broken(self, connection: Connection, error: Exception) -> None:
        self.errors.append(error)


def connected() -> tuple[FakeEnd, Connection]:
    end = FakeEnd()
    return end, Connection(end, end, JsonCodec(LIMITS.codec), LIMITS)


def reply(number: int) -> Reply:
    return Reply(action=1, code=0, msg_id=number)


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
    assert end.requests[1][0] == AT_ONCE
    connection.answer(AT_ONCE, ASKED, reply(2))
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
    connection = Connection(end, end, JsonCodec(limits.codec), limits)
    connection.receive(b'{"action":2,"wait":9,"seq":1}' * 30)
    assert len(end.requests) == 30
    connection.receive(b'{"action":2,"seq":2}' * 30)
    assert len(end.requests) == 30 + MESSAGES_MAX
    connection.answer(AT_ONCE, end.requests[-1][1], reply(1))
    assert len(end.requests) == 31 + MESSAGES_MAX


def test_a_client_with_many_open_requests_is_not_read_until_they_are_answered() -> None:
    end, connection = connected()
    connection.receive(b'{"action":1,"seq":1}' * 6)
    assert len(end.requests) == 4
    assert not end.is_reading
    connection.answer(AT_ONCE, ASKED, reply(1))
    assert len(end.requests) == 5
    assert not end.is_reading
    connection.answer(AT_ONCE, ASKED, reply(2))
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
    connection.answer(AT_ONCE, end.requests[1][1], reply(2))
    assert [request.action for _, request in end.requests] == [2, 11, 1], "it may be what the consumer waits for"


def test_thousands_of_faults_in_one_read_are_all_answered() -> None:
    end, connection = connected()
    connection.receive(b'{"x":1}' * 3000)
    assert len(end.sent) == 3000


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


class Breaking(Codec):
    """A codec with a fault of its own."""

    is_idle = True

    def receive(self, data: bytes) -> list[Request | Fault]:
        if b"break" in data:
            raise RecursionError("too deep for me")
        return JsonCodec(LIMITS.codec).receive(data)

    def encode(self, request: Request | None, reply: Reply) -> bytes:
        if reply.msg_id == 666:
            raise ValueError("that number")
        return encode_reply(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        return fault_reply(fault)


def test_what_a_codec_raises_on_what_came_refuses_its_client_and_nobody_else() -> None:
    end = FakeEnd()
    connection = Connection(end, end, Breaking(), LIMITS)
    connection.receive(b'{"action":1}')
    connection.receive(b'{"break":1}')
    connection.answer(end.requests[0][0], ASKED, reply(1))
    assert [type(error) for error in end.errors] == [RecursionError]
    assert b'"msg_id":1' in end.sent[0], "what was asked before is answered"
    assert b"bad_json" in end.sent[1]
    assert end.closed_how == "eof"


def test_what_a_codec_raises_on_a_reply_cuts_its_client() -> None:
    end = FakeEnd()
    connection = Connection(end, end, Breaking(), LIMITS)
    connection.receive(b'{"action":1}')
    connection.answer(end.requests[0][0], ASKED, reply(666))
    assert [type(error) for error in end.errors] == [ValueError]
    assert end.sent == []
    assert end.closed_how == "abort"


def test_a_codec_that_lacks_a_method_harms_its_client_alone_compiled_too() -> None:
    end = FakeEnd()
    incomplete: Any = type("Incomplete", (Codec,), {"is_idle": True, "receive": lambda self, data: [ASKED]})
    try:
        codec = incomplete()  # refused when it is made, or compiled, when it is called
    except TypeError:
        return
    Connection(end, end, codec, LIMITS).answer(AT_ONCE, ASKED, Reply(action=1, code=0))
    assert [type(error) for error in end.errors] == [NotImplementedError]
    assert end.closed_how == "abort"


LARGE = b'{"action":1,"queue":"q","data":"' + b"x" * 5000 + b'"}'
WIDE = LIMITS._replace(codec=CodecLimits(), held_bytes_max=20_000, pipelined_max=1000)


def wide() -> tuple[FakeEnd, Connection]:
    end = FakeEnd()
    end.reads = True
    return end, Connection(end, end, JsonCodec(WIDE.codec), WIDE)


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
    assert connection.account.waiting == 2000 * OBJECT_BYTES
