"""Topics as the library has them: their messages, and what each method asks of a node, for both clients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, TypedDict, TypeVar

import msgspec

from quorate.calls import Ask, Reply
from quorate.errors import QuorateError, RefusedError
from quorate.messages import checked_headers
from quorate.payload import Encoder, from_wire, to_wire
from quorate.protocol import BATCH_MAX, Action, ErrorWord
from quorate.stream_replies import GroupRow, MetaqGroupRow, PartitionRow, PreparedRow, TopicRow

T = TypeVar("T")

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Start = int | str | datetime
"""Where a reader begins: an offset, "earliest", "latest", or the first message of a time on."""


@dataclass(frozen=True)
class TopicMessage:
    """A message of a topic: `data` as it was appended, at `offset` of its `partition`.

    `produced_at`: when it was appended (Unix seconds). `position`: where its frame begins in the partition (bytes).
    `attribute` and `flag`: what a client of MetaQ's sent with it.
    """

    topic: str
    partition: int
    offset: int
    data: Any
    msg_id: int
    produced_at: float
    position: int
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    attribute: str | None = None
    flag: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return what of it JSON can hold, under the protocol's names; bytes beside their `encoding`."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "data"}
        said = {name: value for name, value in named.items() if value is not None and value != {}}
        return {**said, **to_wire(self.data)}

    def data_as(self, type: type[T]) -> T:  # noqa: A002  # the word that users of msgspec know
        """Return the data as a `type`: a dataclass, a Struct, datetime, UUID... Raises `msgspec.ValidationError`."""
        return msgspec.convert(self.data, type)


class Appended(NamedTuple):
    """Where a message is now.

    `is_duplicate`: its producer had appended it before, under the same number; its id is not known any more.
    """

    partition: int
    offset: int
    msg_id: int | None
    is_duplicate: bool = False


class TopicOptions(TypedDict, total=False):
    """What a topic is to have; what is left out stays as it is, or is as usual for a new one.

    `partitions`: how many (8). Messages are kept for `keep_s` seconds (7 days; 0: for ever), and `keep_bytes` of each
    partition (1 GiB; 0: any number). `keep_for_groups`: those that a group has not read stay, up to
    `keep_for_groups_bytes` (10 GiB) of each partition. `accept_append`, `accept_read`: whether messages may be appended
    (yes), and read (yes). `closed`: to these partitions none are appended (to all they are). `filters`: which
    attributes each of these groups reads, `prefix*` or a whole one (a group that is not named reads all messages).
    """

    partitions: int | None
    keep_s: float | None
    keep_bytes: int | None
    keep_for_groups: bool | None
    keep_for_groups_bytes: int | None
    accept_append: bool | None
    accept_read: bool | None
    closed: Sequence[int] | None
    filters: Mapping[str, Sequence[str]] | None


class TopicSettings(msgspec.Struct):
    """A topic's settings, as in `TopicOptions`. `made_at`: when it was created (Unix seconds)."""

    keep_s: float
    keep_bytes: int
    keep_for_groups: bool
    keep_for_groups_bytes: int
    made_at: float
    accept_append: bool = True
    accept_read: bool = True
    closed: list[int] = []
    filters: dict[str, list[str]] = {}


class TopicView(TopicSettings, kw_only=True):
    """A topic as it is now, with its partitions and the groups that read it."""

    partitions: list[PartitionRow]
    groups: list[GroupRow] = []
    metaq_groups: list[MetaqGroupRow] = []


class Part(NamedTuple):
    """What a read gave: messages, the offset to go on at, and those of the first that is kept and behind the last."""

    messages: list[TopicMessage]
    next: int
    first: int
    end: int


class Share(NamedTuple):
    """What a member of a group is to read: `owns`, each from `positions` on where the group has said one."""

    owns: list[int]
    generation: int
    positions: dict[int, int]


def append(topic: str, data: Any, options: Mapping[str, Any], encoder: Encoder | None = None) -> Ask[Appended]:
    """Append one message."""

    def read(reply: Reply) -> Appended:
        return Appended(reply["partition"], reply["offset"], reply.get("msg_id"), bool(reply.get("duplicate")))

    fields = {"topic": topic, **to_wire(data, encoder), **_options(options)}
    return Ask(Action.APPEND, fields, read)


