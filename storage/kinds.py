"""One row a kind of record: what it is called, what it does to the state, how it is shown, since when there is it.

A new kind is a class in `records`, a row here and a method of `ShardState`, which notes what it is about to change
(`storage.undo`); nothing else enumerates kinds.
"""

from typing import Any, Final, NamedTuple

import msgspec

from storage.records import (
    FIRST_LEVEL,
    JOBS_LEVEL,
    READERS_LEVEL,
    WORKERS_LEVEL,
    Bury,
    Clear,
    Configure,
    Confirm,
    Deliver,
    Encoding,
    Expire,
    Extend,
    Lead,
    Members,
    Move,
    Position,
    Produce,
    Record,
    Release,
    Remove,
    Take,
    Withhold,
)


class Kind(NamedTuple):
    """`apply` names the method of `ShardState`, `level` is the feature level that the kind needs.

    `unplaces`: its messages are in no index until the leader, or whoever follows it, places them. `hidden`: fields that
    say nothing in the log. `added`: so many fields at the end came with later feature levels. Those behind the last of
    them that says anything are not written: so members that do not know them read what does not need them.
    """

    record: type[msgspec.Struct]
    name: str
    apply: str
    unplaces: bool = False
    level: int = FIRST_LEVEL
    hidden: tuple[str, ...] = ()
    added: int = 0

    @property
    def later(self) -> tuple[str, ...]:
        """The names of those fields."""
        return self.record.__struct_fields__[-self.added :] if self.added else ()


KINDS: Final = (
    Kind(Produce, "produce", "produce", unplaces=True, hidden=("deliveries", "place", "last", "encoding")),
    Kind(Deliver, "deliver", "deliver"),
    Kind(Take, "take", "remove_messages"),
    Kind(Confirm, "confirm", "remove_messages"),
    Kind(Expire, "expire", "remove_messages"),
    Kind(Clear, "clear", "remove_messages"),
    Kind(Release, "release", "release", unplaces=True, added=2),
    Kind(Extend, "extend", "extend"),
    Kind(Bury, "bury", "bury", unplaces=True, added=4),
    Kind(Configure, "configure", "configure", added=4),
    Kind(Remove, "remove", "remove_queue"),
    Kind(Lead, "lead", "lead"),
    Kind(Members, "members", "take_members"),
    Kind(Position, "position", "take_position", level=READERS_LEVEL),
    Kind(Move, "move", "move", unplaces=True, level=WORKERS_LEVEL, added=1),
    Kind(Withhold, "withhold", "release", unplaces=True, level=JOBS_LEVEL),
)
"""Every kind, in the order of its number in the log."""

BY_TYPE: Final = {kind.record: kind for kind in KINDS}

ABSENT_UNLESS_SET: Final = ("consumer", *(name for kind in KINDS for name in kind.later))
"""Fields that are shown only where they say something."""

_fields_of: Final = msgspec.structs.astuple
GROWN: Final = frozenset(kind.record for kind in KINDS if kind.added)
"""Records to which later feature levels have added fields."""


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
    if isinstance(record, Produce) and record.encoding == Encoding.JSON:
        fields["data"] = msgspec.Raw(record.data)
    elif isinstance(record, Produce):
        fields["encoding"] = "base64"  # which is how JSON encoders here say bytes
    return {"trans_id": trans_id, "kind": kind.name, "time": time, **fields}
