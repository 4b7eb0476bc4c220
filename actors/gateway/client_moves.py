"""Clients that another worker of their node should go on with, since they ask its shard again and again.

The system gives a new connection to any of a node's workers. Most clients work on one queue; one that has asked the
same shard `move_after` times on end, and that shard is led by another worker of this node, is better off there: its
requests then need no way over a socket. Moving costs some requests' time, so a client that has moved has to ask
twice as often before it moves again. `ClientMoves` says which, for the Router: a machine; `MovingClients` lets them go,
for the Listener, once nothing of theirs is under way.
"""

from dataclasses import dataclass
from typing import Final

from actors.gateway.listener_limits import Move
from actors.messages.call import Client
from net.clients.connection import Connection

MOVE_AFTER: Final = 32
"""A client that has asked one shard so many times on end, and another worker has that, is moved there."""

MOVES_MAX: Final = 8
"""Moves beyond this do not make the next one rarer."""


@dataclass(slots=True)
class ShardAffinity:
    """What a client did last: which shard it asked, and how often on end; how often it has moved."""

    shard: int = -1
    count: int = 0
    moves: int = 0


class ClientMoves:
    """For one worker. `led_here` are the shards that this node leads. `move_after` 0: never."""

    def __init__(self, move_after: int) -> None:
        self._move_after = move_after
        self.led_here: frozenset[int] = frozenset()

    def asked_by(self, client: Client, shard: int) -> bool:
        """As `asked`, of a client, which notes it; only who has a connection can move."""
        if type(client) is not Connection:
            return False
        if client.affinity is None:
            client.affinity = ShardAffinity()
        return self.asked(client.affinity, shard)

    def asked(self, affinity: ShardAffinity, shard: int) -> bool:
        """Count a request for that shard, another worker's: should the client move there? What it asks here ends the
        count."""
        if shard != affinity.shard:
            affinity.shard, affinity.count = shard, 1
            return False
        affinity.count += 1
        if affinity.count < self._move_after << min(affinity.moves, MOVES_MAX):
            return False
        affinity.count = 0
        return self._move_after > 0 and shard in self.led_here


class MovingClients:
    """Of one Listener. `move` gives a quiet one away."""

    def __init__(self, move: Move) -> None:
        self._move = move
        self._to: dict[Connection, int] = {}

    def begin(self, connection: Connection, shard: int) -> None:
        """Let it go on with that shard's worker."""
        self._to[connection] = shard
        connection.is_moving = True
        self.go_on(connection)

    def go_on(self, connection: Connection) -> None:
        """Let it go if it is quiet."""
        shard = self._to.get(connection)
        if shard is not None and connection.is_quiet:
            connection.is_moving = False
            del self._to[connection]
            self._move(connection, shard)

    def closed(self, connection: Connection) -> None:
        """Forget a client that is gone."""
        self._to.pop(connection, None)
