"""Where each shard's leader is, as a client has learned it: so that a request goes there without a way round.

A client asks for the map after some requests, not before: one that is gone soon has no use for it. What it says is only
advice: any node takes any request, and where the map turns out to be wrong it is forgotten, and learned again later.
"""

import threading
from typing import Any, Final

from quorate.connection import Address
from quorate.protocol import Action
from quorate.shards import shard_of_message, shard_of_queue

LEARN_AFTER: Final = 16
"""So many requests of a client go anywhere before it asks for the map, at first and when the map was wrong."""

BY_QUEUE: Final = frozenset(
    {
        *(Action.PRODUCE, Action.CONSUME, Action.MONITOR, Action.CONFIGURE, Action.CLEAR),
        *(Action.PEEK, Action.SHOW, Action.REMOVE, Action.WATCH),
    }
)
BY_MESSAGE: Final = frozenset({Action.CONFIRM, Action.RELEASE, Action.EXTEND, Action.SHOW})


class ShardMap:
    """One client's. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[int, Address] = {}
        self._shards = 1
        self._until_asking = LEARN_AFTER
        self.version = 0

    def counted(self) -> bool:
        """One more request is made; whether it is time to ask for the map."""
        with self._lock:
            if self._until_asking <= 0:
                return False
            self._until_asking -= 1
            return self._until_asking == 0

    def learned(self, reply: dict[str, Any]) -> None:
        """The reply to action 8. One that names no shards is of a node that has one."""
        rows = reply.get("shards") or []
        with self._lock:
            self._shards = (len(rows) + len(reply.get("missing_shards") or ())) or 1
            self.version = int(reply.get("version", 0))
            self._addresses = {
                int(row["shard"]): (str(row["host"]), int(row["port"])) for row in rows if row.get("port")
            }

    def forget(self) -> None:
        """It was wrong: ask for it again, in a while."""
        with self._lock:
            self._addresses = {}
            self._until_asking = LEARN_AFTER

    def address_of(self, action: int, body: dict[str, Any]) -> Address | None:
        """Where a request is done; None if that is not known, or it is about several shards."""
        addresses = self._addresses
        if not addresses:
            return None
        shard = -1
        if action in BY_MESSAGE and "msg_id" in body:
            shard = shard_of_message(int(body["msg_id"]))
        elif action in BY_QUEUE and "queue" in body and "queues" not in body:
            shard = shard_of_queue(str(body["queue"]), self._shards)
        return addresses.get(shard)
