"""Messages as the library has them, and how requests about them are said: for the sync and the async client."""

import base64
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from quorate.checking import check_names
from quorate.payload import from_wire, to_wire
from quorate.protocol import BATCH_MAX, HEADER_BYTES_MAX, HEADERS_MAX, REASON_MAX, TIME_MAX_S
from quorate.texts import storable, text_of

NEVER: Final = TIME_MAX_S
"""The `ttl` of a message that does not expire: the last second of the year 9999."""

RETRY_S: Final = 60.0
"""The library's `retry`: what a worker does not confirm in a minute, or extend, comes again."""

TAKEN: Final = "taken"


@dataclass(frozen=True)
class Message:
    """A delivered message: `data` as it was produced, `deliveries` how often it was handed out, this time included.

    `deliveries` goes on counting when the message is moved or becomes a dead letter; `deliveries_here` counts those
    since it came into this queue, and `nacks` how often it was given back there.

    Instants are Unix seconds: `due_at` is until when it is in flight for who got it, `retry` by how many seconds a
    delivery is repeated, 0: it was delivered at most once, and is gone. `dead` of a dead letter says where it was:
    queue, at, deliveries, and perhaps reason.
    """

    msg_id: int
    queue: str
    data: Any
    deliveries: int
    key: str | None = None
    priority: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    produced_at: float = 0.0
    expires_at: float = NEVER
    due_at: float = 0.0
    retry: float = 0.0
    dead: dict[str, Any] | None = None
    deliveries_here: int = 0
    nacks: int = 0

    @property
    def lapses(self) -> int:
        """How many of its deliveries here have lapsed: their leases ended, and nothing was said of them."""
        return max(self.deliveries_here - 1 - self.nacks, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return what of it JSON can hold, under the protocol's names; bytes beside their `encoding`."""
        named = {name: getattr(self, name) for name in FIELDS if name != "data"}
        return {**named, **to_wire(self.data)}


class Moved(NamedTuple):
    """Of messages that were to move: so many are in another queue, so many stayed, the first of them for `reason`.

    `next`: what to go on behind, where there are more than could be looked at.
    """

    moved: int
    stayed: int
    reason: str | None
    next: str | None = None

    def and_then(self, more: "Moved") -> "Moved":
        """Both together."""
        return Moved(self.moved + more.moved, self.stayed + more.stayed, self.reason or more.reason, more.next)


FIELDS: Final = tuple(one.name for one in fields(Message))
"""What every message has, whoever holds it."""


@dataclass(frozen=True)
class NewMessage:
    """One of the messages of `produce_many` with options of its own; times as in `produce`."""

    data: Any
    delay: float | None = None
    ttl: float | None = None
    retry: float | None = None
    priority: int | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    expire: str | None = None
    keep: bool | None = None
    scope: str | None = None


class Key(str):
    """Names a message by its key, where that is unique among all: it was produced with `scope` "all"."""

    __slots__ = ()


def fields_of(item: dict[str, Any]) -> dict[str, Any]:
    """Of a full delivery, what a `Message` is made of."""
    return {
        "msg_id": item["msg_id"],
        "queue": item["queue"],
        "data": from_wire(item),
        "deliveries": item["deliveries"],
        "key": item.get("key"),
        "priority": item.get("priority", 0),
        "headers": item.get("headers", {}),
        "produced_at": item["produced_at"],
        "expires_at": item["expires_at"],
        "due_at": item["due_at"],
        "retry": item["retry"],
        "dead": item.get("dead"),
        "deliveries_here": item.get("deliveries_here", item["deliveries"]),
        "nacks": item.get("nacks", 0),
    }


def items_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the messages of the reply to a consume with `full`."""
    if "message" in reply:
        return [reply["message"]]
    items: list[dict[str, Any]] = reply.get("messages", [])
    return items


def shown(item: dict[str, Any]) -> dict[str, Any]:
    """Make a message of peek or show, with its data as it was produced."""
    return {**item, "data": from_wire(item)}


def item_of(message: Any) -> dict[str, Any]:
    """How one of the messages of `produce_many` is said."""
    if not isinstance(message, NewMessage):
        return to_wire(message)
    options = {
        "delay": message.delay,
        "ttl": message.ttl,
        "retry": message.retry,
        "priority": message.priority,
        "key": message.key,
        "headers": checked_headers(message.headers),
        "expire": message.expire,
        "keep": message.keep,
        "scope": message.scope,
    }
    return {**to_wire(message.data), **{name: value for name, value in options.items() if value is not None}}


def batch_of(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """How the messages of `produce_many` are said. Raises TypeError, ValueError."""
    if isinstance(messages, str | bytes | bytearray | memoryview | dict | NewMessage):
        raise TypeError(f"messages is a {type(messages).__name__}: a list of messages is wanted")
    found = list(messages)
    if not 0 < len(found) <= BATCH_MAX:
        raise ValueError(f"{len(found)} messages: from 1 to {BATCH_MAX} go into a queue at once")
    return [item_of(message) for message in found]


def checked_headers(headers: dict[str, str] | None) -> dict[str, str] | None:
    """Headers as they may be sent, and stored. Raises TypeError, ValueError."""
    if not headers:
        return None
    if not isinstance(headers, dict):
        raise TypeError(f"headers is a {type(headers).__name__}, and names with texts are wanted: {headers!r}")
    size = 0
    found = {}
    for name, text in headers.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"headers: {name!r}: {text!r} is no pair of texts")
        if not name:
            raise ValueError("headers: a name is empty")
        found[storable(name)] = stored = storable(text)
        size += len(storable(name).encode()) + len(stored.encode())
    if len(found) > HEADERS_MAX or size > HEADER_BYTES_MAX:
        limits = f"{HEADERS_MAX} names and {HEADER_BYTES_MAX} bytes"
        raise ValueError(f"headers: {len(found)} names and {size} bytes, and {limits} are allowed")
    return found


def queues_of(queue: str | Sequence[str]) -> dict[str, Any]:
    """How a queue, or several in order of preference, are named. Raises TypeError."""
    if isinstance(queue, bytes | bytearray | memoryview):
        raise TypeError(f"queue is a {type(queue).__name__}, and a text is wanted: {queue!r}")
    return {"queue": queue} if isinstance(queue, str) else {"queues": check_names("queue", queue)}


def names_of(queues: str | Sequence[str]) -> list[str]:
    """One queue or several. Raises TypeError, and ValueError for none."""
    names = [queues] if isinstance(queues, str) else check_names("queues", queues)
    if not names:
        raise ValueError("queues is empty: at least one is wanted")
    return list(names)


def id_of(message: Message | int) -> int:
    """Give a message's id. Raises TypeError for what is none."""
    if isinstance(message, bool) or not isinstance(message, (Message, int)):
        raise TypeError(f"a message or its msg_id is wanted, and this is a {type(message).__name__}: {message!r}")
    return message.msg_id if isinstance(message, Message) else message


def settled_of(messages: "Message | int | Key | Iterable[Message | int]") -> tuple[dict[str, Any], int]:
    """How one message or several are named, and how many they are (0: none is to be asked about).

    Of messages that were delivered the delivery is named, too: what has been handed out again since is another's.
    """
    if messages is None:
        raise TypeError("there is no message to confirm or give back: consume gives None when there is nothing")
    if isinstance(messages, Message):
        return {"msg_id": messages.msg_id, "delivery": messages.deliveries}, 1
    if isinstance(messages, int):
        return {"msg_id": id_of(messages)}, 1
    if isinstance(messages, Key):
        return {"key": str(messages), "scope": "all"}, 1
    listed = list(messages)
    named: dict[str, Any] = {"msg_ids": [id_of(one) for one in listed]}
    if listed and all(isinstance(one, Message) for one in listed):
        named["delivery"] = [one.deliveries for one in listed if isinstance(one, Message)]
    return named, len(set(named["msg_ids"]))


def random_key() -> str:
    """Draw a key by which a produce that is tried again is known, so that it is done once: 96 random bits."""
    return base64.b64encode(os.urandom(12)).decode()


def reason_of(reason: object) -> str | None:
    """Why a message is buried, as much of it as is noted and as can be stored."""
    return None if reason is None else storable(text_of(reason)[:REASON_MAX])[:REASON_MAX]
