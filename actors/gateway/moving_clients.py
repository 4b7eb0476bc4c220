"""MovingClients: those that another worker of this node is to go on with, once nothing of theirs is under way here."""

from actors.gateway.listener_limits import Move
from net.clients.connection import Connection


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
