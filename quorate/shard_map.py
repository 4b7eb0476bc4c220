"""Where each shard's leader is, as a client has learned it: so that a request goes there without a way round.

A client asks for the map after some requests, not before: one that is gone soon has no use for it. What it says is only
advice: any node takes any request, and where the map turns out to be wrong it is forgotten, and learned again later.
"""

import math
import threading
from typing import Any, Final

from quorate.actions import ASKS_NODE, About, about
from quorate.after_fork import forget_after_fork
from quorate.nodes import Address
from quorate.protocol import Action
from quorate.shards import shard_of_message, shard_of_queue

LEARN_AFTER: Final = 16
"""So many requests of a client go anywhere before it asks for the map, at first and when the map was wrong."""

RENEW_S: Final = 60.0
"""So old a map is asked for anew: leaders move, and a node that does not lead any more forwards without a word."""

BY_QUEUE: Final = about(About.QUEUE, About.QUEUES, About.MESSAGE) - ASKS_NODE
BY_TOPIC: Final = about(About.TOPIC) - ASKS_NODE
BY_MESSAGE: Final = about(About.MESSAGE, About.MESSAGES)


class ShardMap:
    """One client's. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        forget_after_fork(self)
        self._addresses: dict[int, Address] = {}
        self._shards = 1
        self._until_asking = LEARN_AFTER
        self._renew_at = math.inf

    def counted(self, now: float) -> bool:
        """One more request is made, at `now` (monotonic s); whether it is time to ask for the map."""
        if not self._until_asking and now < self._renew_at:
            return False  # nearly always
        with self._lock:
            if self._until_asking > 0:
                self._until_asking -= 1
                return self._until_asking == 0
            is_due = now >= self._renew_at
            self._renew_at = math.inf if is_due else self._renew_at  # one thread asks
            return is_due

    def learned(self, reply: dict[str, Any], now: float) -> None:
        """Take in the reply to action 8. One that names no shards is of a node that has one; a refusal tells
        nothing."""
        if reply.get("code") != 0:
            self.forget()
            return
        rows = reply.get("shards") or []
        missing = reply.get("missing_shards") or ()
        with self._lock:
            self._renew_at = now + RENEW_S
            self._until_asking = LEARN_AFTER if missing else 0
            self._shards = (len(rows) + len(missing)) or 1
            self._addresses = {
                int(row["shard"]): (str(row["host"]), int(row["port"])) for row in rows if row.get("port")
            }

    def forget(self) -> None:
        """Ask for it again, in a while: it was wrong."""
        with self._lock:
            self._addresses = {}
            self._until_asking = LEARN_AFTER
            self._renew_at = math.inf

    def after_fork(self) -> None:
        """In a child: the lock may have been a thread's that is not here."""
        self._lock = threading.Lock()

    def address_of(self, action: int, body: dict[str, Any]) -> Address | None:
        """Where a request is done; None if that is not known, or it is about several shards."""
        addresses = self._addresses
        if not addresses:
            return None
        if action == Action.TRANSACTION:  # all of it is of one shard
            body = body["operations"][0]
            action = body["action"]
        shard = -1
        if action in BY_MESSAGE and "msg_id" in body:
            shard = shard_of_message(int(body["msg_id"]))
        elif action in BY_QUEUE and "queue" in body and "queues" not in body:
            shard = shard_of_queue(str(body["queue"]), self._shards)
        elif action in BY_TOPIC and body.get("topic") is not None:
            shard = shard_of_queue(str(body["topic"]), self._shards)
        return addresses.get(shard)
