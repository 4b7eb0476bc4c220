"""A client of a node or a cluster, over TCP: one connection, one request at a time, from any thread.

A request that was certainly not done (no node leads, the node is stopping, it could not be reached) is tried again, on
another node if there are several. One whose outcome is unknown is tried again if that is safe: everything that only
looks, confirm, a produce that has a `key`, and consume: what was handed out to nobody comes again, unless it was
produced to be delivered at most once. Anything else raises, and says that the outcome is unknown.
"""

import math
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from quorate.actions import REPEATABLE
from quorate.errors import ConnectionFailedError, ProtocolViolationError, QuorateError, RefusedError
from quorate.protocol import Action, ErrorWord

REPLY_BYTES_MAX: Final = 64 << 20
PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 0.2
"""Between two tries of a request."""


@dataclass(frozen=True)
class Message:
    """A delivered message: `data` as it was produced, `deliveries` how often it was handed out, this time included."""

    msg_id: int
    queue: str
    data: Any
    deliveries: int


class Client:
    """Talks to the node on `host` and `port`, or to any of `nodes` (hosts and ports); connects when first used.

    `timeout` is seconds for each request, beyond what a consume asks to wait. With several nodes a request is tried on
    one after the other within that time, as long as it can't be done twice by that, or may be.

    Every method raises `RefusedError` when the node refuses, `ConnectionFailedError` when it can't be reached or
    goes away, `ProtocolViolationError` when what answers is no Quorate node.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 1111,
        *,
        nodes: Sequence[tuple[str, int]] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._nodes = list(nodes) if nodes else [(host, port)]
        self._address = self._nodes[0]
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        with self._lock:
            self._drop()

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
        """Put `data` (anything that JSON holds) into the queue; returns the message's id when it is on disk.

        `delay` and `ttl`: seconds from now, or Unix seconds. `retry`: seconds after which an unconfirmed delivery is
        repeated; 0: delivered at most once. A `key` that a live message of the queue has is refused. `replicate`: on
        how many nodes' disks it is to be, instead of a majority's.
        """
        reply = self.request(
            Action.PRODUCE,
            queue=queue,
            data=data,
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
        """Put several messages into the queue at once: all, or none if one is refused. `options` as in `produce`."""
        items = [{"data": data} for data in messages]
        return list(self.request(Action.PRODUCE, queue=queue, messages=items, **options)["msg_ids"])

    def consume(self, queue: str | Sequence[str], *, wait: float = 0.0) -> Message | None:
        """The next message of the queue, or of the first of several that has one; None after `wait` seconds without."""
        reply = self.request(Action.CONSUME, **_queues(queue), wait=wait or None)
        return _message(reply) if "msg_id" in reply else None

    def consume_many(self, queue: str | Sequence[str], count: int, *, wait: float = 0.0) -> list[Message]:
        """Up to `count` messages of one queue."""
        reply = self.request(Action.CONSUME, **_queues(queue), count=count, wait=wait or None)
        return [_message(item) for item in reply.get("messages", ())]

    def confirm(self, message: "Message | int | Iterable[Message | int]") -> int:
        """Acknowledge one message or several; returns how many of them were there to be confirmed."""
        if isinstance(message, Message | int):
            return int(self.request(Action.CONFIRM, msg_id=_id(message))["confirmed"])
        ids = [_id(one) for one in message]
        return int(self.request(Action.CONFIRM, msg_ids=ids)["confirmed"]) if ids else 0

    def release(self, message: "Message | int", *, delay: float = 0.0) -> None:
        """Give a message in flight back, due after `delay` seconds."""
        self.request(Action.RELEASE, msg_id=_id(message), delay=delay or None)

    def extend(self, message: "Message | int", retry: float) -> None:
        """Keep a message in flight for `retry` seconds from now."""
        self.request(Action.EXTEND, msg_id=_id(message), retry=retry)

    def peek(self, queue: str, count: int = 1) -> list[dict[str, Any]]:
        """The next messages, undelivered and unchanged."""
        return list(self.request(Action.PEEK, queue=queue, count=count)["messages"])

    def show(self, msg_id: int) -> dict[str, Any]:
        """A live message with its state and times."""
        return dict(self.request(Action.SHOW, msg_id=msg_id)["message"])

    # -- queues and the node -----------------------------------------------------------------------------------

    def queues(self, pattern: str | None = None) -> list[str]:
        """The queues' names; `pattern` has shell wildcards, or is a part of the name."""
        return list(self.request(Action.LIST, pattern=pattern)["queue_list"])

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

    # -- the cluster -------------------------------------------------------------------------------------------

    def cluster(self) -> dict[str, Any]:
        """The cluster's members and who leads."""
        return self.request(Action.CLUSTER, command="status")

    # -- the wire ----------------------------------------------------------------------------------------------

    def request(self, action: int, **fields: Any) -> dict[str, Any]:
        """Send any request and return the reply as it came. Fields of None are left out. Raises ValueError for NaN."""
        body = {name: value for name, value in fields.items() if value is not None}
        for name, value in body.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}, which JSON can't say")
        data = msgspec.json.encode({"action": int(action), **body}) + b"\n"
        is_keyed = action == Action.PRODUCE and "key" in body and "messages" not in body
        is_repeatable = action in REPEATABLE or is_keyed
        with self._lock:
            reply, was_repeated = self._exchange(data, float(body.get("wait", 0.0)), is_repeatable)
        if reply.get("code") == 0:
            return reply
        is_held = reply.get("error") == ErrorWord.DUPLICATE_KEY and "msg_id" in reply and not reply.get("msg_ids")
        if was_repeated and is_keyed and is_held and self._is_ours(int(reply["msg_id"]), data):
            return {**reply, "code": 0}  # the first try had been done before its answer was lost
        raise RefusedError(str(reply.get("error", "")), str(reply.get("reason", "")), reply)

    def _is_ours(self, msg_id: int, data: bytes) -> bool:
        """Whether the message that has the key is the one that this request produced, as far as its data tell."""
        try:
            held = self.show(msg_id)
        except QuorateError:
            return False
        return bool(held["data"] == msgspec.json.decode(data)["data"])

    def _exchange(self, data: bytes, wait: float, is_repeatable: bool) -> tuple[dict[str, Any], bool]:
        """The reply, and whether the request may have been done before the try that it answers.

        Tries go on until `timeout` is over, as long as the one before was certainly not done, or may be done twice.
        """
        until = time.monotonic() + self._timeout
        was_repeated = False
        pause_s = PAUSE_MIN_S
        for attempt in count():
            is_last = time.monotonic() + pause_s > until or (len(self._nodes) == 1 and attempt > 0)
            was_sent = False
            try:
                sock = self._connected()
                sock.settimeout(self._timeout + wait)
                was_sent = True
                sock.sendall(data)
                reply = self._read_reply(sock)
            except OSError as error:
                host, port = self._address
                self._drop()
                self._next_node()
                is_late = isinstance(error, TimeoutError) and was_sent
                if is_last or (was_sent and not is_repeatable):
                    what = "did not answer in time" if is_late else f"failed: {error}"
                    raise ConnectionFailedError(
                        f"node {host}:{port} {what}", outcome_unknown=was_sent or was_repeated
                    ) from error
                was_repeated = was_repeated or was_sent
            except BaseException:
                self._drop()  # a reply that nobody has read must not be taken for the next request's
                raise
            else:
                if not self._may_try_again(reply, is_repeatable) or time.monotonic() + pause_s > until:
                    return reply, was_repeated
                was_repeated = was_repeated or reply.get("error") == ErrorWord.UNKNOWN_OUTCOME
                if reply.get("error") == ErrorWord.REDIRECT:
                    continue
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        raise AssertionError("unreachable")

    def _may_try_again(self, reply: dict[str, Any], is_repeatable: bool) -> bool:
        """Whether another try may get further: the request was not done, or may be done twice."""
        error = reply.get("error")
        if error == ErrorWord.REDIRECT:
            self._drop()
            self._address = (str(reply["leader_host"]), int(reply["leader_port"]))
            return True
        if error == ErrorWord.STOPPING:
            self._drop()
            self._next_node()
            return len(self._nodes) > 1
        if error == ErrorWord.NO_LEADER:
            if len(self._nodes) > 1:
                self._drop()
                self._next_node()  # that one may be cut off, or removed
            return True
        return error == ErrorWord.UNKNOWN_OUTCOME and is_repeatable

    def _next_node(self) -> None:
        """Ask another node from now on."""
        at = self._nodes.index(self._address) if self._address in self._nodes else -1
        self._address = self._nodes[(at + 1) % len(self._nodes)]

    def _connected(self) -> socket.socket:
        if self._socket is not None and _is_closed(self._socket):
            self._drop()  # by the node, before anything was sent: another connection asks the same for the first time
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=self._timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _read_reply(self, sock: socket.socket) -> dict[str, Any]:
        buffer = self._buffer
        while (end := buffer.find(b"\n")) < 0:
            part = sock.recv(1 << 16)
            if not part:
                raise ConnectionResetError("the node closed the connection")
            buffer += part
            if len(buffer) > REPLY_BYTES_MAX:
                raise ProtocolViolationError(f"a reply of more than {REPLY_BYTES_MAX} bytes")
        line = bytes(buffer[:end])
        del buffer[: end + 1]
        try:
            reply = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ProtocolViolationError(f"not a reply: {line[:100]!r}") from error
        if not isinstance(reply, dict):
            raise ProtocolViolationError(f"not a reply: {line[:100]!r}")
        return reply

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._buffer.clear()


def _is_closed(sock: socket.socket) -> bool:
    """Whether the other side has closed a connection on which nothing is expected."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _queues(queue: str | Sequence[str]) -> dict[str, Any]:
    return {"queue": queue} if isinstance(queue, str) else {"queues": list(queue)}


def _id(message: Message | int) -> int:
    return message.msg_id if isinstance(message, Message) else message


def _message(item: dict[str, Any]) -> Message:
    return Message(item["msg_id"], item["queue"], item["data"], item["deliveries"])
