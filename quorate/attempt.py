"""One request of a client, tried until it is answered, its time is over, or another try could do it twice."""

import time
from typing import Any, Final

from quorate.actions import REPEATABLE, WAITS
from quorate.connection import Connection, Lost
from quorate.errors import ConnectionFailedError, QuorateError, UnknownOutcomeError
from quorate.pool import Pool
from quorate.protocol import Action, ErrorWord
from quorate.shard_map import ShardMap

PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 0.2
"""Between two tries of a request."""

CONNECT_S: Final = 2.0
"""Connecting to one of several nodes, TLS and token included, takes no more of a request's time, nor half of it."""

WAIT_SLICE_S: Final = 25.0
"""A long wait is asked for in slices: a node that is cut off is noticed, and what stands between keeps no account."""

WAIT_MIN_S: Final = 0.01


class NotLetInError(Exception):
    """A node does not let this client in, or is not to be believed; `why` is what its user is told if none does."""

    def __init__(self, why: QuorateError) -> None:
        super().__init__(str(why))
        self.why = why


class Attempt:
    """One request, tried until it is answered, or its time is over, or it must not be tried again.

    Without `retry_connect` it is over when each node was tried and none could be reached.
    """

    def __init__(
        self,
        pool: Pool,
        timeout_s: float,
        action: int,
        body: dict[str, Any],
        shard_map: ShardMap | None = None,
        *,
        retry_connect: bool = True,
    ) -> None:
        self._retry_connect = retry_connect
        self._pool = pool
        self._map = shard_map
        self._direct = None if shard_map is None else shard_map.address_of(action, body)
        self._timeout_s = timeout_s
        self._action = action
        self._body = body
        self.is_keyed = action == Action.PRODUCE and "key" in body and "messages" not in body
        self._is_repeatable = action in REPEATABLE or self.is_keyed
        self.was_repeated = False

    def run(self) -> dict[str, Any]:
        """The last reply. Raises `ConnectionFailedError`, `UnknownOutcomeError`, `ProtocolViolationError`."""
        begun = time.monotonic()
        wait_s = float(self._body.get("wait", 0.0))
        until = begun + wait_s + self._timeout_s
        pause_s = PAUSE_MIN_S
        redirects = not_let_in = not_reached = 0
        while True:
            now = time.monotonic()
            body, slice_s = self._body, 0.0
            if wait_s:
                slice_s = min(max(begun + wait_s - now, 0.001), WAIT_SLICE_S)
                body = {**body, "wait": slice_s}
            left_s = max(min(until - now - slice_s, self._timeout_s), 0.001)
            try:
                reply = self._ask(body, left_s, slice_s)
            except NotLetInError as error:
                not_let_in += 1
                if not_let_in >= self._pool.size and not self._lost_way():
                    raise error.why from error
                continue
            except Lost as lost:
                if self._lost_way() and not lost.was_sent:
                    continue
                if lost.was_sent and not self._is_repeatable:
                    raise UnknownOutcomeError(str(lost)) from lost
                not_reached = 0 if lost.was_sent else not_reached + 1
                has_tried_all = not self._retry_connect and not_reached >= self._pool.size
                if has_tried_all or time.monotonic() + pause_s > until:
                    kind = UnknownOutcomeError if lost.was_sent or self.was_repeated else ConnectionFailedError
                    raise kind(str(lost)) from lost
                self.was_repeated = self.was_repeated or lost.was_sent
            else:
                if self._is_nothing(reply) and time.monotonic() < begun + wait_s - WAIT_MIN_S:
                    continue  # a slice of the wait is over
                if not self._may_try_again(reply) or time.monotonic() + pause_s > until:
                    return reply
                self._lost_way()
                if reply["error"] == ErrorWord.REDIRECT and redirects < 1:
                    redirects += 1
                    continue
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _is_nothing(self, reply: dict[str, Any]) -> bool:
        """Whether a consumer that waits was told that there is nothing."""
        is_empty = "msg_id" not in reply and not reply.get("messages") and reply.get("count") is None
        return self._action in WAITS and reply.get("code") == 0 and is_empty

    def _lost_way(self) -> bool:
        """The map was wrong, if it was that which said where to ask: then any node is asked, and may know better."""
        if self._direct is None or self._map is None:
            return False
        self._direct = None
        self._map.forget()
        return True

    def _ask(self, body: dict[str, Any], timeout_s: float, wait_s: float) -> dict[str, Any]:
        """One try. What is left on a connection after anything else than a reply is nobody's: it is closed."""
        try:
            connect_s = timeout_s if self._pool.size == 1 else min(timeout_s / 2, CONNECT_S)
            connection = self._pool.take(connect_s, self._direct)
        except QuorateError as error:
            raise NotLetInError(error) from error
        try:
            reply = connection.exchange({"action": self._action, **body}, timeout_s + wait_s)
        except Lost:
            connection.close()
            self._pool.ask_elsewhere(connection.address)
            raise
        except BaseException:
            connection.close()
            raise
        self._follow(connection, reply)
        return reply

    def _follow(self, connection: Connection, reply: dict[str, Any]) -> None:
        """Keep the connection, or go where the reply says."""
        error = reply.get("error")
        if error == ErrorWord.REDIRECT:
            self._pool.ask_elsewhere(connection.address, (str(reply["leader_host"]), int(reply["leader_port"])))
        elif error in (ErrorWord.STOPPING, ErrorWord.NO_LEADER):
            self._pool.ask_elsewhere(connection.address)  # that one may be cut off, or removed
        elif error not in (ErrorWord.TOO_LARGE, ErrorWord.TOO_SLOW, ErrorWord.BAD_JSON):
            self._pool.give_back(connection)
            return
        connection.close()

    def _may_try_again(self, reply: dict[str, Any]) -> bool:
        """Whether another try may get further: the request was not done, or may be done twice."""
        error = reply.get("error")
        if error == ErrorWord.UNKNOWN_OUTCOME and self._is_repeatable:
            self.was_repeated = True
            return True
        return error in (ErrorWord.REDIRECT, ErrorWord.STOPPING, ErrorWord.NO_LEADER)
