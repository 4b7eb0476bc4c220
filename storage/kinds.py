"""One row a kind of record: all that is to be known of it anywhere. Nothing else enumerates kinds.

A new kind is a class in `records`, a row here, and the method that its row names, which notes what it is about to
change (`storage.undo`). A row has all columns, or it is none.
"""

from typing import Any, Final, NamedTuple

import msgspec

from storage.records import (
    Append,
    Bury,
    Clear,
    Configure,
    Confirm,
    Decide,
    Deliver,
    DropGroup,
    DropTopic,
    Encoding,
    Expire,
    Extend,
    Lead,
    Members,
    Move,
    Offsets,
    Position,
    Prepare,
    Produce,
    Record,
    Release,
    Remove,
    Retire,
    Take,
    Topic,
    Withhold,
)


class Rows(NamedTuple):
    """What of a record outlives the log's head, as rows of LMDB.

    `messages`: those of its `msg_ids`; `queues`: those of the queues that these fields name; `section`: the name of a
    row of `storage.sections`; `topics`: those that `storage.topics` names for it.
    """

    messages: bool = False
    queues: tuple[str, ...] = ()
    section: str | None = None
    topics: bool = False


class Counts(NamedTuple):
    """What a record counts for, in the totals of its queue (`actors.shard.totals.Totals`).

    `names`: those that its messages are added to. `arrives`: they are added to `arrived` of the queue `to`, too.
    `again`: those that were delivered before are added to `redelivered`. `forgets`: the queue's totals are over.
    """

    names: tuple[str, ...] = ()
    arrives: bool = False
    again: bool = False
    forgets: bool = False


class Columns(NamedTuple):
    """How a record is shown in the pipeline's table: a row for each of its messages.

    `each`: columns, and the fields that have a value for each message; `all`: columns, and fields that have one for
    all. `ended`: why its messages left their queue.
    """

    each: tuple[tuple[str, str], ...] = ()
    all: tuple[tuple[str, str], ...] = ()
    ended: str | None = None


class Kind(NamedTuple):
    """Without rows, counts and columns none is made. `apply` names the method of `ShardState`, or of its `part`.

    `unplaces`: its messages are in no index until the leader, or whoever follows it, places them. `lost`: its messages
    are gone, and nobody took them. `columns`: None: it is about no message, and shown as one row. `hidden`: fields that
    say nothing in the log. `added`: so many fields at the end came with later feature levels. Those behind the last of
    them that says anything are not written: so members that do not know them read what does not need them.
    """

    record: type[msgspec.Struct]
    apply: str
    rows: Rows
    counts: Counts
    columns: Columns | None
    part: str | None = None
    unplaces: bool = False
    lost: bool = False
    hidden: tuple[str, ...] = ()
    added: int = 0

    @property
    def name(self) -> str:
        """What people call it."""
        return self.record.__name__.lower()

    @property
    def later(self) -> tuple[str, ...]:
        """The names of those fields."""
        return self.record.__struct_fields__[-self.added :] if self.added else ()


_ITS_MESSAGES: Final = Rows(messages=True)
_DUE: Final = (("due", "due_ats"),)
_MOVES: Final = (("due", "due_ats"), ("expires", "expires_ats"))
_TARGET: Final = (("target", "to"),)


def _removal(record: type[msgspec.Struct], *counted: str, ended: str, lost: bool = False) -> Kind:
    """Make the row of a kind whose messages are gone."""
    columns = Columns(ended=ended)
    return Kind(record, "remove_messages", _ITS_MESSAGES, Counts(counted), columns, lost=lost)


def _of_topics(record: type[msgspec.Struct], apply: str, hidden: tuple[str, ...] = ()) -> Kind:
    """Make the row of a kind about a topic."""
    return Kind(record, apply, Rows(topics=True), Counts(), columns=None, part="topics", hidden=hidden)


