"""What is bound to which exchange, for all processes: kept in the node, as messages that nobody consumes.

A binding is a message of the queue `PREFIXkombu.bindings.EXCHANGE`, with a key, so that it stands there once: routing
key, pattern, queue, how long the queue's messages live (ms, or null), and whether the queue goes when it is unused.
Such a queue's binding goes with it: who reads it and does not find the queue removes it.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import msgspec

from quorate.client import Client
from quorate.errors import DuplicateKeyError, NotAllowedError, RefusedError
from quorate.messages import ShownMessage
from quorate.protocol import ErrorWord
from quorate.results import mark_system

log = logging.getLogger("quorate.kombu")

BINDINGS_MAX: Final = 1000
"""Of one exchange: as many as a node shows at once."""

TABLE_S: Final = 1.0
"""So long it is believed what is bound to an exchange."""

OWN: Final = ""
"""In place of an exchange's name: queues that are bound to exchanges of their own names, by these. No other has it."""

NOT_SEEN: Final = {"ready": 0, "delayed": 0, "in_flight": 0, "size": 0, "wait_status": False}
"""What is known of a queue that may not be looked at: that it may be there."""

NOT_THERE: Final = (ErrorWord.NO_SUCH_MESSAGE, ErrorWord.NO_SUCH_QUEUE)

Row = tuple[str, str | None, str]


class Table(NamedTuple):
    """What was bound at `read_at` (monotonic s): rows of routing key, pattern and queue, and queues' times to live.

    `passing`: those of the queues that go when they are unused.
    """

    read_at: float
    rows: list[Row]
    ttls_ms: dict[str, int]
    passing: set[str]


class _Asking(threading.local):
    """By whom a thread asks, where that is not the usual client."""

    client: Client | None = None


class Bindings:
    """Of one channel, with queues' names as kombu has them."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._usual = client
        self._asking = _Asking()
        self._prefix = prefix
        self._tables: dict[str, Table] = {}
        self._own: dict[str, tuple[float, bool]] = {}
        self._marked: set[str] = set()

    @property
    def client(self) -> Client:
        """By whom this thread asks now."""
        return self._asking.client or self._usual

    @contextmanager
    def asking(self, client: Client) -> Iterator[None]:
        """Have this thread ask by that client meanwhile, which waits for less long."""
        self._asking.client = client
        try:
            yield
        finally:
            self._asking.client = None

    def has_own(self, queue: str) -> bool:
        """Whether the queue is bound to the exchange of its own name: so are those that Celery only names."""
        now = time.monotonic()
        read_at, is_bound = self._own.get(queue, (-TABLE_S, False))
        if now >= read_at + TABLE_S:
            try:
                self.client.show(queue=self._queue(OWN), key=_key((queue, None, queue)))
                is_bound = True
            except NotAllowedError:
                is_bound = True  # who may only send believes that it is there
            except RefusedError as error:
                if error.error not in NOT_THERE:
                    raise
                is_bound = False
            self._own[queue] = now, is_bound
        return is_bound

    def bind_own(self, queue: str) -> None:
        """Bind a queue to the exchange of its own name. All of these stand in one queue of the node."""
        try:
            self._put(OWN, queue, (queue, None, queue))
        except NotAllowedError as error:
            log.debug("%s is not bound to the exchange of its name: %s", queue, error.reason)

    def unbind_own(self, queue: str) -> None:
        """Take that away."""
        self._own.pop(queue, None)
        self._take_away(OWN, (queue, None, queue))

    def _put(self, exchange: str, data: Any, row: Row) -> None:
        """Keep a binding, if it is not there; and have lists leave the queue of them out."""
        with suppress(DuplicateKeyError):
            self.client.produce(self._queue(exchange), data, key=_key(row))
        if exchange not in self._marked:
            mark_system(self.client, self._queue(exchange))
            self._marked.add(exchange)

    def _queue(self, exchange: str) -> str:
        return f"{self._prefix}kombu.bindings.{exchange}"

    def counts(self, queue: str) -> dict[str, Any] | None:
        """Return a queue's counts and settings; None: there is none. One that this client may not look at has none."""
        try:
            return {**self.client.monitor(self._prefix + queue)}
        except NotAllowedError:
            return dict(NOT_SEEN)  # who may not look at it must not take it for gone
        except RefusedError as error:
            if error.error == ErrorWord.NO_SUCH_QUEUE:
                return None
            raise

    def bind(self, exchange: str, row: Row, ttl_ms: int | None) -> None:
        """From now on what goes to the exchange and fits goes to the queue as well."""
        self.forget(exchange)
        counts = self.counts(row[2])
        is_passing = counts is not None and bool(counts.get("settings", {}).get("expires_after"))
        try:
            self._put(exchange, [*row, ttl_ms, is_passing], row)
        except NotAllowedError as error:  # who only sends to queues by their names needs no exchange
            log.debug("%s is not bound to %s: %s", row[2], exchange, error.reason)

    def unbind(self, exchange: str, row: Row) -> None:
        """Take that binding away, for all processes."""
        self.forget(exchange)
        self._take_away(exchange, row)

    def _take_away(self, exchange: str, row: Row) -> None:
        try:
            shown = self.client.show(queue=self._queue(exchange), key=_key(row))
        except RefusedError as error:
            if error.error not in (*NOT_THERE, ErrorWord.NOT_ALLOWED):
                raise
        else:
            self.client.confirm(shown.msg_id)

    def ttl_ms(self, queue: str) -> int | None:
        """How long the messages of a queue live that something known here is bound to; None: as long as they say."""
        found = (table.ttls_ms[queue] for table in self._tables.values() if queue in table.ttls_ms)
        return next(found, None)

    def forget(self, exchange: str) -> None:
        """Look at the node the next time."""
        self._tables.pop(exchange, None)
        self._own.pop(exchange, None)

    def table(self, exchange: str) -> Table:
        """Return what is bound to the exchange, by whichever process."""
        now = time.monotonic()
        table = self._tables.get(exchange)
        if table is not None and now < table.read_at + TABLE_S:
            return table
        table = self._tables[exchange] = Table(now, [], {}, set())
        for shown in self._shown(exchange):
            routing_key, pattern, queue, ttl_ms, is_passing = shown.data
            if is_passing:
                if self.counts(queue) is None:
                    self.client.confirm(shown.msg_id)
                    continue
                table.passing.add(queue)
            table.rows.append((routing_key, pattern, queue))
            if ttl_ms is not None:
                table.ttls_ms[queue] = ttl_ms
        return table

    def _shown(self, exchange: str) -> list[ShownMessage]:
        try:
            return self.client.peek(self._queue(exchange), BINDINGS_MAX)
        except NotAllowedError:
            return []
        except RefusedError as error:
            if error.error in NOT_THERE:
                return []
            raise


def _key(row: Row) -> str:
    return hashlib.blake2b(msgspec.json.encode(row), digest_size=16).hexdigest()
