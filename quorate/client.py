"""A client of a node or a cluster, over TCP. Any thread may use it; each request in progress has a connection.

A request that was certainly not done (no node leads, the node is stopping, it could not be reached) is tried again, on
another node if there are several, within its `timeout`. One whose outcome is unknown is tried again if that is safe:
everything that only looks, confirm, a produce that has a `key`, and consume: what was handed out to nobody comes again,
unless it was produced to be delivered at most once. Anything else raises `UnknownOutcomeError`.
"""

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from quorate.actions import REPEATABLE
from quorate.connection import Address, Connection, Lost
from quorate.errors import ConnectionFailedError, QuorateError, RefusedError, UnknownOutcomeError
from quorate.payload import from_wire, to_wire
from quorate.protocol import BATCH_MAX, Action, ErrorWord

PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 0.2
"""Between two tries of a request."""

IDLE_MAX: Final = 16
"""Connections that are kept open for the next requests."""

DEFAULT_PORT: Final = 1111


@dataclass(frozen=True)
class Message:
    """A delivered message: `data` as it was produced, `deliveries` how often it was handed out, this time included."""

    msg_id: int
    queue: str
    data: Any
    deliveries: int


@dataclass(frozen=True)
class NewMessage:
    """One of the messages of `produce_many` with options of its own; times as in `produce`."""

    data: Any
    delay: float | None = None
    ttl: float | None = None
    retry: float | None = None
    priority: int | None = None
    key: str | None = None