def append_many(
    topic: str, messages: Iterable[Any], options: Mapping[str, Any], encoder: Encoder | None = None
) -> Ask[list[Appended]]:
    """Append several, all of them or none."""
    items = [_item(one, encoder) for one in messages]
    if not 0 < len(items) <= BATCH_MAX:
        raise ValueError(f"{len(items)} messages: from 1 to {BATCH_MAX} in one request")

    def read(reply: Reply) -> list[Appended]:
        ids = reply.get("msg_ids") or [None] * len(items)
        again = bool(reply.get("duplicate"))
        places = zip(reply["partitions"], reply["offsets"], ids, strict=True)
        return [Appended(partition, offset, msg_id, again) for partition, offset, msg_id in places]

    return Ask(Action.APPEND, {"topic": topic, "messages": items, **_options(options)}, read)


class NewTopicMessage(msgspec.Struct):
    """A message for `append_many` that says more than its data."""

    data: Any
    key: str | None = None
    headers: dict[str, str] | None = None
    attribute: str | None = None


def _item(one: Any, encoder: Encoder | None) -> dict[str, Any]:
    if not isinstance(one, NewTopicMessage):
        return to_wire(one, encoder)
    said = {"key": one.key, "headers": checked_headers(one.headers), "attribute": one.attribute}
    return {**to_wire(one.data, encoder), **{name: value for name, value in said.items() if value is not None}}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    said = {**options}
    if "headers" in said:
        said["headers"] = checked_headers(said["headers"])
    return said


def start_fields(start: Start) -> dict[str, Any]:
    """Say where a read begins. Raises TypeError, ValueError."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError(f"{start} has no time zone: which moment is meant?")
        return {"time": start.timestamp()}
    if isinstance(start, bool) or not isinstance(start, int | str):
        raise TypeError(f"{start!r} is no offset, time, {EARLIEST!r} or {LATEST!r}")
    if isinstance(start, str) and start not in (EARLIEST, LATEST):
        raise ValueError(f"{start!r} is neither {EARLIEST!r} nor {LATEST!r}")
    return {"offset": start}


def read(topic: str, partition: int, start: Start, count: int, wait: float, *, group: str | None = None) -> Ask[Part]:
    """Read messages of one partition; with a `group` those that its filter accepts."""

    def part(reply: Reply) -> Part:
        messages = [message_of(topic, partition, one) for one in reply["messages"]]
        return Part(messages, reply["next"], reply["first"], reply["end"])

    fields: dict[str, Any] = {"topic": topic, "partition": partition, "count": count, "wait": wait or None}
    fields |= {**start_fields(start), "group": group}
    return Ask(Action.READ, fields, part)


def message_of(topic: str, partition: int, item: Reply) -> TopicMessage:
    """Read a message of a reply."""
    return TopicMessage(
        topic,
        partition,
        item["offset"],
        from_wire(item),
        item["msg_id"],
        item["produced_at"],
        item["position"],
        item.get("key"),
        item.get("headers") or {},
        item.get("attribute"),
        item.get("flag", 0),
    )


def topic(name: str, command: str, **fields: Any) -> Ask[TopicView]:
    """Do something to a topic; what it is then."""
    asked = {"topic": name, "command": command, **fields}
    return Ask(Action.TOPIC, asked, lambda reply: msgspec.convert(reply, TopicView))


def retired(name: str, command: str, **fields: Any) -> Ask[int]:
    """Trim, or remove, a topic: how many messages are gone."""
    return Ask(Action.TOPIC, {"topic": name, "command": command, **fields}, lambda reply: int(reply["retired"]))


def checked_options(options: TopicOptions) -> dict[str, Any]:
    """Give settings of a topic. Raises TypeError for what is none."""
    for name in options:
        if name not in TopicOptions.__annotations__:
            raise TypeError(f"{name!r} is no setting of a topic: {', '.join(TopicOptions.__annotations__)}")
    return dict(options)


def prepared(shard: int) -> Ask[list[PreparedRow]]:
    """List a shard's prepared transactions."""
    fields = {"command": "list", "shard": shard}
    return Ask(Action.PREPARED, fields, lambda reply: msgspec.convert(reply["prepared"], list[PreparedRow]))


