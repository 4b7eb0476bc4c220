"""What a topic's settings do to appends and reads: closing, refusing, and the filters of groups."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.streams.filters import LOOK_BYTES, LOOKED_MAX, Filter
from actors.streams.reading import SERVED_BYTES
from quorate.protocol import Action
from tests.actors.streams.test_reading import OnDisk


def append(shard: OnDisk, **fields: Any) -> dict[str, Any]:
    return shard.ask(Action.APPEND, topic="t", data="x", **fields)


def configure(shard: OnDisk, **fields: Any) -> dict[str, Any]:
    return shard.ask(Action.TOPIC, command="configure", topic="t", **fields)


def test_messages_without_a_key_go_to_partitions_that_are_open() -> None:
    shard = OnDisk(4)
    configure(shard, closed=[0, 3, 3])
    assert [append(shard)["partition"] for _ in range(5)] == [1, 2, 1, 2, 1]
    assert append(shard, partition=3)["error"] == "closed"
    keyed = [append(shard, key=str(number)) for number in range(20)]
    assert {one.get("error") for one in keyed} == {None, "closed"}
    configure(shard, closed=[0, 1, 2, 3])
    assert append(shard)["error"] == "closed"
    configure(shard, closed=[])
    assert append(shard, partition=3)["code"] == 0
    assert shard.replayed().topics.by_name["t"].settings.closed == []


def test_what_is_closed_can_still_be_read_and_a_raw_read_says_that_it_is_closed() -> None:
    shard = OnDisk()
    append(shard)
    configure(shard, closed=[0])
    assert len(shard.ask(Action.READ, topic="t")["messages"]) == 1
    configure(shard, closed=[], accept_append=False)
    assert append(shard)["error"] == "not_accepted"
    assert shard.ask(Action.PRODUCE, queue="t", data=1)["error"] == "not_accepted"
    assert len(shard.ask(Action.READ, topic="t")["messages"]) == 1
    configure(shard, accept_append=True, accept_read=False)
    assert shard.ask(Action.READ, topic="t")["error"] == "not_accepted"
    assert append(shard)["code"] == 0


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"closed": [1]}, "closed: partition 1: there are 1, from 0 on"),
        ({"filters": {"a b": ["x"]}}, "filters: the group 'a b' holds ' '"),
        ({"filters": {"g": ["x" * 4000] * 5}}, "filters: they have 20001 characters, and 16384 are allowed"),
    ],
)
def test_settings_that_can_not_be_are_refused(setting: dict[str, Any], reason: str) -> None:
    shard = OnDisk()
    for command in ("configure", "create"):
        refused = shard.ask(Action.TOPIC, command=command, topic="t", **setting)
        assert refused["error"] == "field_error"
        assert refused["reason"].startswith(reason)


def test_an_append_that_only_asks_changes_nothing() -> None:
    shard = OnDisk(2)
    before = shard.state.trans_id
    assert append(shard, partition=1, command="check")["partition"] == 1
    assert append(shard, partition=7, command="check")["error"] == "wrong_partition"
    assert append(shard, command="look")["error"] == "field_error"
    assert shard.state.trans_id == before


def test_flags_and_long_attributes_are_kept() -> None:
    shard = OnDisk()
    append(shard, flag=-7, attribute="a" * 4096)
    shard.stored(shard.close())
    order = shard.read()
    shard.pump()
    [message] = shard.replies[order]["messages"]
    assert (message["flag"], message["attribute"]) == (-8, "a" * 4096), "bit 0 says that there is an attribute"


ATTRIBUTES = st.text("ab*", max_size=3)


@given(st.lists(ATTRIBUTES, max_size=4), st.none() | ATTRIBUTES)
def test_a_filter_accepts_whole_attributes_and_beginnings(its: list[str], attribute: str | None) -> None:
    wanted = attribute is not None and any(
        attribute.startswith(one[:-1]) if one.endswith("*") else attribute == one for one in its
    )
    assert Filter(its).accepts(attribute) == wanted


@given(
    st.lists(st.sampled_from([None, "a", "ab", "b"]), max_size=30),
    st.integers(0, 30),
    st.integers(1, 200),
    st.booleans(),
)
def test_a_group_reads_each_message_that_its_filter_accepts_once(
    attributes: list[str | None], stored: int, max_bytes: int, raw: bool
) -> None:
    """In memory and from blocks, with messages or frames, however many bytes it asks for."""
    shard = OnDisk(filters={"g": ["a*"]})
    for number, attribute in enumerate(attributes):
        shard.ask(Action.APPEND, topic="t", data=number, attribute=attribute)
        if number == stored:
            shard.stored(shard.close())
    found: list[int] = []
    offset = turns = 0
    while offset < len(attributes):
        order = shard.read(offset=offset, group="g", max_bytes=max_bytes, **({"raw": True} if raw else {}))
        shard.pump()
        reply = shard.replies[order]
        if raw:
            found += range(reply["offset"], reply["offset"] + reply["count"])
            assert reply["next"] > offset
        else:
            found += [one["offset"] for one in reply["messages"]]
        offset, turns = reply["next"], turns + 1
        assert turns < 40
    assert found == [at for at, attribute in enumerate(attributes) if attribute is not None and attribute[0] == "a"]


def test_a_read_looks_at_so_many_messages_that_are_not_accepted() -> None:
    shard = OnDisk(filters={"g": ["a"]})
    for _ in range(3):
        shard.ask(Action.APPEND, topic="t", messages=[{"data": "x"}] * 900)
    reply = shard.ask(Action.READ, topic="t", group="g", offset=0)
    assert (reply["messages"], reply["next"]) == ([], LOOKED_MAX)


def test_what_is_looked_at_in_vain_is_a_part_of_the_turn() -> None:
    """Or a message that no group wants would be looked at for all who wait in one turn."""
    shard = OnDisk(filters={"g": ["a"]})
    waits = [shard.read(group="g", offset=0, wait=50) for _ in range(60)]
    append = shard.call(Action.APPEND, topic="t", messages=[{"data": "x"}] * 900)
    shard.execute([append])
    shard.commit()
    told = sum(wait in shard.replies for wait in waits)
    assert 0 < told <= SERVED_BYTES // (900 * LOOK_BYTES) + 1
    shard.pass_time(1)
    assert all(shard.replies[wait]["next"] == 900 for wait in waits)
