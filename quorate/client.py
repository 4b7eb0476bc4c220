"""A client of a node or a cluster, over TCP. Any thread may use it; each request in progress has a connection.

A request that was certainly not done (no node leads, the node is stopping, it could not be reached) is tried again, on
another node if there are several, within its `timeout`. One whose outcome is unknown is tried again if that is safe:
everything that only looks, confirm, a produce that has a `key`, and consume: what was handed out to nobody comes again,
unless it was produced to be delivered at most once. Anything else raises `UnknownOutcomeError`.
"""

import copy
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from msgspec import UNSET, UnsetType

from quorate import calls
from quorate.after_fork import forget_after_fork
from quorate.asking import Asking
from quorate.calls import Ask
from quorate.checking import check_seconds, checked
from quorate.credentials import Credentials
from quorate.delivered import DeliveredMessage
from quorate.errors import QuorateError, RefusedError
from quorate.interrupt import Interrupt
from quorate.messages import (
    NEVER,
    RETRY_S,
    Key,
    Message,
    Moment,
    Moved,
    NewMessage,
    OnDuplicate,
    ShownMessage,
    fields_of,
    id_of,
)
from quorate.nodes import Address, Nodes
from quorate.payload import Encoder
from quorate.prefetched import Ahead
from quorate.protocol import BATCH_MAX, Action, ErrorWord
from quorate.queue_replies import QueueRow, QueueSettings
from quorate.replies import (
    ClusterMembers,
    JsonObject,
    LogRecords,
    NodeMetrics,
    NodeStatus,
    QueueCounts,
    RawLog,
    ReaderPosition,
)
from quorate.topic_calls import TopicCalls
from quorate.traced import Tracing, tracing_of
from quorate.turns import Turns
from quorate.urls import DEFAULT_PORT, found

T = TypeVar("T")

log = logging.getLogger("quorate")

LISTEN_S: Final = 25.0
"""`messages` asks anew after so long a wait."""

__all__ = ["DEFAULT_PORT", "Client", "DeliveredMessage", "Message", "NewMessage"]


