"""The table of kinds: each row says all that is to be known of a kind, and what it names is there."""

from typing import get_args

import msgspec
import pytest

import storage.records
from actors.shard.totals import Totals
from data.schema import NAMES
from storage.kinds import KINDS, Kind
from storage.records import Record
from storage.sections import SECTIONS
from storage.state import ShardState


def fields_of(kind: Kind) -> set[str]:
    return set(kind.record.__struct_fields__)


def test_every_kind_of_record_has_a_row() -> None:
    assert {kind.record for kind in KINDS} == set(get_args(Record))
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    tagged = [
        one for one in vars(storage.records).values() if isinstance(one, type) and issubclass(one, msgspec.Struct)
    ]
    assert {one for one in tagged if one.__struct_config__.tag} == {kind.record for kind in KINDS}


def test_a_row_without_a_column_is_none() -> None:
    said = {"record", "apply", "rows", "counts", "columns"}
    assert {*Kind._fields} - Kind._field_defaults.keys() == said
    for name in said:
        with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{name}'"):
            Kind(**{field: value for field, value in KINDS[0]._asdict().items() if field != name})


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_what_a_row_names_is_there(kind: Kind) -> None:
    state = ShardState()
    assert callable(
        getattr(state, f"_{kind.apply}") if kind.part is None else getattr(getattr(state, kind.part), kind.apply)
    )
    about_messages = {"msg_ids", "previous"} <= fields_of(kind) or kind.name == "produce"
    assert kind.rows.messages == about_messages == (kind.columns is not None)
    assert set(kind.rows.queues) <= fields_of(kind)
    assert kind.rows.section in {None, *(section.key.decode() for section in SECTIONS)}
    rows = kind.rows
    assert rows.messages or rows.queues or rows.section or rows.topics, "what becomes of it when the log is trimmed?"
    assert all(hasattr(Totals(), name) for name in kind.counts.names)
    assert "to" in fields_of(kind) or not kind.counts.arrives
    columns = kind.columns
    if columns is not None:
        assert {column for column, _ in (*columns.each, *columns.all)} <= set(NAMES)
        assert {field for _, field in (*columns.each, *columns.all)} <= fields_of(kind)
