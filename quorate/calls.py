"""What each method of a client asks, and how its reply is read: once, for the sync and the async client."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from quorate.actions import LONG_REPLIES, STREAMS_LEVEL
from quorate.errors import RefusedError, UnknownOutcomeError
from quorate.messages import (
    NEVER,
    RETRY_S,
    Key,
    Message,
    Moved,
    Produced,
    ShownMessage,
    batch_of,
    checked_headers,
    id_of,
    items_of,
    queues_of,
    reason_of,
    settled_of,
    with_times,
)
from quorate.payload import Encoder, to_wire
from quorate.protocol import Action, ErrorWord
from quorate.queue_replies import QueueRow, QueueSettings

ONE: Final = (Message, int, Key)
"""What names one message; else there are several."""

CLOCKS_S: Final = 5.0
"""So far this machine's clock and the leader's may be apart, where a lease is said to run."""

PAGE: Final = 100
"""Messages that `browse` asks for at once."""

T = TypeVar("T")
Reply = dict[str, Any]


class Ask(NamedTuple, Generic[T]):
    """A request, and how its reply is read. `fields` None: there is nothing to ask, and `read` is given {}. `level`:
    the feature level that the cluster needs for it: an older node would do a part of it, and not what is asked.
    """

    action: int
    fields: dict[str, Any] | None
    read: Callable[[Reply], T]
    level: int = 0


def produce(
    queue: str, data: Any, headers: dict[str, str] | None, options: dict[str, Any], encoder: Encoder | None = None
) -> Ask[int]:
    """One message; its id."""
    level = STREAMS_LEVEL if options.get("on_duplicate") is not None else 0

    def read(reply: Reply) -> int:
        ids = reply.get("msg_ids")
        msg_id = int(ids[0] if ids else reply["msg_id"])
        return Produced(msg_id, is_duplicate=bool(reply.get("duplicate"))) if level else msg_id

    named = {"queue": queue, **to_wire(data, encoder), "headers": checked_headers(headers)}
    return Ask(Action.PRODUCE, {**named, **with_times(options)}, read, level)


def produce_many(
    queue: str, messages: Iterable[Any], options: dict[str, Any], encoder: Encoder | None = None
) -> Ask[list[int]]:
    """Several messages; their ids."""
    options = with_times({"retry": RETRY_S, "ttl": NEVER, **options})
    options["headers"] = checked_headers(options.get("headers"))
    items = batch_of(messages, encoder)
    has_later = options.get("on_duplicate") is not None or any("on_duplicate" in item for item in items)

    def read(reply: Reply) -> list[int]:
        if not has_later:
            return list(reply["msg_ids"])
        kept = set(reply.get("duplicates", ()))
        return [Produced(msg_id, is_duplicate=at in kept) for at, msg_id in enumerate(reply["msg_ids"])]

    return Ask(Action.PRODUCE, {"queue": queue, "messages": items, **options}, read, STREAMS_LEVEL if has_later else 0)


def known_level(reply: Reply, wanted: int) -> int:
    """Read the cluster's feature level from the reply to leader. Raises RefusedError where it is not the one wanted."""
    level = int(reply.get("level") or 0)
    if level < wanted:
        reason = (
            f"on_duplicate, and a show that waits, need feature level {wanted}, and the cluster has "
            f"{level or 'an older one'}: upgrade every node, then run qctl cluster upgrade"
        )
        raise RefusedError(ErrorWord.NOT_SUPPORTED, reason, reply)
    return level


def consume(
    queue: str | Sequence[str], count: int | None, wait: float, consumer: str | None, in_turn: bool = False
) -> Ask[list[dict[str, Any]]]:
    """Full deliveries, as the node says them."""
    fields = {**queues_of(queue), "count": count, "wait": wait or None, "consumer": consumer, "full": True}
    fields["in_turn"] = in_turn or None
    return Ask(Action.CONSUME, fields, items_of)


def watch(queue: str | Sequence[str], wait: float) -> Ask[str | None]:
    """Ask for a queue that has a message."""
    fields = {**queues_of(queue), "wait": wait or None}
    return Ask(Action.WATCH, fields, lambda reply: reply["queue"] if reply.get("count") is not None else None)


def confirm(messages: Message | int | Key | Iterable[Message | int], held: bool = False) -> Ask[int]:
    """How many were there, or, with `held`, in flight."""
    listed = messages if isinstance(messages, ONE) or messages is None else list(messages)
    named, asked = settled_of(listed)
    if not asked:
        return Ask(Action.CONFIRM, None, lambda reply: 0)

    def read(reply: Reply) -> int:
        confirmed, elsewhere = int(reply["confirmed"]), int(reply.get("elsewhere", 0))
        gone = asked - confirmed - elsewhere
        if not reply.get("was_repeated") or gone <= 0:
            return confirmed
        if not _are_leased(listed):
            reason = (
                f"{gone} of {asked} messages are gone: an earlier try has confirmed them, or somebody else has since"
            )
            raise UnknownOutcomeError(reason, reply)
        return confirmed + gone  # nobody else could have had them: an earlier try has confirmed them

    return Ask(Action.CONFIRM, {**named, "held": held or None}, read)


def _are_leased(messages: Any) -> bool:
    """Whether none of them can have been handed out to somebody else by now: their first leases still run."""
    listed = [messages] if isinstance(messages, ONE) else messages
    leased_until = time.time() + CLOCKS_S
    return all(isinstance(one, Message) and one.due_at > leased_until for one in listed)