class Client(TopicCalls):
    """Talks to the node on `host` and `port`, or to any of `nodes`: pairs or "host:port"; connects when first used.

    `host` may also be "host:port", or an URL: `quorate://[:token@]host[:port][,host:port...][?tls=1&ca=FILE]`. What is
    not given is taken from the environment: QUORATE_URL, or QUORATE_HOST and QUORATE_PORT.

    `timeout` is seconds for each request, beyond what a consume asks to wait. With several nodes a request is tried on
    one after the other within that time, as long as it can't be done twice by that, or may be. While none can be
    reached it is tried again for that long; without `retry_connect` it fails as soon as all of them were tried. Any
    number of threads may share a client; after a fork the child has connections of its own. `consumer` is what this
    client calls itself: deliveries note it. Where a cluster has several shards, the client learns after some requests
    where each of them is led, and asks there.

    `token` (or `QUORATE_TOKEN` in the environment) is what nodes with an access file know it by. With `tls` it speaks
    TLS alone, and believes certificates that name the host it dials: those of the authorities in the file `ca`, or of
    those that the system trusts. `cert` and `key` are files with a certificate of its own. `credentials`: all of these.
    `encoder` gives a value that msgspec can encode for data of a type that it can not, as msgspec's `enc_hook`.

    Every method raises `RefusedError` when the node refuses (`DuplicateKeyError`, `QueueFullError`, `NotAllowedError`,
    `TooLargeError`, `NotInFlightError`, `UnavailableError` where it is that), `ConnectionFailedError` when no node can
    be reached, `UnknownOutcomeError` when a request may have been done or not, `ProtocolViolationError` when what
    answers is no Quorate node; TypeError and ValueError for what can't be asked.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        nodes: Sequence[Address | str] | None = None,
        timeout: float = 10.0,
        consumer: str | None = None,
        token: str | None = None,
        tls: bool = False,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        credentials: Credentials | None = None,
        retry_connect: bool = True,
        tracing: bool = False,
        encoder: Encoder | None = None,
    ) -> None:
        given = credentials or Credentials.of(token, tls=tls, ca=ca, cert=cert, key=key)
        addresses, shown = found(host, port, nodes, given)
        timeout_s = check_seconds("timeout", timeout)
        self._asking = Asking(Nodes(addresses), shown, timeout_s, retry_connect=retry_connect)
        self._consumer = consumer
        self._encoder = encoder
        self._level = 0
        self._is_copy = False
        self.tracing: Tracing | None = tracing_of() if tracing else None
        self._kept: list[DeliveredMessage] = []
        self._lock = threading.Lock()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """In a child: what was taken is its parent's."""
        self._kept = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def within(self, timeout: float, *, retry_connect: bool = True) -> "Client":
        """Make a client with the same connections, whose requests have `timeout` (s) at most.

        Raises TypeError, ValueError for a time that is none.
        """
        limited = copy.copy(self)
        limited._asking = self._asking.within(check_seconds("timeout", timeout), retry_connect=retry_connect)
        limited._is_copy = True
        limited.after_fork()
        forget_after_fork(limited)
        return limited

    @property
    def address(self) -> Address:
        """The node that is asked now: its host and port."""
        return self._asking.address

    def close(self) -> None:
        """Close the connections. What is asked then raises `ConnectionFailedError`.

        A copy (`within`) closes those alone that are not in use.
        """
        if self._kept:
            log.warning(
                "%d messages that are delivered at most once were taken, and nobody has got them", len(self._kept)
            )
        if self._is_copy:
            self._asking.close_idle()
        else:
            self._asking.close()

    def close_idle(self) -> None:
        """Close the connections that are not in use; the next request opens one again."""
        self._asking.close_idle()

    # -- messages ----------------------------------------------------------------------------------------------

    def produce(
        self,
        queue: str,
        data: Any,
        *,
        delay: Moment | None = None,
        ttl: Moment | None = NEVER,
        retry: float | None = RETRY_S,
        priority: int | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        expire: str | None = None,
        keep: bool | None = None,
        max_ready: int | None = None,
        replicate: int | None = None,
        wait: float | None = None,
        scope: str | None = None,
        on_duplicate: OnDuplicate | None = None,
    ) -> int:
        """Put `data` into the queue; returns the message's id when it is on disk.

        `data`: bytes, or what JSON or msgspec can say (a dataclass, datetime, UUID...). `delay` and `ttl`: seconds from
        now, Unix seconds, a `timedelta`, or a `datetime` with a time zone. `retry`: seconds after which an unconfirmed
        delivery is repeated; 0: delivered at most once. Unless asked otherwise it is repeated after a minute and never
        expires; None leaves either to the queue's settings. A `key` that a live message of the queue has is refused;
        with `on_duplicate` "keep" that one's id is returned; with "replace" it is removed in the same step, also from a
        consumer that works on it. The id is a `Produced` then, which says whether it `is_duplicate`. With a `scope` of
        "all" the key is one among all such messages of the shard, and `Key(key)` names the message then. `headers` are
        kept beside the data: names and texts. `expire` of "drop": it goes when it expires, delivered or not; "bury": to
        its dead letter queue. `keep`, with a `retry` of 0: it stays when it is delivered, until it is confirmed or
        expires. `max_ready`: it is refused where so many are ready. `replicate`: on how many nodes' disks it is to be,
        instead of a majority's; not within `wait` seconds, it is refused, and removed (with "replace" it stays, and
        `UnknownOutcomeError` is raised).
        """
        options = {"delay": delay, "ttl": ttl, "retry": retry, "priority": priority, "key": key, "scope": scope}
        more = {**options, "expire": expire, "keep": keep}
        more |= {"max_ready": max_ready, "replicate": replicate, "wait": wait, "on_duplicate": on_duplicate}
        if self.tracing is None:
            return self._do(calls.produce(queue, data, headers, more, self._encoder))
        with self.tracing.sending(queue, headers) as carried:
            return self._do(calls.produce(queue, data, carried, more, self._encoder))

    def produce_many(self, queue: str, messages: Iterable[Any], **options: Any) -> list[int]:
        """Put up to 1000 messages into the queue at once: all, or none if one is refused or the node goes away.

        Each is data, or a `NewMessage` with options of its own. `options` as in `produce`, for all of them.
        """
        if self.tracing is None:
            return self._do(calls.produce_many(queue, messages, options, self._encoder))
        listed = list(messages)
        with self.tracing.sending(queue, options.get("headers"), len(listed)) as carried:
            listed = self.tracing.with_context(listed, carried)
            return self._do(calls.produce_many(queue, listed, {**options, "headers": carried}, self._encoder))

    def consume(
        self, queue: str | Sequence[str], *, wait: float = 0.0, interrupt: Interrupt | None = None
    ) -> DeliveredMessage | None:
        """Return the next message of the queue, or of the first of several that has one; None after `wait` seconds
        without.

        `interrupt` ends the wait early, from another thread: no message is lost by that.
        """
        if kept := self._take_kept(queue, 1):
            return kept[0]
        found = self._consumed(queue, None, wait, interrupt)
        return found[0] if found else None

    def consume_many(
        self,
        queue: str | Sequence[str],
        count: int,
        *,
        wait: float = 0.0,
        in_turn: bool = False,
        interrupt: Interrupt | None = None,
    ) -> list[DeliveredMessage]:
        """Up to `count` messages of one queue; `in_turn`: one of each queue, again and again (those of one shard)."""
        if kept := self._take_kept(queue, count):
            return kept
        return self._consumed(queue, count, wait, interrupt, in_turn=in_turn)

    def _consumed(
        self,
        queue: str | Sequence[str],
        count: int | None,
        wait: float,
        interrupt: Interrupt | None,
        *,
        in_turn: bool = False,
    ) -> list[DeliveredMessage]:
        asked = calls.consume(queue, count, wait, self._consumer, in_turn)
        if self.tracing is None:
            return [self._delivered(item) for item in self._do(asked, interrupt)]
        with self.tracing.receiving(queue) as received:
            messages = [self._delivered(item) for item in self._do(asked, interrupt)]
            received += messages
            return messages

    def _delivered(self, item: dict[str, Any]) -> DeliveredMessage:
        return DeliveredMessage(**fields_of(item), client=self)

    def _take_kept(self, queue: str | Sequence[str], count: int) -> list[DeliveredMessage]:
        """Return what `messages` had taken when it was left, and is delivered at most once."""
        if not self._kept:
            return []
        names = (queue,) if isinstance(queue, str) else queue
        with self._lock:
            found = [message for message in self._kept if message.queue in names][:count]
            self._kept = [message for message in self._kept if message not in found]
        return found

    def _not_handed_out(self, messages: Iterable[DeliveredMessage]) -> None:
        """They are released, or, delivered at most once, kept for the next consume of their queue."""
        left = list(messages)
        with self._lock:
            self._kept += [message for message in left if not message.retry]
        if lasting := [message for message in left if message.retry]:
            try:
                self.release(lasting)
            except QuorateError as error:  # what ended the loop is not to be replaced
                log.debug("%d messages come again when their leases end: %s", len(lasting), error)

    def messages(
        self, queues: str | Sequence[str], *, prefetch: int = 1, wait: float | None = None
    ) -> Iterator[DeliveredMessage]:
        """One message after the other, for as long as the loop goes on; of several queues in turn, so none starves.

        `prefetch`: how many are taken at once. While the caller goes on asking for the next, the leases of those that
        wait are extended; where it does not for two thirds of a lease, they are released, and so they are when the loop
        is left. `wait`: end after so many seconds without a message; None: never.
        """
        turns = Turns(queues)
        ahead = Ahead(self.extend, self._not_handed_out)
        idle_since = time.monotonic()
        try:
            while True:
                message = ahead.next()
                if message is None:
                    left_s = LISTEN_S if wait is None else min(LISTEN_S, idle_since + wait - time.monotonic())
                    if left_s <= 0:
                        return
                    taken = self.consume_many(turns.asked, prefetch, wait=left_s)
                    if taken:
                        turns.served(taken[0].queue)
                        ahead.fetched(taken)
                    continue
                yield message
                idle_since = time.monotonic()
        finally:
            ahead.close()

    def watch(self, queue: str | Sequence[str], *, wait: float = 0.0) -> str | None:
        """Return a queue of these that has a message, which is kept for this client for a second; None: none has."""
        return self._do(calls.watch(queue, wait))

    def confirm(self, message: "Message | int | Key | Iterable[Message | int]", *, held: bool = False) -> int:
        """Acknowledge one message or several; returns how many of them were there to be confirmed.

        A message that has been handed out to somebody else since is not: its lease was over. When the answer was lost
        and the request repeated, messages that are gone count where their leases still run: the first try had confirmed
        them. Where these may be over `UnknownOutcomeError` is raised: it may have been somebody else. `held`: of those
        that are in flight alone; `NotInFlightError` where none is, whose reply has the `state` and `deliveries` of the
        first.
        """
        return self._settle("confirm", message, calls.confirm(message, held))

    def release(
        self, message: "Message | int | Key | Iterable[Message | int]", *, delay: float = 0.0, nack: bool | None = None
    ) -> int:
        """Give messages in flight back, due after `delay` seconds; returns how many were. None at all: it raises.

        Of ids, those of delayed messages are due then, too: that ends a delay. A message counts how often it was given
        back (`nacks`), unless `nack` is False.
        """
        return self._settle("release", message, calls.release(message, delay, nack))

    def withhold(self, message: "Message | int | Key | Iterable[Message | int]", delay: float | None = None) -> int:
        """Let ready messages wait for `delay` seconds, or their retry time; returns how many were ready.

        One that is kept though it is delivered at most once does not come again.
        """
        return self._settle("withhold", message, calls.withhold(message, delay))

    def extend(self, message: "Message | int | Key | Iterable[Message | int]", retry: float) -> int:
        """Keep messages in flight for `retry` seconds from now, also beyond their expiry; returns how many were."""
        return self._settle("extend", message, calls.extend(message, retry))

    def bury(self, message: "Message | int | Key | Iterable[Message | int]", reason: str | None = None) -> int:
        """Move messages in flight to their dead letter queue; returns how many were. Without one it raises."""
        return self._settle("bury", message, calls.bury(message, reason))

    def move(
        self,
        queue: str,
        to: str | None = None,
        *,
        messages: "Message | int | Iterable[Message | int] | None" = None,
        count: int | None = None,
        create: bool = False,
    ) -> Moved:
        """Move messages that nobody has in hand to another queue: `messages`, the first `count` (1000 at most), or all.

        `to` None: each dead letter to the queue that it comes from. They are undelivered there, and keep their keys and
        headers. What can't be there (its key is taken, the queue is full, or not there without `create`) stays.
        """
        if messages is not None or count is not None:
            return self._do(calls.move(queue, to, messages, count, create))
        moved = self._do(calls.move(queue, to, None, BATCH_MAX, create))
        while moved.next is not None:
            moved = moved.and_then(self._do(calls.move(queue, to, None, BATCH_MAX, create, moved.next)))
        return moved

    def _settle(self, name: str, messages: Any, ask: Ask[int]) -> int:
        if self.tracing is None:
            return self._do(ask)
        with self.tracing.settling(name, messages):
            return self._do(ask)

    def peek(self, queue: str, count: int = 1) -> list[ShownMessage]:
        """Return the next messages, undelivered and unchanged."""
        return self._do(calls.peek(queue, count))

    def browse(self, queue: str, state: str) -> Iterator[ShownMessage]:
        """All messages of the queue that are `ready`, `delayed` or `in_flight`, in the order of their times, unchanged.

        They come page by page: what comes or goes meanwhile may be there or not.
        """
        after: str | None = None
        while True:
            messages, after = self._do(calls.page(queue, state, after))
            yield from messages
            if after is None:
                return

    def show(
        self, msg_id: Message | int | None = None, *, queue: str | None = None, key: str | None = None
    ) -> ShownMessage:
        """Return a live message with its state and times, by its id, by its queue and key, or by a key of the scope
        "all". Raises `RefusedError` (`no_such_message`) where there is none.
        """
        return self._do(calls.show(msg_id, queue, key))

    def result(
        self, queue: str, key: str, *, wait: float = 0.0, unless: Message | int | None = None
    ) -> ShownMessage | None:
        """Return the message of the queue that has the key, as soon as there is one, within `wait` seconds; else None.

        `unless`: the id of a message that counts as none, so that the next one is waited for.
        """
        try:
            return self._do(calls.show(None, queue, key, wait, None if unless is None else id_of(unless)))
        except RefusedError as refused:
            if refused.error == ErrorWord.NO_SUCH_MESSAGE:
                return None
            raise

    # -- queues and the node -----------------------------------------------------------------------------------

    def queues(self, pattern: str | None = None) -> list[str]:
        """Return the names of all queues; `pattern` has shell wildcards, or is a part of the name."""
        return [row.name for row in self.queue_rows(pattern)]

    def queue_rows(
        self,
        pattern: str | None = None,
        *,
        full: bool = False,
        sort: str | None = None,
        descending: bool = False,
        system: bool = False,
    ) -> Iterator[QueueRow]:
        """Each queue's name and counts, in the order of their names or of `sort`, however many there are.

        `full`: with `oldest`, `dead_letter`, `dead_letters` and `totals`, as docs/protocol.md says. It also says what
        `sort` may be: `ready`, `oldest`, `produced`... What changes its place meanwhile may come twice, or not at all.

        Raises `RefusedError` behind the last of them when a shard could not be asked, so that some may be missing.
        """
        asked = calls.rows_asked(pattern, sort, full=full, descending=descending, system=system)
        after: str | None = None
        missing: set[int] = set()
        while True:
            reply = self.request(Action.LIST, after=after, **asked)
            yield from calls.rows_in(reply)
            missing |= set(reply.get("missing_shards", ()))
            after = reply.get("next")
            if after is None:
                break
        if missing:
            raise calls.rows_missing(missing, reply)

    def monitor(self, queue: str) -> QueueCounts:
        """Return a queue's counts."""
        return cast("QueueCounts", self.request(Action.MONITOR, queue=queue))

    def settings(self, queue: str) -> QueueSettings:
        """Return the queue's settings, looked at without changing or making anything."""
        return self._do(calls.settings(queue))

    def configure(
        self,
        queue: str,
        *,
        max_size: int | None = None,
        default_ttl: float | None = None,
        default_retry: float | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | UnsetType | None = UNSET,
        paused: bool | str | None = None,
        expires_after: float | None = None,
        system: bool | None = None,
    ) -> QueueSettings:
        """Change those of the queue's settings that are given, make it if it is not there; returns all of them.

        `max_size`: so many messages at most (0: any). `default_ttl`, `default_retry`: of messages that name none (s).
        `max_deliveries`: after so many a message is dead (0: any). `dead_letter`: where it goes then; "" or None: it is
        dropped. `paused`: True or "out": nothing is given out; "in": nothing comes in; "all", "none". `expires_after`:
        unused for so long the queue goes (s; 0: never). `system`: lists leave it out unless asked.
        """
        changes: dict[str, Any] = {"max_size": max_size, "default_ttl": default_ttl, "default_retry": default_retry}
        changes |= {"max_deliveries": max_deliveries, "paused": paused, "expires_after": expires_after}
        changes |= {"system": system, "dead_letter": dead_letter}
        return self._do(calls.configure(queue, changes))

    def clear(self, queue: str) -> int:
        """Remove all messages of the queue; returns how many."""
        return self._do(calls.count_of(Action.CLEAR, queue))

    def remove(self, queue: str) -> int:
        """Remove the queue and all in it; returns how many messages that were."""
        return self._do(calls.count_of(Action.REMOVE, queue))

    def log(self, after: int = 0, count: int = 100, shard: int = 0) -> LogRecords:
        """Return records of the change log behind trans_id `after`."""
        return cast("LogRecords", self.request(Action.LOG, after=after, count=count, shard=shard))

    def raw_log(self, after: int = 0, shard: int = 0, count: int | None = None) -> RawLog:
        """Return the change log's entries as they are stored, up to 4 MiB of them: those that hold the records behind
        `after`.

        The reply's `entries` are bytes: each entry behind its length (4 bytes, big-endian); `last_trans_id` is to be
        the next call's `after`. `count`: no more entries than hold so many records, but one.
        """
        return cast("RawLog", self.request(Action.LOG, after=after, shard=shard, count=count, raw=True))

    # -- the log's readers -------------------------------------------------------------------------------------

    def set_position(self, reader: str, trans_id: int, shard: int = 0) -> None:
        """Note in the log that `reader` has all records up to `trans_id`: those behind it are kept for it."""
        self.request(Action.POSITION, reader=reader, trans_id=trans_id, shard=shard)

    def position(self, reader: str, shard: int = 0) -> int | None:
        """Up to which record `reader` has all; None if there is no such reader."""
        try:
            return int(self.request(Action.POSITION, reader=reader, shard=shard)["trans_id"])
        except RefusedError as refused:
            if refused.error == ErrorWord.NO_SUCH_READER:
                return None
            raise

    def readers(self, shard: int = 0) -> list[ReaderPosition]:
        """All readers with their positions, and how far they are behind."""
        return list(self.request(Action.POSITION, shard=shard)["readers"])

    def forget_reader(self, reader: str, shard: int = 0) -> None:
        """Keep nothing for `reader` any more."""
        self.request(Action.POSITION, reader=reader, command="forget", shard=shard)

    def status(self) -> NodeStatus:
        """Return the node and its shards."""
        return cast("NodeStatus", self.request(Action.NODE_STATUS))

    def metrics(self) -> NodeMetrics:
        """Return the node's numbers: see `metrics` in docs/protocol.md."""
        return cast("NodeMetrics", self.request(Action.NODE_METRICS))

    def cluster(self) -> ClusterMembers:
        """Return the cluster's members and who leads."""
        return cast("ClusterMembers", self.request(Action.CLUSTER, command="status"))

    # -- the wire ----------------------------------------------------------------------------------------------

    def request(self, action: int, **fields: Any) -> JsonObject:
        """Send any request and return the reply as it came. Fields of None are left out, but for `data`.

        Raises TypeError, ValueError for what can't be asked. The reply has `was_repeated` if an earlier try may have
        been done.
        """
        return self._asking.request(int(action), checked(fields))

    def _do(self, ask: Ask[T], interrupt: Interrupt | None = None) -> T:
        if ask.fields is None:
            return ask.read({})
        if ask.level > self._level:
            leader = self._asking.request(int(Action.LEADER), {"queue": ask.fields["queue"]})
            self._level = calls.known_level(leader, ask.level)
        return ask.read(self._asking.request(int(ask.action), checked(ask.fields), interrupt))
