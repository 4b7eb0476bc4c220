"""The async client: the methods of `Client`, for one asyncio loop. Many requests are under way at once.

Requests of one turn of the loop leave in one write. What waits and what has a long reply goes over connections of its
own. A request whose task is cancelled is left to end; a consume is taken back, and a message that comes all the same is
released at once, or, delivered at most once, goes to the next consume of its queue.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from msgspec import UNSET, UnsetType

from quorate import calls
from quorate.async_asking import AsyncAsking
from quorate.async_connection import Reply
from quorate.async_topic_calls import AsyncTopicCalls
from quorate.calls import Ask
from quorate.checking import check_seconds, checked
from quorate.credentials import Credentials
from quorate.errors import NotInFlightError, QuorateError, RefusedError
from quorate.messages import (
    NEVER,
    RETRY_S,
    Key,
    Message,
    Moment,
    Moved,
    OnDuplicate,
    ShownMessage,
    fields_of,
    id_of,
    items_of,
)
from quorate.nodes import Address, Nodes
from quorate.payload import Encoder
from quorate.prefetched import Prefetched
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
from quorate.traced import Tracing, tracing_of
from quorate.turns import Turns
from quorate.urls import found

T = TypeVar("T")

log = logging.getLogger("quorate")

MAX_IN_FLIGHT: Final = 64
LISTEN_S: Final = 25.0
"""`messages` asks anew after so long a wait."""


@dataclass(frozen=True)
class AsyncMessage(Message):
    """A `Message` of which `client` can say what became of it.

    As an async context manager it is confirmed when the block ends, and released when the block raises or is cancelled,
    or has tried to say something else of it and failed. What the block has settled itself is left alone.
    """

    client: "AsyncClient" = field(kw_only=True, repr=False, compare=False)
    _said: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)
    """Whether a node has taken what was said of it; empty: nothing was said."""

    _spans: list[AbstractContextManager[None]] = field(default_factory=list, init=False, repr=False, compare=False)

    async def __aenter__(self) -> Self:
        if self.client.tracing is not None:
            self._spans.append(self.client.tracing.processing(self))
            self._spans[-1].__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._spans:
            with suppress(BaseException):  # it raises what it was given
                self._spans.pop().__exit__(kind, error, traceback)
        if self.is_settled or not self.retry:
            return
        if kind is None and not self._said:
            await self.confirm()
            return
        self._said.append(True)
        released = self.client.give_back([self])
        if not isinstance(error, asyncio.CancelledError):  # that one is not to be held up
            await asyncio.shield(released)

    @property
    def is_settled(self) -> bool:
        """Whether a node has been told what becomes of it."""
        return True in self._said

    @property
    def is_unsettled(self) -> bool:
        """Whether it was to be told, and that failed."""
        return bool(self._said) and True not in self._said

    async def confirm(self) -> bool:
        """Confirm that it is done; False: it was not this one's any more."""
        self._said.append(False)
        confirmed = await self.client.confirm(self)
        self._said.append(True)
        return confirmed > 0

    async def release(self, *, delay: float = 0.0) -> None:
        """Give it back, due after `delay` seconds."""
        self._said.append(False)
        await self.client.release(self, delay=delay)
        self._said.append(True)

    async def extend(self, retry: float | None = None) -> None:
        """Keep it for `retry` seconds from now; None: as long as a lease of it lasts."""
        await self.client.extend(self, self.retry if retry is None else retry)

    async def bury(self, reason: str | None = None) -> None:
        """Move it to the dead letter queue of its queue."""
        self._said.append(False)
        await self.client.bury(self, reason)
        self._said.append(True)


