"""Messages as the library has them, and how requests about them are said: for the sync and the async client."""

import base64
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

import msgspec

from quorate.checking import check_names
from quorate.payload import Encoder, from_wire, to_wire
from quorate.protocol import BATCH_MAX, HEADER_BYTES_MAX, HEADERS_MAX, REASON_MAX, RELATIVE_TIME_LIMIT_S, TIME_MAX_S
from quorate.texts import storable, text_of


class _Never(float):
    """Shown by its name, also where it is a default."""

    def __repr__(self) -> str:
        """Say its name."""
        return "NEVER"


NEVER: Final = _Never(TIME_MAX_S)
"""The `ttl` of a message that does not expire: the last second of the year 9999."""

RETRY_S: Final = 60.0
"""The library's `retry`: what a worker does not confirm in a minute, or extend, comes again."""

TAKEN: Final = "taken"

T = TypeVar("T")


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

    def data_as(self, type: type[T]) -> T:  # noqa: A002  # the word that users of msgspec know
        """Return the data as a `type`: a dataclass, a Struct, datetime, UUID... Raises `msgspec.ValidationError`."""
        return msgspec.convert(self.data, type)

    @property
    def lapses(self) -> int:
        """How many of its deliveries here have lapsed: their leases ended, and nothing was said of them."""
        return max(self.deliveries_here - 1 - self.nacks, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return what of it JSON can hold, under the protocol's names; bytes beside their `encoding`."""
        named = {name: getattr(self, name) for name in FIELDS if name != "data"}
        return {**named, **to_wire(self.data)}


@dataclass(frozen=True)
class ShownMessage(Message):
    """A message that is looked at: `peek`, `browse`, `show` and `result` return it, and nothing changes by that.

    `state`: ready, delayed or in_flight. `trans_id`: the record that was its last. `consumer`: who got it last. `delay`
    (s) and `replicate` (nodes): what a job was asked for with. `expire`, `keep`, `scope`: see `Client.produce`. `ttr`:
    the retry time (s) that a client of gmq's named.
    """

    state: str = "ready"
    trans_id: int = 0
    consumer: str | None = None
    expire: str | None = None
    keep: bool = False
    scope: str | None = None
    delay: float = 0.0
    replicate: int | None = None
    ttr: int | None = None

    @classmethod
    def of(cls, item: dict[str, Any]) -> Self:
        """Make it of a message in a reply."""
        more = {name: item[name] for name in SHOWN if item.get(name) is not None}
        return cls(**fields_of(item), **more)

    def as_dict(self) -> dict[str, Any]:
        """As `Message.as_dict`, with what is shown beside, and without what says nothing."""
        more = {name: getattr(self, name) for name in SHOWN}
        named = {**super().as_dict(), **more}
        return {name: value for name, value in named.items() if name == "data" or not _says_nothing(value)}


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or value == {}


class Produced(int):
    """The id of a message that was produced with `on_duplicate`.

    `is_duplicate`: nothing was stored, and the id is that of the message that had the key. Also True when an earlier
    try of this request stored it and its answer was lost.
    """

    is_duplicate: bool

    def __new__(cls, msg_id: int, *, is_duplicate: bool = False) -> Self:
        """Make it."""
        made = super().__new__(cls, msg_id)
        made.is_duplicate = is_duplicate
        return made


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

SHOWN: Final = tuple(one.name for one in fields(ShownMessage) if one.name not in FIELDS)
"""What is shown of it beside that."""

TIMES: Final = ("delay", "ttl")
OnDuplicate = Literal["refuse", "keep", "replace"]
Moment = float | timedelta | datetime
"""A time of a message: seconds from now, Unix seconds, a `timedelta` from now, or an aware `datetime`."""


@dataclass(frozen=True)
class NewMessage:
    """One of the messages of `produce_many` with options of its own; times as in `produce`."""

    data: Any
    delay: Moment | None = None
    ttl: Moment | None = None
    retry: float | None = None
    priority: int | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    expire: str | None = None
    keep: bool | None = None
    scope: str | None = None
    on_duplicate: OnDuplicate | None = None


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


def seconds_of(name: str, value: Any) -> Any:
    """How a time is said: a `timedelta` as seconds from now, an aware `datetime` as Unix seconds, a number as it is.

    Raises ValueError for one that would be taken for the other, and for a `datetime` without a time zone.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        if not 0 <= seconds < RELATIVE_TIME_LIMIT_S:
            raise ValueError(f"{name} is {value!r}: from 0 to {RELATIVE_TIME_LIMIT_S} seconds are wanted")
        return seconds
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} is {value!r}, which has no time zone: datetime.now(UTC) has one")
        if value.timestamp() < RELATIVE_TIME_LIMIT_S:
            raise ValueError(f"{name} is {value!r}, which is before September 2001")
        return value.timestamp()
    return value


def with_times(options: dict[str, Any]) -> dict[str, Any]:
    """Give the options of a produce with their times as seconds."""
    return {name: seconds_of(name, value) if name in TIMES else value for name, value in options.items()}


def item_of(message: Any, encoder: Encoder | None = None) -> dict[str, Any]:
    """How one of the messages of `produce_many` is said."""
    if not isinstance(message, NewMessage):
        return to_wire(message, encoder)
    options = {
        "delay": seconds_of("delay", message.delay),
        "ttl": seconds_of("ttl", message.ttl),
        "retry": message.retry,
        "priority": message.priority,
        "key": message.key,
        "headers": checked_headers(message.headers),
        "expire": message.expire,
        "keep": message.keep,
        "scope": message.scope,
        "on_duplicate": message.on_duplicate,
    }
    return {**to_wire(message.data, encoder), **{name: value for name, value in options.items() if value is not None}}


def batch_of(messages: Iterable[Any], encoder: Encoder | None = None) -> list[dict[str, Any]]:
    """How the messages of `produce_many` are said. Raises TypeError, ValueError."""
    if isinstance(messages, str | bytes | bytearray | memoryview | dict | NewMessage):
        raise TypeError(f"messages is a {type(messages).__name__}: a list of messages is wanted")
    found = list(messages)
    if not 0 < len(found) <= BATCH_MAX:
        raise ValueError(f"{len(found)} messages: from 1 to {BATCH_MAX} go into a queue at once")
    return [item_of(message, encoder) for message in found]


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