class Client:
    """Talks to the node on `host` and `port`, or to any of `nodes`: pairs or "host:port"; connects when first used.

    `timeout` is seconds for each request, beyond what a consume asks to wait. With several nodes a request is tried on
    one after the other within that time, as long as it can't be done twice by that, or may be. `consumer` is what this
    client calls itself: deliveries note it.

    Every method raises `RefusedError` when the node refuses, `ConnectionFailedError` when no node can be reached,
    `UnknownOutcomeError` when a request may have been done or not, `ProtocolViolationError` when what answers is no
    Quorate node; TypeError and ValueError for what can't be asked.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        *,
        nodes: Sequence[Address | str] | None = None,
        timeout: float = 10.0,
        consumer: str | None = None,
    ) -> None:
        if nodes is not None and not nodes:
            raise ValueError("nodes is empty: at least one is wanted")
        self._nodes = [(host, port)] if nodes is None else [_address(node) for node in nodes]
        self._address = self._nodes[0]
        self._timeout = timeout
        self._consumer = consumer
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens one again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # -- messages ----------------------------------------------------------------------------------------------

    def produce(
        self,
        queue: str,
        data: Any,
        *,
        delay: float | None = None,
        ttl: float | None = None,
        retry: float | None = None,
        priority: int | None = None,
        key: str | None = None,
        replicate: int | None = None,
    ) -> int:
        """Put `data` (anything that JSON holds, or bytes) into the queue; returns the message's id when it is on disk.

        `delay` and `ttl`: seconds from now, or Unix seconds. `retry`: seconds after which an unconfirmed delivery is
        repeated; 0, the default: delivered at most once. A `key` that a live message of the queue has is refused.
        `replicate`: on how many nodes' disks it is to be, instead of a majority's.
        """
        reply = self.request(
            Action.PRODUCE,
            queue=queue,
            **to_wire(data),
            delay=delay,
            ttl=ttl,
            retry=retry,
            priority=priority,
            key=key,
            replicate=replicate,
        )
        ids = reply.get("msg_ids")
        return int(ids[0] if ids else reply["msg_id"])

    def produce_many(self, queue: str, messages: Sequence[Any], **options: Any) -> list[int]:
        """Put up to 1000 messages into the queue at once: all, or none if one is refused or the node goes away.

        Each is data, or a `NewMessage` with options of its own. `options` as in `produce`, for all of them.
        """
        if not 0 < len(messages) <= BATCH_MAX:
            raise ValueError(f"{len(messages)} messages: from 1 to {BATCH_MAX} go into a queue at once")
        items = [_item(message) for message in messages]
        return list(self.request(Action.PRODUCE, queue=queue, messages=items, **options)["msg_ids"])

    def consume(self, queue: str | Sequence[str], *, wait: float = 0.0) -> Message | None:
        """The next message of the queue, or of the first of several that has one; None after `wait` seconds without."""
        reply = self.request(Action.CONSUME, **_queues(queue), wait=wait or None, consumer=self._consumer)
        return _message(reply) if "msg_id" in reply else None

    def consume_many(self, queue: str | Sequence[str], count: int, *, wait: float = 0.0) -> list[Message]:
        """Up to `count` messages of one queue."""
        named = _queues(queue)
        reply = self.request(Action.CONSUME, **named, count=count, wait=wait or None, consumer=self._consumer)
        return [_message(item) for item in reply.get("messages", ())]

    def confirm(self, message: "Message | int | Iterable[Message | int]") -> int:
        """Acknowledge one message or several; returns how many of them were there to be confirmed.

        When the answer was lost and the request repeated, those that are gone count: the first try had confirmed them.
        """
        if isinstance(message, Message | int):
            named: dict[str, Any] = {"msg_id": _id(message)}
            asked = 1
        else:
            ids = [_id(one) for one in message]
            if not ids:
                return 0
            named, asked = {"msg_ids": ids}, len(set(ids))
        reply = self.request(Action.CONFIRM, **named)
        return asked if reply.get("was_repeated") else int(reply["confirmed"])

    def release(self, message: "Message | int", *, delay: float = 0.0) -> None:
        """Give a message in flight back, due after `delay` seconds."""
        self.request(Action.RELEASE, msg_id=_id(message), delay=delay or None)

    def extend(self, message: "Message | int", retry: float) -> None:
        """Keep a message in flight for `retry` seconds from now."""
        self.request(Action.EXTEND, msg_id=_id(message), retry=retry)

    def peek(self, queue: str, count: int = 1) -> list[dict[str, Any]]:
        """The next messages, undelivered and unchanged."""
        return [_shown(item) for item in self.request(Action.PEEK, queue=queue, count=count)["messages"]]

    def show(self, msg_id: int | None = None, *, queue: str | None = None, key: str | None = None) -> dict[str, Any]:
        """A live message with its state and times, by its id, or by its queue and key."""
        return _shown(self.request(Action.SHOW, msg_id=msg_id, queue=queue, key=key)["message"])

    # -- queues and the node -----------------------------------------------------------------------------------

    def queues(self, pattern: str | None = None) -> list[str]:
        """The names of all queues; `pattern` has shell wildcards, or is a part of the name."""
        return [row["name"] for row in self.queue_rows(pattern)]

    def queue_rows(self, pattern: str | None = None) -> Iterator[dict[str, Any]]:
        """Each queue's name and counts, in the order of their names, however many there are."""
        after: str | None = None
        while True:
            reply = self.request(Action.LIST, pattern=pattern, after=after)
            yield from reply["queue_list"]
            after = reply.get("next")
            if after is None:
                return

    def monitor(self, queue: str) -> dict[str, Any]:
        """A queue's counts."""
        return self.request(Action.MONITOR, queue=queue)

    def configure(self, queue: str, **settings: Any) -> dict[str, Any]:
        """Change the queue's settings (docs/protocol.md names them); returns all of them."""
        return self.request(Action.CONFIGURE, queue=queue, **settings)

    def clear(self, queue: str) -> int:
        """Remove all messages of the queue; returns how many."""
        return int(self.request(Action.CLEAR, queue=queue)["count"])

    def remove(self, queue: str) -> int:
        """Remove the queue and all in it; returns how many messages that were."""
        return int(self.request(Action.REMOVE, queue=queue)["count"])

    def log(self, after: int = 0, count: int = 100, shard: int = 0) -> dict[str, Any]:
        """Records of the change log behind trans_id `after`."""
        return self.request(Action.LOG, after=after, count=count, shard=shard)

    def status(self) -> dict[str, Any]:
        """The node and its shards."""
        return self.request(Action.NODE_STATUS)

    def cluster(self) -> dict[str, Any]:
        """The cluster's members and who leads."""
        return self.request(Action.CLUSTER, command="status")

    # -- the wire ----------------------------------------------------------------------------------------------

    def request(self, action: int, **fields: Any) -> dict[str, Any]:
        """Send any request and return the reply as it came. Fields of None are left out, but for `data`.

        Raises ValueError for NaN. The reply has `was_repeated` if an earlier try may have been done.
        """
        body = {name: value for name, value in fields.items() if value is not None or name == "data"}
        for name, value in body.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}, which JSON can't say")
        attempt = _Attempt(self, int(action), body)
        reply = attempt.run()
        if reply.get("code") == 0:
            return {**reply, "was_repeated": True} if attempt.was_repeated else reply
        error, reason = str(reply.get("error", "")), str(reply.get("reason", ""))
        if error == ErrorWord.UNKNOWN_OUTCOME:
            raise UnknownOutcomeError(f"{error}: {reason}", reply)
        is_held = error == ErrorWord.DUPLICATE_KEY and "msg_id" in reply and not reply.get("msg_ids")
        if attempt.was_repeated and attempt.is_keyed and is_held and self._is_ours(int(reply["msg_id"]), body):
            return {**reply, "code": 0}  # the first try had been done before its answer was lost
        raise RefusedError(error, reason, reply)

    def _is_ours(self, msg_id: int, body: dict[str, Any]) -> bool:
        """Whether the message that has the key is the one that this request produced, as far as its data tell.

        One that is gone was: its key was live when the request was repeated, and somebody has confirmed it since.
        """
        try:
            held = self.request(Action.SHOW, msg_id=msg_id)["message"]
        except RefusedError as refused:
            return refused.error == ErrorWord.NO_SUCH_MESSAGE
        except QuorateError:
            return False
        return bool(from_wire(held) == from_wire(body))

    def take_connection(self, timeout_s: float) -> Connection:
        """An open connection to the node that is asked now. Raises `Lost` when it can't be reached."""
        while True:
            with self._lock:
                address = self._address
                connection = next((one for one in reversed(self._idle) if one.address == address), None)
                if connection is not None:
                    self._idle.remove(connection)
            if connection is None:
                return self._connected(address, timeout_s)
            if not connection.is_stale:
                return connection
            connection.close()

    def _connected(self, address: Address, timeout_s: float) -> Connection:
        try:
            return Connection(address, timeout_s)
        except Lost:
            self.ask_elsewhere(address)
            raise

    def give_back(self, connection: Connection) -> None:
        """A connection on which nothing is expected any more."""
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def ask_elsewhere(self, failed: Address, address: Address | None = None) -> None:
        """Ask another node from now on: the one at `address`, or the next."""
        with self._lock:
            if address is not None:
                self._address = address
            elif failed == self._address:
                at = self._nodes.index(failed) if failed in self._nodes else -1
                self._address = self._nodes[(at + 1) % len(self._nodes)]

    @property
    def timeout(self) -> float:
        """Seconds for each request."""
        return self._timeout