class AsyncClient(AsyncTopicCalls):
    """As `Client`, for the asyncio loop and the process in which it is first used; others are refused.

    `max_in_flight` requests may be under way at once, besides those that wait; more are held here until one is
    answered. `close`, or leaving `async with`, ends it: messages that were taken for tasks that were cancelled and
    could not be given back, since they are delivered at most once, are what `close` returns.
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
        max_in_flight: int = MAX_IN_FLIGHT,
        tracing: bool = False,
        encoder: Encoder | None = None,
    ) -> None:
        if isinstance(max_in_flight, bool) or not isinstance(max_in_flight, int) or not 0 < max_in_flight <= 100:
            raise ValueError(f"max_in_flight is {max_in_flight!r}: from 1 to 100, a node takes 128 of a connection")
        given = credentials or Credentials.of(token, tls=tls, ca=ca, cert=cert, key=key)
        addresses, shown = found(host, port, nodes, given)
        timeout_s = check_seconds("timeout", timeout)
        self._asking = AsyncAsking(
            Nodes(addresses),
            shown,
            self._orphaned,
            timeout_s=timeout_s,
            retry_connect=retry_connect,
            in_flight_max=max_in_flight,
        )
        self._consumer = consumer
        self._encoder = encoder
        self._level = 0
        self.tracing: Tracing | None = tracing_of() if tracing else None
        self._kept: dict[str, deque[AsyncMessage]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> list[AsyncMessage]:
        """Close the connections; returns messages that nobody has got, and which no node has any more.

        What is given back at the moment is waited for.
        """
        await self._asking.close()
        left = [message for kept in self._kept.values() for message in kept]
        self._kept.clear()
        if left:
            log.warning("%d messages that are delivered at most once were taken, and nobody has got them", len(left))
        return left

    # -- messages ----------------------------------------------------------------------------------------------

    async def produce(
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
        """As `Client.produce`. One whose task is cancelled is left to end: it may be done or not."""
        options = {"delay": delay, "ttl": ttl, "retry": retry, "priority": priority, "key": key, "scope": scope}
        more = {**options, "expire": expire, "keep": keep}
        more |= {"max_ready": max_ready, "replicate": replicate, "wait": wait, "on_duplicate": on_duplicate}
        if self.tracing is None:
            return await self._do(calls.produce(queue, data, headers, more, self._encoder))
        with self.tracing.sending(queue, headers) as carried:
            return await self._do(calls.produce(queue, data, carried, more, self._encoder))

    async def produce_many(self, queue: str, messages: Iterable[Any], **options: Any) -> list[int]:
        """As `Client.produce_many`."""
        if self.tracing is None:
            return await self._do(calls.produce_many(queue, messages, options, self._encoder))
        listed = list(messages)
        with self.tracing.sending(queue, options.get("headers"), len(listed)) as carried:
            listed = self.tracing.with_context(listed, carried)
            return await self._do(calls.produce_many(queue, listed, {**options, "headers": carried}, self._encoder))

    async def consume(self, queue: str | Sequence[str], *, wait: float = 0.0) -> AsyncMessage | None:
        """As `Client.consume`. When its task is cancelled, the node is told, and no message is lost by that."""
        kept = self._take_kept(queue, 1)
        if kept:
            return kept[0]
        found = await self._consumed(queue, None, wait)
        return found[0] if found else None

    async def consume_many(
        self, queue: str | Sequence[str], count: int, *, wait: float = 0.0, in_turn: bool = False
    ) -> list[AsyncMessage]:
        """As `Client.consume_many`."""
        kept = self._take_kept(queue, count)
        if kept:
            return kept
        return await self._consumed(queue, count, wait, in_turn=in_turn)

    async def _consumed(
        self, queue: str | Sequence[str], count: int | None, wait: float, *, in_turn: bool = False
    ) -> list[AsyncMessage]:
        asked = calls.consume(queue, count, wait, self._consumer, in_turn)
        if self.tracing is None:
            return [self._delivered(item) for item in await self._do(asked)]
        with self.tracing.receiving(queue) as received:
            messages = [self._delivered(item) for item in await self._do(asked)]
            received += messages
            return messages

    def _delivered(self, item: dict[str, Any]) -> AsyncMessage:
        return AsyncMessage(**fields_of(item), client=self)

    def _take_kept(self, queue: str | Sequence[str], count: int) -> list[AsyncMessage]:
        """Return what was taken for a consume that was cancelled, and is delivered at most once."""
        if not self._kept:
            return []
        for name in [queue] if isinstance(queue, str) else queue:
            kept = self._kept.get(name)
            if kept:
                found = [kept.popleft() for _ in range(min(count, len(kept)))]
                if not kept:
                    del self._kept[name]
                return found
        return []

    async def messages(
        self, queues: str | Sequence[str], *, prefetch: int = 1, wait: float | None = None
    ) -> AsyncIterator[AsyncMessage]:
        """As `Client.messages`: one after the other, of several queues in turn. Leave it by `aclose` or its task."""
        turns = Turns(queues)
        ahead: Prefetched[AsyncMessage] = Prefetched()
        loop = asyncio.get_running_loop()
        giving_back: asyncio.TimerHandle | None = None
        idle_since = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                if late := ahead.to_extend(now):
                    if now < ahead.back_at and await self._have_extended(late):
                        ahead.extended(now)
                    else:
                        self._not_handed_out(ahead.give_back())
                if not len(ahead):
                    left_s = LISTEN_S if wait is None else min(LISTEN_S, idle_since + wait - now)
                    if left_s <= 0:
                        return
                    taken = await self.consume_many(turns.asked, prefetch, wait=left_s)
                    if taken:
                        turns.served(taken[0].queue)
                        ahead.fetched(taken, time.monotonic())
                    continue
                message = ahead.next()
                if ahead.back_at < math.inf:
                    giving_back = loop.call_later(
                        ahead.back_at - time.monotonic(), lambda: self._not_handed_out(ahead.give_back())
                    )
                yield message
                if giving_back is not None:
                    giving_back.cancel()
                idle_since = time.monotonic()
        finally:
            if giving_back is not None:
                giving_back.cancel()
            self._not_handed_out(ahead.left())

    async def _have_extended(self, late: dict[float, list[AsyncMessage]]) -> bool:
        """Whether all of them are this client's still, and for longer."""
        try:
            for lease_s, messages in late.items():
                if await self.extend(messages, lease_s) < len(messages):
                    return False
        except QuorateError as error:
            log.debug("what was fetched ahead is let go: %s", error)
            return False
        return True

    async def watch(self, queue: str | Sequence[str], *, wait: float = 0.0) -> str | None:
        """As `Client.watch`."""
        return await self._do(calls.watch(queue, wait))

    async def confirm(self, message: "Message | int | Key | Iterable[Message | int]", *, held: bool = False) -> int:
        """As `Client.confirm`."""
        return await self._settle("confirm", message, calls.confirm(message, held))

    async def release(
        self, message: "Message | int | Key | Iterable[Message | int]", *, delay: float = 0.0, nack: bool | None = None
    ) -> int:
        """As `Client.release`."""
        return await self._settle("release", message, calls.release(message, delay, nack))

    async def withhold(
        self, message: "Message | int | Key | Iterable[Message | int]", delay: float | None = None
    ) -> int:
        """As `Client.withhold`."""
        return await self._settle("withhold", message, calls.withhold(message, delay))

    async def extend(self, message: "Message | int | Key | Iterable[Message | int]", retry: float) -> int:
        """As `Client.extend`."""
        return await self._settle("extend", message, calls.extend(message, retry))

    async def bury(self, message: "Message | int | Key | Iterable[Message | int]", reason: str | None = None) -> int:
        """As `Client.bury`."""
        return await self._settle("bury", message, calls.bury(message, reason))

    async def move(
        self,
        queue: str,
        to: str | None = None,
        *,
        messages: "Message | int | Iterable[Message | int] | None" = None,
        count: int | None = None,
        create: bool = False,
    ) -> Moved:
        """As `Client.move`."""
        if messages is not None or count is not None:
            return await self._do(calls.move(queue, to, messages, count, create))
        moved = await self._do(calls.move(queue, to, None, BATCH_MAX, create))
        while moved.next is not None:
            moved = moved.and_then(await self._do(calls.move(queue, to, None, BATCH_MAX, create, moved.next)))
        return moved

    async def _settle(self, name: str, messages: Any, ask: Ask[int]) -> int:
        if self.tracing is None:
            return await self._do(ask)
        with self.tracing.settling(name, messages):
            return await self._do(ask)

    async def peek(self, queue: str, count: int = 1) -> list[ShownMessage]:
        """As `Client.peek`."""
        return await self._do(calls.peek(queue, count))

    async def browse(self, queue: str, state: str) -> AsyncIterator[ShownMessage]:
        """As `Client.browse`."""
        after: str | None = None
        while True:
            messages, after = await self._do(calls.page(queue, state, after))
            for message in messages:
                yield message
            if after is None:
                return

    async def show(
        self, msg_id: Message | int | None = None, *, queue: str | None = None, key: str | None = None
    ) -> ShownMessage:
        """As `Client.show`."""
        return await self._do(calls.show(msg_id, queue, key))

    async def result(
        self, queue: str, key: str, *, wait: float = 0.0, unless: Message | int | None = None
    ) -> ShownMessage | None:
        """As `Client.result`."""
        try:
            return await self._do(calls.show(None, queue, key, wait, None if unless is None else id_of(unless)))
        except RefusedError as refused:
            if refused.error == ErrorWord.NO_SUCH_MESSAGE:
                return None
            raise

    # -- queues and the node -----------------------------------------------------------------------------------

    async def queues(self, pattern: str | None = None) -> list[str]:
        """As `Client.queues`."""
        return [row.name async for row in self.queue_rows(pattern)]

    async def queue_rows(
        self,
        pattern: str | None = None,
        *,
        full: bool = False,
        sort: str | None = None,
        descending: bool = False,
        system: bool = False,
    ) -> AsyncIterator[QueueRow]:
        """As `Client.queue_rows`."""
        asked = calls.rows_asked(pattern, sort, full=full, descending=descending, system=system)
        after: str | None = None
        missing: set[int] = set()
        while True:
            reply = await self.request(Action.LIST, after=after, **asked)
            for row in calls.rows_in(reply):
                yield row
            missing |= set(reply.get("missing_shards", ()))
            after = reply.get("next")
            if after is None:
                break
        if missing:
            raise calls.rows_missing(missing, reply)

    async def monitor(self, queue: str) -> QueueCounts:
        """As `Client.monitor`."""
        return cast("QueueCounts", await self.request(Action.MONITOR, queue=queue))

    async def settings(self, queue: str) -> QueueSettings:
        """As `Client.settings`."""
        return await self._do(calls.settings(queue))

    async def configure(
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
        """As `Client.configure`."""
        changes: dict[str, Any] = {"max_size": max_size, "default_ttl": default_ttl, "default_retry": default_retry}
        changes |= {"max_deliveries": max_deliveries, "paused": paused, "expires_after": expires_after}
        changes |= {"system": system, "dead_letter": dead_letter}
        return await self._do(calls.configure(queue, changes))

    async def clear(self, queue: str) -> int:
        """As `Client.clear`."""
        return await self._do(calls.count_of(Action.CLEAR, queue))

    async def remove(self, queue: str) -> int:
        """As `Client.remove`."""
        return await self._do(calls.count_of(Action.REMOVE, queue))

    async def log(self, after: int = 0, count: int = 100, shard: int = 0) -> LogRecords:
        """As `Client.log`."""
        return cast("LogRecords", await self.request(Action.LOG, after=after, count=count, shard=shard))

    async def raw_log(self, after: int = 0, shard: int = 0, count: int | None = None) -> RawLog:
        """As `Client.raw_log`."""
        return cast("RawLog", await self.request(Action.LOG, after=after, shard=shard, count=count, raw=True))

    async def set_position(self, reader: str, trans_id: int, shard: int = 0) -> None:
        """As `Client.set_position`."""
        await self.request(Action.POSITION, reader=reader, trans_id=trans_id, shard=shard)

    async def position(self, reader: str, shard: int = 0) -> int | None:
        """As `Client.position`."""
        try:
            return int((await self.request(Action.POSITION, reader=reader, shard=shard))["trans_id"])
        except RefusedError as refused:
            if refused.error == ErrorWord.NO_SUCH_READER:
                return None
            raise

    async def readers(self, shard: int = 0) -> list[ReaderPosition]:
        """As `Client.readers`."""
        return list((await self.request(Action.POSITION, shard=shard))["readers"])

    async def forget_reader(self, reader: str, shard: int = 0) -> None:
        """As `Client.forget_reader`."""
        await self.request(Action.POSITION, reader=reader, command="forget", shard=shard)

    async def status(self) -> NodeStatus:
        """As `Client.status`."""
        return cast("NodeStatus", await self.request(Action.NODE_STATUS))

    async def metrics(self) -> NodeMetrics:
        """As `Client.metrics`."""
        return cast("NodeMetrics", await self.request(Action.NODE_METRICS))

    async def cluster(self) -> ClusterMembers:
        """As `Client.cluster`."""
        return cast("ClusterMembers", await self.request(Action.CLUSTER, command="status"))

    # -- the wire ----------------------------------------------------------------------------------------------

    async def request(self, action: int, **fields: Any) -> JsonObject:
        """As `Client.request`."""
        return await self._asking.request(int(action), checked(fields))

    async def _do(self, ask: Ask[T]) -> T:
        if ask.fields is None:
            return ask.read({})
        if ask.level > self._level:
            leader = await self._asking.request(int(Action.LEADER), {"queue": ask.fields["queue"]})
            self._level = calls.known_level(leader, ask.level)
        return ask.read(await self.request(ask.action, **ask.fields))

    def _orphaned(self, reply: Reply) -> None:
        """Give back what a consume's reply brings, which nobody waits for any more."""
        if reply.get("code") == 0:
            self._not_handed_out([self._delivered(item) for item in items_of(reply)])

    def _not_handed_out(self, messages: Iterable[AsyncMessage]) -> None:
        """They go back, or, delivered at most once, wait for the next consume of their queue."""
        messages = list(messages)
        for message in messages:
            if not message.retry:
                self._kept.setdefault(message.queue, deque()).append(message)
        if lasting := [message for message in messages if message.retry]:
            self.give_back(lasting)

    def give_back(self, messages: Sequence[AsyncMessage]) -> "asyncio.Task[None]":
        """Release them soon; `close` waits for that. Where it fails they come when their leases end."""
        return self._asking.spawn(self._released(messages))

    async def _released(self, messages: Sequence[AsyncMessage]) -> None:
        ask = calls.release(messages, 0.0)
        try:
            await self._asking.request(int(ask.action), checked(ask.fields or {}), is_last=True)
        except NotInFlightError:
            pass  # their leases were over, or somebody else has them
        except QuorateError as error:
            log.warning("%d messages come again when their leases end, not at once: %s", len(messages), error)
