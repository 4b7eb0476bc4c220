"""One row a kind of record: what it is called, what it does to the state, how it is shown, since when there is it.

A new kind is a class in `records`, a row here and a method of `ShardState`; nothing else enumerates kinds.
"""

from typing import Any, Final, NamedTuple

import msgspec

from storage.records import (
    FIRST_LEVEL,
    READERS_LEVEL,
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
    Position,
    Produce,
    Record,
    Release,
    Remove,
    Take,
)


class Kind(NamedTuple):
    """`apply` names the method of `ShardState`, `level` is the feature level that the kind needs.

    `unplaces`: its messages are in no index until the leader, or whoever follows it, places them. `hidden`: fields that
    say nothing in the log.
    """

    record: type[msgspec.Struct]
    name: str
    apply: str
    unplaces: bool = False
    level: int = FIRST_LEVEL
    hidden: tuple[str, ...] = ()


KINDS: Final = (
    Kind(Produce, "produce", "produce", unplaces=True, hidden=("deliveries", "place", "last", "encoding")),
    Kind(Deliver, "deliver", "deliver"),
    Kind(Take, "take", "remove_messages"),
    Kind(Confirm, "confirm", "remove_messages"),
    Kind(Expire, "expire", "remove_messages"),
    Kind(Clear, "clear", "remove_messages"),
    Kind(Release, "release", "release", unplaces=True),
    Kind(Extend, "extend", "extend"),
    Kind(Bury, "bury", "bury", unplaces=True),
    Kind(Configure, "configure", "configure"),
    Kind(Remove, "remove", "remove_queue"),
    Kind(Lead, "lead", "lead"),
    Kind(Members, "members", "take_members"),
    Kind(Position, "position", "take_position", level=READERS_LEVEL),
)
"""Every kind, in the order of its number in the log."""

BY_TYPE: Final = {kind.record: kind for kind in KINDS}

ABSENT_UNLESS_SET: Final = ("marks", "consumer")
"""Fields that are shown only where they say something."""


def shown(trans_id: int, time: float, record: Record) -> dict[str, Any]:
    """One record as an object: its number, kind, time (Unix seconds), and its fields by name.

    A message's `data` is its JSON as it came, or its bytes with `encoding` beside them.
    """
    kind = BY_TYPE[type(record)]
    fields = msgspec.structs.asdict(record)
    for name in kind.hidden:
        del fields[name]
    for name in ABSENT_UNLESS_SET:
        if fields.get(name, False) is None:
            del fields[name]
    if isinstance(record, Produce) and record.encoding == Encoding.JSON:
        fields["data"] = msgspec.Raw(record.data)
    elif isinstance(record, Produce):
        fields["encoding"] = "base64"  # which is how JSON encoders here say bytes
    return {"trans_id": trans_id, "kind": kind.name, "time": time, **fields}