class _Attempt:
    """One request, tried until it is answered, or its time is over, or it must not be tried again."""

    def __init__(self, client: Client, action: int, body: dict[str, Any]) -> None:
        self._client = client
        self._action = action
        self._body = body
        self.is_keyed = action == Action.PRODUCE and "key" in body and "messages" not in body
        self._is_repeatable = action in REPEATABLE or self.is_keyed
        self.was_repeated = False

    def run(self) -> dict[str, Any]:
        """The last reply. Raises `ConnectionFailedError`, `UnknownOutcomeError`, `ProtocolViolationError`."""
        begun = time.monotonic()
        wait_s = float(self._body.get("wait", 0.0))
        until = begun + self._client.timeout
        pause_s = PAUSE_MIN_S
        redirects = 0
        while True:
            waited_s = time.monotonic() - begun
            body = {**self._body, "wait": max(wait_s - waited_s, 0.001)} if wait_s and waited_s > 0.1 else self._body
            data = msgspec.json.encode({"action": self._action, **body}) + b"\n"
            left_s = max(until - time.monotonic(), 0.001)
            try:
                reply = self._ask(data, left_s + float(body.get("wait", 0.0)))
            except Lost as lost:
                if lost.was_sent and not self._is_repeatable:
                    raise UnknownOutcomeError(str(lost)) from lost
                if time.monotonic() + pause_s > until + wait_s:
                    kind = UnknownOutcomeError if lost.was_sent or self.was_repeated else ConnectionFailedError
                    raise kind(str(lost)) from lost
                self.was_repeated = self.was_repeated or lost.was_sent
            else:
                if not self._may_try_again(reply) or time.monotonic() + pause_s > until + wait_s:
                    return reply
                if reply["error"] == ErrorWord.REDIRECT and redirects < 1:
                    redirects += 1
                    continue
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _ask(self, data: bytes, timeout_s: float) -> dict[str, Any]:
        """One try. What is left on a connection after anything else than a reply is nobody's: it is closed."""
        client = self._client
        connection = client.take_connection(timeout_s)
        try:
            reply = connection.exchange(data, timeout_s)
        except Lost:
            connection.close()
            client.ask_elsewhere(connection.address)
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
            self._client.ask_elsewhere(connection.address, (str(reply["leader_host"]), int(reply["leader_port"])))
        elif error in (ErrorWord.STOPPING, ErrorWord.NO_LEADER):
            self._client.ask_elsewhere(connection.address)  # that one may be cut off, or removed
        elif error not in (ErrorWord.TOO_LARGE, ErrorWord.TOO_SLOW, ErrorWord.BAD_JSON):
            self._client.give_back(connection)
            return
        connection.close()

    def _may_try_again(self, reply: dict[str, Any]) -> bool:
        """Whether another try may get further: the request was not done, or may be done twice."""
        error = reply.get("error")
        if error == ErrorWord.UNKNOWN_OUTCOME and self._is_repeatable:
            self.was_repeated = True
            return True
        return error in (ErrorWord.REDIRECT, ErrorWord.STOPPING, ErrorWord.NO_LEADER)


def _address(node: Address | str) -> Address:
    if not isinstance(node, str):
        host, port = node
        return host, port
    host, _, text = node.rpartition(":")
    if not host or not text.isdigit():
        raise ValueError(f"{node!r}: HOST:PORT is wanted")
    return host.strip("[]"), int(text)


def _item(message: Any) -> dict[str, Any]:
    if not isinstance(message, NewMessage):
        return to_wire(message)
    options = {
        "delay": message.delay,
        "ttl": message.ttl,
        "retry": message.retry,
        "priority": message.priority,
        "key": message.key,
    }
    return {**to_wire(message.data), **{name: value for name, value in options.items() if value is not None}}


def _queues(queue: str | Sequence[str]) -> dict[str, Any]:
    return {"queue": queue} if isinstance(queue, str) else {"queues": list(queue)}


def _id(message: Message | int) -> int:
    return message.msg_id if isinstance(message, Message) else message


def _message(item: dict[str, Any]) -> Message:
    return Message(item["msg_id"], item["queue"], from_wire(item), item["deliveries"])


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "data": from_wire(item)}