KINDS: Final = (
    Kind(
        Produce,
        apply="produce",
        rows=Rows(messages=True, queues=("queue",)),
        counts=Counts(("produced",)),
        columns=Columns(
            all=(
                ("key", "key"),
                ("priority", "priority"),
                ("due", "due_at"),
                ("expires", "expires_at"),
                ("retry", "retry_s"),
            )
        ),
        unplaces=True,
        hidden=("deliveries", "place", "last", "encoding"),
    ),
    Kind(
        Deliver,
        apply="deliver",
        rows=_ITS_MESSAGES,
        counts=Counts(("delivered",), again=True),
        columns=Columns(each=(*_DUE, ("deliveries", "deliveries")), all=(("consumer", "consumer"),)),
    ),
    _removal(Take, "delivered", "taken", ended="taken"),
    _removal(Confirm, "confirmed", ended="confirmed"),
    _removal(Expire, "expired", ended="expired", lost=True),
    _removal(Clear, "cleared", ended="cleared", lost=True),
    Kind(
        Release,
        apply="release",
        rows=_ITS_MESSAGES,
        counts=Counts(("released",)),
        columns=Columns(each=_DUE),
        unplaces=True,
        added=2,
    ),
    Kind(Extend, apply="extend", rows=_ITS_MESSAGES, counts=Counts(), columns=Columns(each=_DUE)),
    Kind(
        Bury,
        apply="bury",
        rows=Rows(messages=True, queues=("to",)),
        counts=Counts(("buried",), arrives=True),
        columns=Columns(each=_MOVES, all=_TARGET, ended="buried"),
        unplaces=True,
        added=4,
    ),
    Kind(Configure, apply="configure", rows=Rows(queues=("queue",)), counts=Counts(), columns=None, added=5),
    Kind(Remove, apply="remove_queue", rows=Rows(queues=("queue",)), counts=Counts(forgets=True), columns=None),
    Kind(Lead, part="facts", apply="lead", rows=Rows(section="tenures"), counts=Counts(), columns=None),
    Kind(Members, part="facts", apply="take_members", rows=Rows(section="members"), counts=Counts(), columns=None),
    Kind(
        Position,
        part="facts",
        apply="take_position",
        rows=Rows(section="readers"),
        counts=Counts(),
        columns=None,
    ),
    Kind(
        Move,
        apply="move",
        rows=Rows(messages=True, queues=("to",)),
        counts=Counts(("moved",), arrives=True),
        columns=Columns(each=_MOVES, all=_TARGET, ended="moved"),
        unplaces=True,
        added=1,
    ),
    Kind(
        Withhold,
        apply="release",
        rows=_ITS_MESSAGES,
        counts=Counts(),
        columns=Columns(each=_DUE),
        unplaces=True,
    ),
    _of_topics(Topic, "set_topic"),
    _of_topics(Append, "append", hidden=("encoding",)),
    _of_topics(Retire, "retire"),
    _of_topics(DropTopic, "drop_topic"),
    _of_topics(Offsets, "set_offsets"),
    _of_topics(DropGroup, "drop_group"),
    _of_topics(Prepare, "prepare", hidden=("puts",)),
    _of_topics(Decide, "decide"),
)
"""Every kind, in the order of its number in the log."""

BY_TYPE: Final = {kind.record: kind for kind in KINDS}

ABSENT_UNLESS_SET: Final = (
    *("consumer", "headers", "attribute", "flag", "producer", "serial"),
    *(name for kind in KINDS for name in kind.later),
)
"""Fields that are shown only where they say something."""

_fields_of: Final = msgspec.structs.astuple
GROWN: Final = frozenset(kind.record for kind in KINDS if kind.added)
"""Records to which later feature levels have added fields."""

LOST: Final[frozenset[type]] = frozenset(kind.record for kind in KINDS if kind.lost)
_ABOUT_MESSAGES: Final = frozenset(kind.record for kind in KINDS if kind.rows.messages)


def messages_of(record: Record) -> tuple[list[int], list[int]]:
    """Give the ids of the messages that `record` is about, and the trans_id of each one's previous record (0: none)."""
    if isinstance(record, Produce):
        return [record.msg_id], [0]
    if type(record) not in _ABOUT_MESSAGES:
        return [], []
    named: Any = record
    return named.msg_ids, named.previous


def as_written(record: msgspec.Struct) -> msgspec.Struct | tuple[Any, ...]:
    """Give what the encoder is given of one of those: itself, or its tag and fields without those that say nothing."""
    kind = BY_TYPE[type(record)]
    fields, defaults = _fields_of(record), kind.record.__struct_defaults__
    silent = 0
    while silent < kind.added and fields[-1 - silent] == defaults[-1 - silent]:
        silent += 1
    if not silent:
        return record
    return (kind.record.__struct_config__.tag, *fields[:-silent])


def shown(trans_id: int, time: float, record: Record) -> dict[str, Any]:
    """One record as an object: its number, kind, time (Unix seconds), and its fields by name.

    A message's `data` is its JSON as it came, or its bytes with `encoding` beside them.
    """
    kind = BY_TYPE[type(record)]
    fields = msgspec.structs.asdict(record)
    for name in kind.hidden:
        del fields[name]
    for name in ABSENT_UNLESS_SET:
        if not fields.get(name, True):
            del fields[name]
    if isinstance(record, Produce):
        del fields["marks"]
        fields.update(record.all_marks() or {})
    if isinstance(record, (Produce, Append)):
        if record.encoding == Encoding.JSON:
            fields["data"] = msgspec.Raw(record.data)
        elif record.encoding == Encoding.TEXT:
            fields["data"] = record.data.decode()
        else:
            fields["encoding"] = "base64"  # which is how JSON encoders here say bytes
    return {"trans_id": trans_id, "kind": kind.name, "time": time, **fields}