def decide(xid: str, shard: int, *, commit: bool) -> Ask[int]:
    """Commit a prepared transaction, or roll it back: how many messages are appended."""
    fields = {"command": "commit" if commit else "rollback", "shard": shard, "xid": xid}
    return Ask(Action.PREPARED, fields, lambda reply: int(reply.get("count") or 0))


def topic_rows(reply: Reply) -> tuple[list[TopicRow], str | None]:
    """Read a part of a list of topics, and behind which name the next begins; None: it was the last."""
    return msgspec.convert(reply["topics"], list[TopicRow]), reply.get("next")


def check_whole(reply: Reply) -> None:
    """Raise `RefusedError` where a list lacks the topics of some shards."""
    if missing := reply.get("missing_shards"):
        reason = f"the topics of shard {', '.join(map(str, missing))} are missing: it can't be asked"
        raise RefusedError(ErrorWord.NO_LEADER, reason, reply)


def groups(name: str, group: str | None) -> Ask[list[GroupRow]]:
    """Look at a topic's groups, or one of them with its partitions."""
    fields = {"topic": name, "group": group, "command": "list" if group is None else "show"}
    return Ask(Action.GROUP, fields, lambda reply: msgspec.convert(reply["groups"], list[GroupRow]))


def group(name: str, group: str, command: str, **fields: Any) -> Ask[dict[int, int]]:
    """Do something to a group; where it goes on then."""
    asked = {"topic": name, "group": group, "command": command, **fields}
    return Ask(Action.GROUP, asked, lambda reply: _positions(reply))


def heartbeat(name: str, group: str, member: str, owns: list[int], session: float, wait: float) -> Ask[Share]:
    """Say what a member has; what it is to have."""
    fields: dict[str, Any] = {"topic": name, "group": group, "command": "heartbeat", "member": member, "owns": owns}
    fields |= {"session": session, "wait": wait or None}
    return Ask(
        Action.GROUP,
        fields,
        lambda reply: Share(reply.get("owns", owns), reply.get("generation", 0), _positions(reply)),
    )


def commit(
    name: str, group: str, positions: Mapping[int, int], member: str | None, generation: int | None
) -> Ask[dict[int, int]]:
    """Say where a group goes on."""
    fields: dict[str, Any] = {"topic": name, "group": group}
    fields["positions"] = {str(index): at for index, at in positions.items()}
    fields |= {"member": member, "generation": generation}
    return Ask(Action.COMMIT, fields, lambda reply: _positions(reply))


def _positions(reply: Reply) -> dict[int, int]:
    return {int(index): int(at) for index, at in (reply.get("positions") or {}).items()}


def chosen_partitions(name: str, view: TopicView, partitions: Sequence[int] | None) -> tuple[list[int], dict[int, int]]:
    """Say which partitions are read, all unless some are named, and where each ends now. Raises ValueError."""
    ends = {row.partition: row.next for row in view.partitions}
    chosen = [*ends] if partitions is None else [*partitions]
    for index in chosen:
        if index not in ends:
            raise ValueError(f"the topic {name!r} has no partition {index}")
    return chosen, ends


def behind_gap(error: RefusedError) -> Part:
    """Say where reading goes on, where messages are gone or damaged. Raises the error if it is about something else."""
    at = error.reply.get("next")
    if error.error not in (ErrorWord.TRIMMED, ErrorWord.DAMAGED) or not isinstance(at, int):
        raise error
    return Part([], at, 0, 0)


def is_unknown_member(error: QuorateError) -> bool:
    """Whether the group does not know the member that commits: a heartbeat makes it one."""
    return isinstance(error, RefusedError) and error.error == ErrorWord.UNKNOWN_MEMBER


def is_not_owner(error: QuorateError) -> bool:
    """Whether a commit was refused because others read there by now."""
    return isinstance(error, RefusedError) and error.error in (ErrorWord.NOT_OWNER, ErrorWord.UNKNOWN_MEMBER)
