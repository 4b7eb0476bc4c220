"""The machines of topics and groups, by hand: no disk, a clock that the test has."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quorate_compiled
from actors.streams import coordinator
from quorate.protocol import Action
from tests.actors.queues.shard import Shard, broker_of

interpreted = pytest.mark.skipif(quorate_compiled.running() == "compiled", reason="compiled code can't be replaced")


def with_topic(partitions: int = 3, **settings: Any) -> Shard:
    shard = Shard()
    shard.broker.context.view.leader_node_id = shard.broker.context.view.node_id
    assert shard.ask(Action.TOPIC, command="create", topic="t", partitions=partitions, **settings)["code"] == 0
    return shard


def append(shard: Shard, *datas: Any, **fields: Any) -> dict[str, Any]:
    return shard.ask(Action.APPEND, topic="t", messages=[{"data": data} for data in datas], **fields)


def heartbeat(shard: Shard, member: str, owns: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    more = {"group": "g", "session": 6, "owns": owns or [], **fields}
    return shard.ask(Action.GROUP, command="heartbeat", topic="t", member=member, **more)


def commit(shard: Shard, positions: dict[str, int], **fields: Any) -> dict[str, Any]:
    return shard.ask(Action.COMMIT, topic="t", group="g", positions=positions, **fields)


# -- appending -------------------------------------------------------------------------------------------------


def test_a_number_is_done_once_and_an_old_one_is_refused() -> None:
    shard = with_topic(1)
    for number in range(1, 21):
        assert append(shard, number, producer="p", number=number)["offsets"] == [number - 1]
    again = append(shard, 20, producer="p", number=20)
    assert (again["offsets"], again["duplicate"]) == ([19], True)
    assert append(shard, 5, producer="p", number=5)["offsets"] == [4]
    assert append(shard, 4, producer="p", number=4)["error"] == "duplicate_number"
    assert append(shard, 1, producer="other", number=1)["offsets"] == [20]


def test_an_append_waits_for_its_commit_and_readers_do_not_see_it_before() -> None:
    shard = with_topic(1)
    shard.commits = False
    order = shard.send(Action.APPEND, topic="t", data="x")
    read = shard.send(Action.READ, topic="t", partition=0, offset=0)
    assert order not in shard.replies
    assert shard.replies[read]["messages"] == []
    shard.commit()
    assert shard.replies[order]["offset"] == 0
    assert [one["data"] for one in shard.ask(Action.READ, topic="t", partition=0, offset=0)["messages"]] == ["x"]


def test_expected_refuses_who_decided_by_old_news() -> None:
    shard = with_topic(1)
    assert append(shard, "a", "b", expected=0)["code"] == 0
    refused = append(shard, "c", expected=1)
    assert (refused["error"], refused["next"]) == ("offset_conflict", 2)


def test_a_produce_to_a_topic_appends_and_says_what_it_can_not_do() -> None:
    shard = with_topic(1)
    assert shard.ask(Action.PRODUCE, queue="t", data="x", key="k")["code"] == 0
    assert shard.ask(Action.PRODUCE, queue="t", data="x", delay=5)["error"] == "is_a_topic"
    assert shard.ask(Action.CONSUME, queue="t")["error"] == "is_a_topic"
    [message] = shard.ask(Action.READ, topic="t", offset=0)["messages"]
    assert (message["data"], message["key"]) == ("x", "k")


# -- reading ---------------------------------------------------------------------------------------------------


def test_a_read_at_the_end_waits_and_then_says_that_there_is_nothing() -> None:
    shard = with_topic(2)
    waits = [shard.send(Action.READ, topic="t", partition=1, offset=0, wait=5) for _ in range(2)]
    shard.pass_time(4)
    append(shard, "x", partition=0)
    assert not any(order in shard.replies for order in waits)
    append(shard, "y", partition=1)
    assert [[one["data"] for one in shard.replies[order]["messages"]] for order in waits] == [["y"], ["y"]]
    late = shard.send(Action.READ, topic="t", partition=1, offset=1, wait=5)
    shard.pass_time(6)
    assert (shard.replies[late]["messages"], shard.replies[late]["next"]) == ([], 1)


def test_who_waits_is_told_when_its_topic_goes() -> None:
    shard = with_topic(1)
    wait = shard.send(Action.READ, topic="t", offset=0, wait=5)
    member = shard.send(Action.GROUP, command="heartbeat", topic="t", group="g", member="a", owns=[0], session=6)
    waits = shard.send(Action.GROUP, command="heartbeat", topic="t", group="g", member="a", owns=[0], session=6, wait=3)
    assert shard.replies[member]["owns"] == [0]
    assert waits not in shard.replies
    shard.ask(Action.TOPIC, command="remove", topic="t")
    assert [shard.replies[order]["error"] for order in (wait, waits)] == ["no_such_topic"] * 2


# -- groups ----------------------------------------------------------------------------------------------------


def test_a_partition_changes_hands_in_two_steps() -> None:
    shard = with_topic(2)
    assert heartbeat(shard, "a")["owns"] == [0, 1]
    assert heartbeat(shard, "b")["owns"] == []
    assert heartbeat(shard, "a", [0, 1])["owns"] == [0], "it is told, and has it still"
    assert heartbeat(shard, "b")["owns"] == []
    assert heartbeat(shard, "a", [0])["owns"] == [0], "it says that it has let it go"
    assert heartbeat(shard, "b")["owns"] == [1]


def test_a_clock_that_leaps_ends_no_wait_for_the_members_of_an_earlier_leader() -> None:
    """The first heartbeat behind it came before the leap was noted, and its member got what another had."""
    shard = with_topic(2)
    assert heartbeat(shard, "a")["owns"] == [0, 1]
    shard.broker = broker_of(shard.state)
    shard.broker.context.view.leader_node_id = shard.broker.context.view.node_id
    shard.pass_time(1)
    assert heartbeat(shard, "b")["owns"] == []
    shard.now += 60
    assert heartbeat(shard, "b")["owns"] == []
    assert heartbeat(shard, "a", [0, 1])["owns"] != []
    shard.pass_time(1)
    assert heartbeat(shard, "b")["owns"] == []


def test_who_is_silent_for_its_session_has_nothing_and_may_not_commit() -> None:
    shard = with_topic(1)
    append(shard, "x", "y")
    generation = heartbeat(shard, "a")["generation"]
    wait = shard.send(Action.GROUP, command="heartbeat", topic="t", group="g", member="b", session=300, wait=100)
    assert wait in shard.replies, "a new member is told at once that it has nothing"
    wait = shard.send(Action.GROUP, command="heartbeat", topic="t", group="g", member="b", session=300, wait=100)
    assert commit(shard, {"0": 1}, member="a", generation=generation)["positions"] == {"0": 1}
    shard.pass_time(5.9)
    assert shard.broker.next_event_at <= shard.now + 1, "time passes, or it would look as if the node stood still"
    assert wait not in shard.replies
    shard.pass_time(0.2)
    assert shard.replies[wait]["owns"] == [0]
    assert shard.replies[wait]["positions"] == {"0": 1}
    assert commit(shard, {"0": 2}, member="a", generation=generation)["error"] == "unknown_member"
    assert heartbeat(shard, "a", [0])["owns"] == []
    assert commit(shard, {"0": 2}, member="a", generation=generation)["error"] == "not_owner"


def test_a_position_never_goes_back_but_by_reset_and_not_while_somebody_reads() -> None:
    shard = with_topic(1)
    append(shard, *range(9))
    assert commit(shard, {"0": 5})["positions"] == {"0": 5}
    assert commit(shard, {"0": 3})["positions"] == {"0": 5}
    assert commit(shard, {"0": 10})["code"] != 0, "it is behind the end"
    heartbeat(shard, "a")
    reset: dict[str, Any] = {"command": "reset", "topic": "t", "group": "g", "offset": "earliest"}
    assert shard.ask(Action.GROUP, **reset)["error"] == "group_in_use"
    assert shard.ask(Action.GROUP, **reset, force=True)["positions"] == {"0": 0}
    assert commit(shard, {"0": 7}, member="a")["error"] == "not_owner", "it would undo the reset"
    assert heartbeat(shard, "a", [0])["owns"] == [], "it is to let go of it"
    assert heartbeat(shard, "a")["positions"] == {"0": 0}
    assert commit(shard, {"0": 1})["error"] == "not_owner"
    assert commit(shard, {"0": 1}, member="a")["positions"] == {"0": 1}


def test_a_new_leader_waits_for_members_that_the_old_one_knew() -> None:
    shard = with_topic(2)
    heartbeat(shard, "a")
    next_one = Shard()
    for trans_id, record in enumerate(shard.log, 1):
        next_one.state.apply(trans_id, record)
    next_one.state.topics.tails.settle(next_one.state.trans_id)
    next_one.broker.ledger.committed = next_one.state.trans_id
    next_one.now = shard.now
    next_one.broker.pass_time(next_one.now)
    assert heartbeat(next_one, "b")["owns"] == []
    assert heartbeat(next_one, "a", [1], session=60)["owns"] == [1], "it has it still"
    next_one.pass_time(6.1)
    assert heartbeat(next_one, "b")["owns"] == [0], "nobody came for it"


def test_silence_does_not_count_while_nothing_could_be_heard() -> None:
    shard = with_topic(1)
    heartbeat(shard, "a")
    shard.broker.pass_time(shard.now)
    shard.now += 20  # the node stood still
    shard.broker.pass_time(shard.now)
    shard.settle()
    assert heartbeat(shard, "b")["owns"] == []
    assert heartbeat(shard, "a", [0])["owns"] == [0]


@interpreted
def test_groups_and_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "GROUPS_MAX", 3)
    monkeypatch.setattr(coordinator, "PLACES_MAX", 8)
    monkeypatch.setattr(coordinator, "MEMBERS_OF_SHARD_MAX", 4)
    shard = with_topic(3)
    assert [heartbeat(shard, "a", group=f"g{n}").get("error") for n in range(3)] == [None, None, "limit_reached"]
    assert commit(shard, {"0": 0})["error"] == "limit_reached"
    more = {"command": "configure", "topic": "t"}
    assert shard.ask(Action.TOPIC, **more, partitions=5)["error"] == "limit_reached"
    assert shard.ask(Action.TOPIC, **more, partitions=4)["code"] == 0
    assert [heartbeat(shard, name, group="g0").get("error") for name in "bcd"] == [None, None, "limit_reached"]
    known = [*grouping_of(shard)]
    assert heartbeat(shard, "e", group="g1")["error"] == "limit_reached"
    shard.ask(Action.GROUP, command="remove", topic="t", group="g1", force=True)
    monkeypatch.setattr(coordinator, "MEMBERS_OF_SHARD_MAX", 3)
    for number in range(5):
        assert heartbeat(shard, "e", group=f"new{number}")["error"] == "limit_reached"
    assert len(grouping_of(shard)) == len(known) - 1, "who is refused makes no group"


def test_what_a_list_shows_is_what_show_shows() -> None:
    shard = with_topic(3)
    for partition in range(3):
        append(shard, *range(4), partition=partition)
    commit(shard, {"0": 4, "1": 1})
    shard.pass_time(10)
    [listed] = shard.ask(Action.GROUP, command="list", topic="t")["groups"]
    [shown] = shard.ask(Action.GROUP, command="show", topic="t", group="g")["groups"]
    assert (listed["lag"], listed["lag_s"]) == (7, 10.0)
    assert [(row.get("position"), row.get("lag", 0)) for row in shown.pop("partitions")] == [(4, 0), (1, 3), (None, 4)]
    assert listed == shown
    [topic] = shard.ask(Action.TOPIC, command="list")["topics"]
    assert (topic["messages"], topic["lag"], topic["groups"]) == (12, 7, 1)


# -- settings and retention ------------------------------------------------------------------------------------


def test_creating_what_is_there_is_no_fault_unless_it_is_to_be_otherwise() -> None:
    shard = with_topic(3, keep_s=60)
    create = {"command": "create", "topic": "t"}
    assert shard.ask(Action.TOPIC, **create)["keep_s"] == 60
    assert shard.ask(Action.TOPIC, **create, partitions=3)["code"] == 0
    assert shard.ask(Action.TOPIC, **create, partitions=4)["error"] == "topic_exists"
    assert shard.ask(Action.TOPIC, command="configure", topic="t", partitions=2)["error"] == "field_error"


def test_messages_go_when_their_time_is_over_but_not_those_of_a_group() -> None:
    shard = with_topic(1, keep_s=60, keep_for_groups=True)
    append(shard, *range(4))
    commit(shard, {"0": 2})
    shard.pass_time(75)
    [partition] = shard.ask(Action.TOPIC, command="show", topic="t")["partitions"]
    assert (partition["first"], partition["next"]) == (2, 4)
    refused = shard.ask(Action.READ, topic="t", offset=1)
    assert (refused["error"], refused["next"]) == ("trimmed", 2)
    shard.ask(Action.TOPIC, command="configure", topic="t", keep_for_groups=False)
    shard.pass_time(15)
    [partition] = shard.ask(Action.TOPIC, command="show", topic="t")["partitions"]
    assert (partition["first"], partition["next"], partition["messages"]) == (4, 4, 0)
    assert append(shard, "on")["offsets"] == [4]


# -- all together ----------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "beat", "beat", "commit", "leave", "time", "trim", "grow"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_log_says_all_that_the_state_does(steps: list[tuple[str, int, int]]) -> None:
    shard = with_topic(3)
    partitions = 3
    owns: dict[str, list[int]] = {}
    for what, one, two in steps:
        name = f"m{one % 3}"
        if what == "append":
            append(shard, *range(two + 1), partition=one % partitions)
        elif what == "beat":
            reply = heartbeat(shard, name, owns.get(name))
            assert reply["code"] == 0
            owns[name] = reply["owns"]
        elif what == "commit":
            commit(shard, {str(one % partitions): two})
        elif what == "leave":
            shard.ask(Action.GROUP, command="leave", topic="t", group="g", member=name)
            owns.pop(name, None)
        elif what == "time":
            shard.pass_time(two)
            owns = owns if two < 3 else {}
        elif what == "trim":
            shard.ask(Action.TOPIC, command="trim", topic="t", partition=one % partitions, offset=two)
        elif partitions < 5:
            partitions += 1
            shard.ask(Action.TOPIC, command="configure", topic="t", partitions=partitions)
        for members in grouping_of(shard).values():
            members.check()
        shard.state.check()
    replayed = shard.replayed()
    its, there = shard.state.topics.by_name["t"], replayed.topics.by_name["t"]
    replayed.topics.tails.settle(replayed.trans_id)
    assert [(one.first, one.next, one.next_position) for one in its.partitions] == [
        (one.first, one.next, one.next_position) for one in there.partitions
    ]
    assert {name: group.offsets for name, group in its.groups.items()} == {
        name: group.offsets for name, group in there.groups.items()
    }


def grouping_of(shard: Shard) -> dict[Any, Any]:
    """Find the members that the coordinator knows."""
    [found] = [machine for machine in shard.broker.machines if Action.GROUP in machine.actions()]
    known: dict[Any, Any] = found._coordinator.known  # type: ignore[attr-defined]
    return known
