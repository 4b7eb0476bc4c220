"""Which clients move to another worker, and when a Listener gives one away."""

from typing import Any

from actors.gateway.client_moves import ClientMoves, ShardAffinity
from actors.gateway.listener import Listener
from actors.gateway.listener_limits import ListenerLimits
from actors.messages.calls import Answered, Execute
from actors.messages.lifecycle import MoveClient
from net.clients.connection import Connection
from net.clients.connection_contract import ConnectionLimits
from net.protocols.json_session import JsonSession
from net.protocols.session import RequestLimits
from quorate.protocol import Reply
from tests.actors.cranked import CrankedRuntime, Probe, ref


def times(moves: ClientMoves, affinity: ShardAffinity, shard: int, count: int) -> int:
    """How often it is said that the client should move, in so many requests."""
    return sum(moves.asked(affinity, shard) for _ in range(count))


def test_a_client_moves_when_it_has_asked_one_shard_often_enough_on_end() -> None:
    moves, affinity = ClientMoves(4), ShardAffinity()
    moves.led_here = frozenset({0, 1, 2})
    assert times(moves, affinity, 1, 3) == 0
    assert moves.asked(affinity, 1)
    assert times(moves, affinity, 1, 3) == 0, "if it could not move, it is a while before it is tried again"
    assert moves.asked(affinity, 1)
    mixed = sum(moves.asked(affinity, shard) for _ in range(20) for shard in (1, 2))
    assert mixed == 0, "who asks several shards stays"


def test_each_move_makes_the_next_one_rarer() -> None:
    moves = ClientMoves(4)
    moves.led_here = frozenset({1})
    assert times(moves, ShardAffinity(moves=2), 1, 15) == 0
    assert times(moves, ShardAffinity(moves=2), 1, 16) == 1
    assert times(moves, ShardAffinity(moves=60), 1, 4 << 8) == 1, "to a limit"


def test_nobody_moves_to_a_shard_that_another_node_leads_or_where_moving_is_off() -> None:
    assert times(ClientMoves(4), ShardAffinity(), 1, 100) == 0
    off = ClientMoves(0)
    off.led_here = frozenset({1})
    assert times(off, ShardAffinity(), 1, 100) == 0


class Stream:
    """A client's end: what is written leaves when it is told to."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Noted."""
        self.sent.append(data)

    def get_write_buffer_size(self) -> int:
        """What has not left."""
        return sum(map(len, self.sent))

    def pause_reading(self) -> None:
        """Nothing."""

    resume_reading = write_eof = close = abort = pause_reading

    def get_extra_info(self, name: str) -> None:
        """No socket is below."""


def test_a_listener_gives_a_client_away_between_two_requests() -> None:
    runtime, router = CrankedRuntime(), Probe()
    moved: list[int] = []

    def move(connection: Connection, shard: int) -> bool:
        moved.append(shard)
        connection.lost()
        return True

    listener = Listener.start_object(runtime, ref(router), ListenerLimits(), move=move)
    stream = Stream()
    connection = Connection(stream, listener, JsonSession(RequestLimits()), ConnectionLimits())
    listener.admit(connection)
    connection.receive(b'{"action":4,"queue":"q"}')
    runtime.crank()
    [call] = [call for message in router.take(Execute) for call in message.calls]
    listener.actor_ref.tell(MoveClient(connection, 2))
    runtime.crank()
    assert moved == [], "a request of it is open"
    answer: Any = (call, Reply(action=4, code=0))
    call.reply_to.tell(Answered([answer]))
    runtime.crank()
    assert moved == [], "its reply has not left"
    connection.receive(b'{"action":4,"queue":"q"}')
    stream.sent.clear()
    runtime.crank()
    [call] = [call for message in router.take(Execute) for call in message.calls]
    call.reply_to.tell(Answered([(call, Reply(action=4, code=0))]))
    stream.sent.clear()
    runtime.call_later(0.0, stream.sent.clear)
    runtime.crank()
    runtime.crank()
    listener.actor_ref.tell(MoveClient(connection, 2))
    runtime.crank()
    assert moved == [2]
    listener.actor_ref.tell(MoveClient(connection, 1))
    runtime.crank()
    assert moved == [2], "it is gone"