def release(
    messages: Message | int | Key | Iterable[Message | int], delay: float, nack: bool | None = None
) -> Ask[int]:
    """How many were in flight."""
    named, asked = settled_of(messages)
    fields = {**named, "delay": delay or None, "nack": nack} if asked else None
    return Ask(Action.RELEASE, fields, lambda reply: int(reply.get("released", 0)))


def withhold(messages: Message | int | Key | Iterable[Message | int], delay: float | None) -> Ask[int]:
    """How many were ready."""
    named, asked = settled_of(messages)
    named.pop("delivery", None)
    fields = {**named, "delay": delay} if asked else None
    return Ask(Action.WITHHOLD, fields, lambda reply: int(reply.get("withheld", 0)))


def extend(messages: Message | int | Key | Iterable[Message | int], retry: float) -> Ask[int]:
    """How many were in flight."""
    named, asked = settled_of(messages)
    fields = {**named, "retry": retry} if asked else None
    return Ask(Action.EXTEND, fields, lambda reply: int(reply.get("extended", 0)))


def bury(messages: Message | int | Key | Iterable[Message | int], reason: str | None) -> Ask[int]:
    """How many were in flight."""
    named, asked = settled_of(messages)
    fields = {**named, "reason": reason_of(reason)} if asked else None
    return Ask(Action.BURY, fields, lambda reply: int(reply.get("buried", 0)))


def move(
    queue: str,
    to: str | None,
    messages: Message | int | Iterable[Message | int] | None,
    count: int | None,
    create: bool,
    after: str | None = None,
) -> Ask[Moved]:
    """How many are in another queue now."""
    named = {} if messages is None else settled_of(messages)[0]
    named.pop("delivery", None)
    if messages is not None and "msg_id" not in named and not named["msg_ids"]:
        return Ask(Action.MOVE, None, lambda reply: Moved(0, 0, None))
    fields = {"queue": queue, "to": to, **named, "count": count, "create": create or None}
    fields["after"] = after
    return Ask(
        *(Action.MOVE, fields),
        lambda reply: Moved(reply["moved"], reply["stayed"], reply.get("reason"), reply.get("next")),
    )


def peek(queue: str, count: int) -> Ask[list[ShownMessage]]:
    """Ask for the next messages."""
    fields = {"queue": queue, "count": count}
    return Ask(Action.PEEK, fields, lambda reply: [ShownMessage.of(one) for one in reply["messages"]])


def page(queue: str, state: str, after: str | None) -> Ask[tuple[list[ShownMessage], str | None]]:
    """Messages in that state, and what to ask for the next ones by."""
    fields = {"queue": queue, "state": state, "after": after, "count": PAGE}
    return Ask(
        Action.PEEK, fields, lambda reply: ([ShownMessage.of(one) for one in reply["messages"]], reply.get("next"))
    )


def show(
    msg_id: Message | int | None, queue: str | None, key: str | None, wait: float = 0.0, unless: int | None = None
) -> Ask[ShownMessage]:
    """One message."""
    fields: dict[str, Any] = {"msg_id": None if msg_id is None else id_of(msg_id), "queue": queue, "key": key}
    if key is not None and queue is None and msg_id is None:
        fields["scope"] = "all"
    fields |= {"wait": wait or None, "unless": unless}
    level = STREAMS_LEVEL if wait or unless is not None else 0
    return Ask(Action.SHOW, fields, lambda reply: ShownMessage.of(reply["message"]), level)


def settings(queue: str) -> Ask[QueueSettings]:
    """Ask for a queue's settings, to look at them."""

    def read(reply: Reply) -> QueueSettings:
        if "settings" not in reply:
            reason = "the node is of a version before 0.3, which does not show settings: upgrade it"
            raise RefusedError(ErrorWord.NOT_SUPPORTED, reason, reply)
        return msgspec.convert(reply["settings"], QueueSettings)

    return Ask(Action.MONITOR, {"queue": queue}, read)


def configure(queue: str, changes: dict[str, Any]) -> Ask[QueueSettings]:
    """Change a queue's settings. A `dead_letter` of None takes the dead letter queue away, `UNSET` leaves it."""
    dead_letter = changes.get("dead_letter", UNSET)
    said = None if dead_letter is UNSET else dead_letter or ""
    fields = {"queue": queue, **changes, "dead_letter": said}
    return Ask(Action.CONFIGURE, fields, lambda reply: msgspec.convert(reply, QueueSettings))


def rows_in(reply: Reply) -> list[QueueRow]:
    """Read the rows of the reply to a list."""
    return msgspec.convert(reply["queue_list"], list[QueueRow])


def count_of(action: Action, queue: str) -> Ask[int]:
    """Clear and remove: how many messages there were."""
    return Ask(action, {"queue": queue}, lambda reply: int(reply["count"]))


def rows_asked(pattern: str | None, sort: str | None, *, full: bool, descending: bool, system: bool) -> dict[str, Any]:
    """Make the fields of a list. What it is sorted by stands in its rows, so it is full then."""
    return {
        "pattern": pattern,
        "sort": sort,
        "full": full or sort is not None or None,
        "descending": descending or None,
        "system": system or None,
    }


def rows_missing(missing: set[int], reply: Reply) -> RefusedError:
    """Make what is raised behind the last row of a list that shards are missing in."""
    named = ", ".join(map(str, sorted(missing)))
    reason = f"the queues of shard {named} are missing: it can't be asked"
    return RefusedError(ErrorWord.NO_LEADER, reason, reply)


def is_long(action: int, body: dict[str, Any]) -> bool:
    """Whether its reply may hold up what stands behind it on a connection."""
    if action == Action.SHOW and "wait" in body:
        return False  # nobody is held up meanwhile, and it is one message
    return "count" in body or action in LONG_REPLIES
