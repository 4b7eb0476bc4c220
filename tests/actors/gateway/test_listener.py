"""The listener: what leaves in one message, who is counted, and what each limit says."""

from typing import Any

from actors.gateway.listener import GRACE_S, Listener, ListenerLimits
from actors.messages.call import Call
from actors.messages.calls import Answered, ClientGone, Execute
from actors.messages.lifecycle import Listening, Stop, Stopped
from net.clients.connection import Connection, ConnectionLimits
from net.clients.udp import DatagramClient
from net.protocols.codec import CodecLimits
from net.protocols.json_codec import JsonCodec
from quorate.protocol import Reply, Request
from tests.actors.cranked import CrankedRuntime, Probe, ref


class End:
    """A client's end of a stream."""

    def __init__(self) -> None:
        self.sent = b""
        self.unsent = 0
        self.closed_how = ""

    def write(self, data: bytes) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write_eof(self) -> None:
        self.closed_how = "eof"

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closed_how = "close"

    def abort(self) -> None:
        self.closed_how = "abort"


class Gate:
    """A listener whose Router is a probe."""

    def __init__(self, **limits: Any) -> None:
        self.runtime, self.router = CrankedRuntime(), Probe()
        self.stopped = 0
        self.actor = Listener(self.runtime, ref(self.router), ListenerLimits(**limits), self._on_stopped)
        self.actor.begin()
        self.crank()
        assert self.router.take(Listening) == [Listening(self.actor.actor_ref)]

    def _on_stopped(self) -> None:
        self.stopped += 1

    def crank(self, seconds: float = 0.0) -> None:
        self.runtime.crank(seconds)

    def connect(self, host: str = "10.0.0.7") -> tuple[End, Connection, str | None]:
        end = End()
        connection = Connection(end, self.actor, JsonCodec(CodecLimits()), ConnectionLimits())
        return end, connection, self.actor.admit(connection, (host, 5))

    def executed(self) -> list[Call]:
        return [call for message in self.router.take(Execute) for call in message.calls]

    def answer(self, calls: list[Call], **fields: Any) -> None:
        replies = [(call, Reply(action=call.request.action, **{"code": 0, **fields})) for call in calls]
        self.actor.actor_ref.tell(Answered(replies))
        self.crank()


def test_all_that_one_turn_read_leaves_in_one_message() -> None:
    gate = Gate()
    for _ in range(2):
        _, connection, _ = gate.connect()
        connection.receive(b'{"action":1}{"action":1}')
    assert gate.router.told == []
    gate.crank()
    [message] = gate.router.take(Execute)
    assert len(message.calls) == 4
    assert gate.actor.open_requests == 4
    gate.answer(message.calls)
    assert gate.actor.open_requests == 0


def test_a_client_that_ends_is_told_behind_what_it_asked() -> None:
    gate = Gate()
    _, connection, _ = gate.connect()
    connection.receive(b'{"action":7}')
    connection.end()
    assert [type(message) for message in gate.router.told] == [Execute, ClientGone]
    connection.lost()
    assert [type(message) for message in gate.router.told][-1] is ClientGone
    gate.answer(gate.executed())
    assert gate.actor.open_requests == 0, "an answer to nobody counts as well"


def test_places_are_kept_for_those_on_this_machine() -> None:
    gate = Gate(connections_max=1)
    assert gate.connect()[2] is None
    assert "1 clients are connected already" in str(gate.connect()[2])
    assert gate.connect("127.0.0.1")[2] is None
    assert gate.connect("::1")[2] is None


def test_more_open_requests_than_allowed_are_refused() -> None:
    gate = Gate(requests_max=2)
    end, connection, _ = gate.connect()
    connection.receive(b'{"action":1}{"action":1}{"action":1}')
    gate.crank()
    assert end.sent.count(b"overloaded") == 3
    assert gate.actor.open_requests == 0


def test_who_leaves_most_unread_is_cut_off_when_all_take_too_much() -> None:
    gate = Gate(unsent_bytes_max=100)
    small, one, _ = gate.connect()
    large, other, _ = gate.connect()
    small.unsent, large.unsent = 60, 90
    one.stall(True)
    assert small.closed_how == ""
    other.stall(True)
    assert (small.closed_how, large.closed_how) == ("", "abort")


class Datagrams:
    """The socket of a node."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def sendto(self, data: bytes, address: Any) -> None:
        self.sent.append(data)


def test_waiting_datagrams_are_bounded_by_address_and_in_all_and_counted_down() -> None:
    gate = Gate(datagram_waits_max=3, datagram_waits_each=2)
    socket: Any = Datagrams()

    def wait(host: str) -> None:
        client = DatagramClient(socket, (host, 1), JsonCodec(CodecLimits()).encode)
        gate.actor.received_datagram(client, Request(2, queue="q", wait=60.0))

    for host in ("a", "a", "a", "b", "c"):
        wait(host)
    assert [b"overloaded" in data for data in socket.sent] == [True, True]
    gate.crank()
    calls = gate.executed()
    assert len(calls) == 3
    gate.answer(calls)
    socket.sent.clear()
    for _ in range(2):
        wait("a")
    assert socket.sent == []


def test_a_limit_is_named_once_in_status_while_it_is_reached() -> None:
    gate = Gate()
    _, connection, _ = gate.connect()
    connection.receive(b'{"action":1}{"action":1}')
    gate.crank()
    gate.answer(gate.executed(), code=-1, error="limit_reached", reason="there are 5 queues already")
    assert list(gate.actor._reached) == ["there are 5 queues already"]
    gate.crank(70.0)
    assert list(gate.actor._reached) == []


def test_a_node_that_stops_says_so_and_closes_when_all_is_written() -> None:
    gate = Gate()
    end, connection, _ = gate.connect()
    gate.actor.actor_ref.tell(Stop(ref(Probe())))
    gate.crank()
    assert len(gate.router.take(Stop)) == 1
    connection.receive(b'{"action":7}')
    gate.crank()
    assert b"stopping" in end.sent
    gate.actor.actor_ref.tell(Stopped("replicator"))
    gate.crank(GRACE_S)
    assert gate.stopped == 1
    assert end.closed_how == "eof"
