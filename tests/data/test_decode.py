"""Entries to rows, without Spark."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.decode import ROWS_PER_BATCH, Selection, batches, split_entries
from data.schema import ARROW, COLUMNS, DDL
from storage.errors import DamagedError, UnknownFormatError
from storage.kinds import KINDS
from tests.data.records import TIME, LogMaker, every_kind


def rows(entries: list[bytes], selection: Selection | None = None) -> list[dict[str, Any]]:
    return [row for batch in batches(entries, 3, selection or Selection()) for row in batch.to_pylist()]


def test_every_kind_of_record_becomes_rows() -> None:
    found = rows(every_kind().entries)
    assert {row["kind"] for row in found} == {kind.name for kind in KINDS} - {"members"}
    produced = found[2]
    moment = datetime.fromtimestamp(TIME + 2, UTC)
    expected = {
        "shard": 3, "trans_id": 3, "time": moment, "kind": "produce", "queue": "a", "msg_id": 3072, "previous": None,
        "key": "k", "priority": 3, "due": moment, "expires": datetime.fromtimestamp(TIME + 3602, UTC), "retry": 60.0,
        "deliveries": None, "consumer": None, "encoding": "json", "data": b'{"n":1}', "ended": None, "target": None,
        "partition": None, "offset": None,
    }  # fmt: skip
    assert produced == expected
    assert (found[3]["encoding"], found[3]["data"]) == ("bytes", b"\x00\xff")


def test_a_record_about_two_messages_is_two_rows_and_one_about_none_is_one() -> None:
    found = rows(every_kind().entries)
    delivered = [row for row in found if row["kind"] == "deliver"]
    assert [(row["msg_id"], row["previous"], row["trans_id"]) for row in delivered] == [(3072, 3, 5), (4096, 4, 5)]
    assert delivered[0]["consumer"] == "worker"
    [settings] = [row for row in found if row["kind"] == "configure"]
    assert (settings["msg_id"], settings["queue"], settings["encoding"]) == (None, "a", "json")
    assert b'"dead"' in settings["data"]


def test_a_message_of_a_topic_is_a_row_with_its_place() -> None:
    found = [row for row in rows(every_kind().entries) if row["kind"] == "append"]
    places = [(row["queue"], row["partition"], row["offset"], row["key"]) for row in found]
    assert places == [("t", 0, 0, "k"), ("t", 1, 0, None), ("t", 1, 1, None)]
    payloads = [(row["encoding"], row["data"]) for row in found]
    assert payloads == [("json", b'{"n":1}'), ("json", b'"text"'), ("bytes", b"\x00\xff")]
    assert [row["msg_id"] >> 10 for row in found] == [row["trans_id"] for row in found]
    assert rows(every_kind().entries, Selection(has_data=False, kinds=frozenset({"append"})))[0]["data"] is None


def test_why_a_message_left_is_said() -> None:
    ended = {row["kind"]: row["ended"] for row in rows(every_kind().entries) if row["ended"]}
    assert ended == {
        "confirm": "confirmed", "bury": "buried", "move": "moved", "take": "taken", "expire": "expired",
        "clear": "cleared",
    }  # fmt: skip
    [buried] = [row for row in rows(every_kind().entries) if row["kind"] == "bury"]
    assert buried["target"] == "dead"


def test_the_schema_is_one() -> None:
    batch = next(batches(every_kind().entries, 0, Selection()))
    assert batch.schema == ARROW
    assert DDL.count(",") == len(COLUMNS) - 1


@pytest.mark.parametrize(("after", "upto"), [(0, 4), (4, 6), (5, 5), (5, 9), (13, 99), (6, 6)])
def test_records_are_cut_where_a_partition_ends_also_within_an_entry(after: int, upto: int) -> None:
    log = every_kind()
    whole = rows(log.entries)
    assert rows(log.entries, Selection(after, upto)) == [row for row in whole if after < row["trans_id"] <= upto]


def test_queues_kinds_and_columns_are_chosen() -> None:
    log = every_kind()
    of_dead = rows(log.entries, Selection(queues=frozenset({"dead"})))
    assert [row["kind"] for row in of_dead] == ["bury", "move"], "what arrives in it is about it"
    assert {row["queue"] for row in rows(log.entries, Selection(pattern="b|x.*"))} == {"b"}
    assert {row["kind"] for row in rows(log.entries, Selection(kinds=frozenset({"take"})))} == {"take"}
    few = rows(log.entries, Selection(columns=("msg_id", "kind")))
    assert list(few[0]) == ["msg_id", "kind"]
    assert all(row["data"] is None for row in rows(log.entries, Selection(has_data=False)))


def test_batches_are_bounded_in_rows_and_in_bytes() -> None:
    log = LogMaker()
    for _ in range(6):
        log.produce("q", b'"' + b"x" * 6_000_000 + b'"')
    assert [batch.num_rows for batch in batches(log.entries, 0, Selection())] == [3, 3]
    many = LogMaker()
    for _ in range(3 * ROWS_PER_BATCH // 2):
        many.produce("q")
    assert [batch.num_rows for batch in batches(many.entries, 0, Selection())] == [ROWS_PER_BATCH, ROWS_PER_BATCH // 2]


def test_instants_are_right_to_the_microsecond_and_up_to_the_year_9999() -> None:
    log = LogMaker()
    log.time = 1_763_780_000.123457
    log.produce("q")
    log.time = 253_402_210_000.5
    log.produce("q")
    log.time = 253_402_400_000.0
    log.produce("q")
    first, last, past = rows(log.entries)
    assert first["time"] == datetime(2025, 11, 22, 2, 53, 20, 123457, UTC)
    assert last["time"] == datetime(9999, 12, 30, 22, 46, 40, 500000, UTC)
    assert past["time"] == datetime(9999, 12, 31, tzinfo=UTC)
    assert past["expires"] == past["time"]
    assert first["due"].astimezone(timezone(timedelta(hours=14)))
    assert past["due"].astimezone(timezone(timedelta(hours=14))).year == 9999


@given(st.data())
def test_damage_is_never_taken_for_data(data: st.DataObject) -> None:
    entries = every_kind().entries
    index = data.draw(st.integers(0, len(entries) - 1))
    damaged = bytearray(entries[index])
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    kept = damaged[: data.draw(st.sampled_from([len(damaged), at]))]
    with pytest.raises((DamagedError, UnknownFormatError)):
        rows([*entries[:index], bytes(kept), *entries[index + 1 :]])


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(0, 60))
def test_a_part_is_split_into_its_entries_or_refused(entries: list[bytes], cut: int) -> None:
    part = b"".join(len(one).to_bytes(4, "big") + one for one in entries)
    assert [bytes(one) for one in split_entries(part)] == entries
    ends = {0}
    for one in entries:
        ends.add(max(ends) + 4 + len(one))
    if cut < len(part) and cut not in ends:
        with pytest.raises(ValueError, match="ends within an entry"):
            list(split_entries(part[:cut]))


def test_a_time_that_is_no_number_does_not_hide() -> None:
    log = LogMaker()
    log.time = float("nan")
    log.produce("q")
    with pytest.raises(Exception, match=r"nan|NaN|overflow|Float value"):
        rows(log.entries)
