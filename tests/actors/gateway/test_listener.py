"""The listener: what leaves in one message, who is counted, and what each limit says."""

from typing import Any

import pytest

from actors.gateway.listener import GRACE_S, Listener
from actors.gateway.listener_limits import REFUSED_MAX, ListenerLimits
from actors.messages.call import Call
from actors.messages.calls import Answered, ClientGone, Execute
from actors.messages.lifecycle import EndWaits, Stop, Stopped
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.clients.udp import DatagramClient
from net.protocols import BESIDE
from net.protocols.json_session import JsonSession
from net.protocols.session import RequestLimits
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

    def get_extra_info(self, name: str) -> None:
        """No socket is below."""

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

    def _on_stopped(self) -> None:
        self.stopped += 1

    def crank(self, seconds: float = 0.0) -> None:
        self.runtime.crank(seconds)

    def connect(self, host: str = "10.0.0.7") -> tuple[End, Connection, str | None]:
        end = End()
        connection = Connection(end, self.actor, JsonSession(RequestLimits()), ConnectionLimits())
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
    assert gate.actor.counts.open_requests == 4
    gate.answer(message.calls)
    assert gate.actor.counts.open_requests == 0


def test_a_client_that_ends_is_told_behind_what_it_asked() -> None:
    gate = Gate()
    _, connection, _ = gate.connect()
    connection.receive(b'{"action":7}')
    connection.end()
    assert [type(message) for message in gate.router.told] == [Execute, ClientGone]
    connection.lost()
    assert [type(message) for message in gate.router.told][-1] is ClientGone
    gate.answer(gate.executed())
    assert gate.actor.counts.open_requests == 0, "an answer to nobody counts as well"


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
    assert gate.actor.counts.open_requests == 0


def test_who_holds_most_is_cut_off_when_all_take_too_much() -> None:
    gate = Gate(held_bytes_max=100)
    small, one, _ = gate.connect()
    large, other, _ = gate.connect()
    small.unsent, large.unsent = 60, 90
    one.stall(True)
    assert small.closed_how == ""
    other.stall(True)
    assert (small.closed_how, large.closed_how) == ("", "abort")
    assert one.account.unsent == 60
    assert other.account.bytes == 0


def test_the_largest_unfinished_request_is_refused_when_all_take_too_much() -> None:
    gate = Gate(held_bytes_max=10_000)
    ends = []
    for size in (2000, 5000, 2500):
        end, connection, _ = gate.connect()
        connection.receive(b'{"action":1,"data":"' + b"x" * size)
        ends.append(end)
    assert [b"overloaded" in end.sent for end in ends] == [False, False, False]
    ends[0].sent = b""
    _, last, _ = gate.connect()
    last.receive(b'{"action":1,"data":"' + b"x" * 1000)
    assert [b"overloaded" in end.sent for end in ends] == [False, True, False]


def test_a_refusal_that_is_itself_held_back_makes_nobody_else_make_room() -> None:
    """Found by bench.hostile: it made room for itself, which refused it again, until the stack was full."""
    gate = Gate(held_bytes_max=10)
    _, connection, _ = gate.connect()
    connection.receive(b'{"action":2,"queue":"q","wait":60}')
    gate.crank()
    connection.receive(b'{"action":1,"data":"' + b"x" * 900_000)
    assert connection.has_left
    assert connection.account.bytes == 0


def test_a_datagram_counts_as_long_as_it_is_open() -> None:
    gate = Gate(held_bytes_max=10_000)
    socket: Any = Datagrams()
    for _ in range(3):
        client = DatagramClient(socket, ("a", 1), JsonSession(RequestLimits()).answered, size=4000)
        gate.actor.received_datagram(client, Request(1, queue="q"))
    assert [b"overloaded" in data for data in socket.sent] == [True]
    gate.crank()
    calls = gate.executed()
    assert len(calls) == 2
    gate.answer(calls)
    assert gate.actor.room.held.used == 0


def test_a_session_that_breaks_is_logged_once_with_who_did_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    _, connection, _ = gate.connect("192.0.2.9")
    for _ in range(50):
        gate.actor.broken(connection, ValueError("x"))
    assert caplog.text.count("192.0.2.9 is refused on the clients' ports") == 1
    assert "ValueError('x')" in caplog.text


def test_clients_that_found_no_place_are_not_kept_in_any_number() -> None:
    gate = Gate(connections_max=1)
    gate.connect()
    ends = [gate.connect()[0] for _ in range(REFUSED_MAX + 20)]
    assert sum(end.closed_how == "abort" for end in ends) == 20


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
        client = DatagramClient(socket, (host, 1), JsonSession(RequestLimits()).answered)
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
    assert gate.actor.counts.limits_reached == ["there are 5 queues already"]
    gate.crank(70.0)
    assert gate.actor.counts.limits_reached == []


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


def test_a_datagram_that_is_refused_for_its_size_does_not_wait() -> None:
    """It was counted among those of its address that wait until the node ended: 64 of them locked that out."""
    gate = Gate(held_bytes_max=1000)
    socket: Any = Datagrams()
    client = DatagramClient(socket, ("a", 1), JsonSession(RequestLimits()).answered, size=4000)
    gate.actor.received_datagram(client, Request(2, queue="q", wait=60.0))
    assert [b"overloaded" in data for data in socket.sent] == [True]
    assert gate.actor._datagrams.waiting == []


def test_waits_are_ended_for_those_whose_protocol_says_why_and_json_is_not_told_wherever_its_port_is() -> None:
    gate = Gate()
    for protocol in ("json", "json" + BESIDE, "disque"):
        _, connection, _ = gate.connect()
        connection.protocol = protocol
    gate.actor.actor_ref.tell(EndWaits(True))
    gate.crank()
    assert [gone.client.protocol for gone in gate.router.take(ClientGone)] == ["disque"]
