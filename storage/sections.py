"""What outlives the log beside messages and queues: one row a section. Trimming, snapshots, recovery, check and repair
loop over these.

A section is a part of the state that records change and no message or queue holds: when the log's head goes, its row
says what the records there had made of it. A new one is a row here, and a field of `Facts` that its record's
method changes. Its bytes stand in the table `meta`, and in snapshots behind those of the sections before it: rows are
only added at the end.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from storage.facts import Facts
from storage.records import BASE_LEVEL, FIRST_LEVEL, Members, ReaderPosition
from storage.state import ShardState
from storage.tenures import Tenure, Tenures

_encode: Final = msgspec.msgpack.Encoder().encode

decode_members = msgspec.msgpack.Decoder(Members).decode
decode_tenures = msgspec.msgpack.Decoder(list[Tenure]).decode
decode_readers = msgspec.msgpack.Decoder(dict[str, ReaderPosition]).decode

Rows = tuple[bytes, ...]
"""A row for each section, in the order of `SECTIONS`; empty: there is none."""


class Section(NamedTuple):
    """`key`: of its row in `meta`; `name`: for people. `of_facts` gives what the row holds, None: there is no row.

    `stays`: a row that is there is only replaced, never taken away but by a snapshot.
    """

    key: bytes
    name: str
    decode: Callable[[bytes], Any]
    of_facts: Callable[[Facts], Any]
    into_facts: Callable[[Facts, Any], None]
    stays: bool = False


def _take_members(facts: Facts, members: Members) -> None:
    facts.members = members


def _take_readers(facts: Facts, readers: dict[str, ReaderPosition]) -> None:
    facts.readers = readers


def _take_tenures(facts: Facts, tenures: list[Tenure]) -> None:
    facts.tenures = Tenures(tenures)


SECTIONS: Final = (
    Section(b"members", "the members' row", decode_members, lambda facts: facts.members, _take_members, stays=True),
    Section(b"readers", "the readers' row", decode_readers, lambda facts: facts.readers or None, _take_readers),
    Section(
        b"tenures",
        "the row of who led when",
        decode_tenures,
        lambda facts: facts.tenures.rows or None,
        _take_tenures,
    ),
)
KEYS: Final = [section.key for section in SECTIONS]
NO_ROWS: Final[Rows] = (b"",) * len(SECTIONS)


def rows_of(state: ShardState) -> Rows:
    """Encode the sections of a state."""
    held = [section.of_facts(state.facts) for section in SECTIONS]
    return tuple(b"" if one is None else _encode(one) for one in held)


def rows_with(members: Members) -> Rows:
    """Make the rows of a shard of which only the members are known."""
    return (_encode(members), *NO_ROWS[1:])


def level_of(rows: Rows) -> int:
    """Read from the members' row which feature level the cluster has; the first, where there is none.

    Raises what a decoder raises.
    """
    return decode_members(rows[0]).level if rows and rows[0] else FIRST_LEVEL


def level_fault(level: int, own: int) -> str | None:
    """Why this version, which understands level `own`, can't use data of that level; None if it can."""
    if level > own:
        reason = f"the data use feature level {level}, and this version understands {own}"
        return f"{reason}: run the version that wrote them"
    if level < BASE_LEVEL:
        reason = f"the data use feature level {level}, and this version needs {BASE_LEVEL} at least"
        first = "run version 0.3 on every node, and then `qctl cluster upgrade`, first"
        return f"{reason}: {first}; a node that was down meanwhile runs 0.3 until it has caught up"
    return None


def padded(rows: Rows) -> Rows:
    """Rows that a version sends which knows fewer sections than this one."""
    return rows + NO_ROWS[len(rows) :]


def check(rows: Rows) -> None:
    """Raise what a decoder raises, if a row could not be read again; ValueError for more rows than there are sections.

    More there may be where a newer version sends them, which it does not before all understand its feature level.
    """
    for section, row in zip(SECTIONS, rows, strict=True):
        if row:
            section.decode(row)
