"""A client of a node or a cluster, over TCP. Any thread may use it; each request in progress has a connection.

A request that was certainly not done (no node leads, the node is stopping, it could not be reached) is tried again, on
another node if there are several, within its `timeout`. One whose outcome is unknown is tried again if that is safe:
everything that only looks, confirm, a produce that has a `key`, and consume: what was handed out to nobody comes again,
unless it was produced to be delivered at most once. Anything else raises `UnknownOutcomeError`.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from quorate.attempt import Attempt
from quorate.checking import check_fields, check_host, check_names, check_seconds
from quorate.connection import Address
from quorate.credentials import Credentials
from quorate.errors import QuorateError, RefusedError, UnknownOutcomeError
from quorate.payload import from_wire, to_wire
from quorate.pool import Pool, node_address
from quorate.protocol import BATCH_MAX, Action, ErrorWord
from quorate.shard_map import ShardMap

DEFAULT_PORT: Final = 1111

LEARN_S: Final = 1.0
"""A request waits no longer for the map of the shards, which is only advice."""


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
    one after the other within that time, as long as it can't be done twice by that, or may be. While none can be
    reached it is tried again for that long; without `retry_connect` it fails as soon as all of them were tried. Any
    number of threads may share a client; after a fork the child has connections of its own. `consumer` is what this
    client calls itself: deliveries note it. Where a cluster has several shards, the client learns after some requests
    where each of them is led, and asks there.

    `token` (or `QUORATE_TOKEN` in the environment) is what nodes with an access file know it by. With `tls` it speaks
    TLS alone, and believes certificates that name the host it dials: those of the authorities in the file `ca`, or of
    those that the system trusts. `cert` and `key` are files with a certificate of its own. `credentials`: all of these.

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
        token: str | None = None,
        tls: bool = False,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        credentials: Credentials | None = None,
        retry_connect: bool = True,
    ) -> None:
        if nodes is not None and not nodes:
            raise ValueError("nodes is empty: at least one is wanted")
        if isinstance(nodes, str):
            raise TypeError(f"nodes is {nodes!r}: a list of nodes is wanted")
        shown = credentials or Credentials.of(token, tls=tls, ca=ca, cert=cert, key=key)
        self._pool = Pool(
            [(check_host(host), port)] if nodes is None else [node_address(node) for node in nodes], shown
        )
        self._map = ShardMap()
        self._timeout = check_seconds("timeout", timeout)
        self._retry_connect = retry_connect
        self._consumer = consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens one again."""
        self._pool.close()

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

    def produce_many(self, queue: str, messages: Iterable[Any], **options: Any) -> list[int]:
        """Put up to 1000 messages into the queue at once: all, or none if one is refused or the node goes away.

        Each is data, or a `NewMessage` with options of its own. `options` as in `produce`, for all of them.
        """
        if isinstance(messages, str | bytes | bytearray | memoryview | dict | NewMessage):
            raise TypeError(f"messages is a {type(messages).__name__}: a list of messages is wanted")
        messages = list(messages)
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
        if message is None:
            raise TypeError("there is no message to confirm: consume gives None when there is nothing")
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
        """Each queue's name and counts, in the order of their names, however many there are.

        Raises `RefusedError` behind the last of them when a shard could not be asked, so that some may be missing.
        """
        after: str | None = None
        missing: set[int] = set()
        while True:
            reply = self.request(Action.LIST, pattern=pattern, after=after)
            yield from reply["queue_list"]
            missing |= set(reply.get("missing_shards", ()))
            after = reply.get("next")
            if after is None:
                break
        if missing:
            named = ", ".join(map(str, sorted(missing)))
            raise RefusedError(
                ErrorWord.NO_LEADER, f"the queues of shard {named} are missing: it can't be asked", reply
            )

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

    def raw_log(self, after: int = 0, shard: int = 0, count: int | None = None) -> dict[str, Any]:
        """The change log's entries as they are stored, up to 4 MiB of them: those that hold the records behind `after`.

        The reply's `entries` are bytes: each entry behind its length (4 bytes, big-endian); `last_trans_id` is to be
        the next call's `after`. `count`: no more entries than hold so many records, but one.
        """
        return self.request(Action.LOG, after=after, shard=shard, count=count, raw=True)

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

    def readers(self, shard: int = 0) -> list[dict[str, Any]]:
        """All readers with their positions, and how far they are behind."""
        return list(self.request(Action.POSITION, shard=shard)["readers"])

    def forget_reader(self, reader: str, shard: int = 0) -> None:
        """Keep nothing for `reader` any more."""
        self.request(Action.POSITION, reader=reader, command="forget", shard=shard)

    def status(self) -> dict[str, Any]:
        """The node and its shards."""
        return self.request(Action.NODE_STATUS)

    def cluster(self) -> dict[str, Any]:
        """The cluster's members and who leads."""
        return self.request(Action.CLUSTER, command="status")

    # -- the wire ----------------------------------------------------------------------------------------------

    def request(self, action: int, **fields: Any) -> dict[str, Any]:
        """Send any request and return the reply as it came. Fields of None are left out, but for `data`.

        Raises TypeError, ValueError for what can't be asked. The reply has `was_repeated` if an earlier try may have
        been done.
        """
        body = {name: value for name, value in fields.items() if value is not None or name == "data"}
        check_fields(body)
        if self._map.counted(time.monotonic()):
            self._learn()
        attempt = Attempt(self._pool, self._timeout, int(action), body, self._map, retry_connect=self._retry_connect)
        reply = attempt.run()
        if reply.get("code") == 0:
            return {**reply, "was_repeated": True} if attempt.was_repeated else reply
        error, reason = str(reply.get("error", "")), str(reply.get("reason", ""))
        if error == ErrorWord.UNKNOWN_OUTCOME:
            raise UnknownOutcomeError(f"{error}: {reason}", reply)
        is_held = error == ErrorWord.DUPLICATE_KEY and "msg_id" in reply and not reply.get("msg_ids")
        if attempt.was_repeated and attempt.is_keyed and is_held and self._is_ours(int(reply["msg_id"]), body):
            return {**reply, "code": 0}  # the first try had been done before its answer was lost
        if attempt.was_repeated and error == ErrorWord.NO_SUCH_READER and body.get("command") == "forget":
            return {"code": 0, "was_repeated": True}  # as that one
        raise RefusedError(error, reason, reply)

    def _learn(self) -> None:
        """Ask where the shards are. A client that is not told asks anywhere, as before."""
        try:
            limit_s = min(self._timeout, LEARN_S)
            reply = Attempt(self._pool, limit_s, int(Action.LEADER), {}, retry_connect=False).run()
        except QuorateError:
            self._map.forget()
        else:
            self._map.learned(reply, time.monotonic())

    def _is_ours(self, msg_id: int, body: dict[str, Any]) -> bool:
        """Whether the message that has the key is the one that this request produced, as far as its data tell.

        One that is gone was: its key was live when the request was repeated, and somebody has confirmed it since. A
        client that may not look at the queue can't tell: then it raises `UnknownOutcomeError`.
        """
        try:
            reply = self.request(Action.SHOW, queue=body["queue"], key=body["key"])
        except RefusedError as refused:
            if refused.error == ErrorWord.NO_SUCH_MESSAGE:
                return True
            why = f"a try may have been done, and what holds the key can't be seen: {refused.reason}"
            raise UnknownOutcomeError(why) from refused
        except QuorateError:
            return False
        held = reply["message"]
        return bool(held["msg_id"] != msg_id or from_wire(held) == from_wire(body))


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
    if isinstance(queue, bytes | bytearray | memoryview):
        raise TypeError(f"queue is a {type(queue).__name__}, and a text is wanted: {queue!r}")
    return {"queue": queue} if isinstance(queue, str) else {"queues": check_names("queue", queue)}


def _id(message: Message | int) -> int:
    if isinstance(message, bool) or not isinstance(message, Message | int):
        raise TypeError(f"a message or its msg_id is wanted, and this is a {type(message).__name__}: {message!r}")
    return message.msg_id if isinstance(message, Message) else message


def _message(item: dict[str, Any]) -> Message:
    return Message(item["msg_id"], item["queue"], from_wire(item), item["deliveries"])


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "data": from_wire(item)}
