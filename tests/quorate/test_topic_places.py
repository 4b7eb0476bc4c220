"""Readers of a group beside the machine that coordinates them: nobody reads what another has, and all is read."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.streams.groups import GroupMembers
from quorate.streams import EARLIEST, Part, Share, TopicMessage
from quorate.topic_places import Places

SESSION_S = 8.0
PARTITIONS = 3
LENGTH = 7


class Group:
    """Readers, the coordinator, and where the group is. An answer may be lost; a reader may die."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.members = GroupMembers(PARTITIONS)
        self.readers: dict[str, Places] = {}
        self.positions: dict[int, int] = {}
        self.seen: list[tuple[int, int]] = []

    def beat(self, name: str, *, is_lost: bool) -> None:
        reader = self.readers.get(name)
        is_first = reader is None
        if reader is None:
            reader = self.readers[name] = Places(EARLIEST, SESSION_S, self.now)
        owns, wait = reader.beat(self.now, is_first=is_first)
        assert not is_first or not wait
        member = self.members.heartbeat(self.now, name, owns, SESSION_S)
        owned = self.members.told(member)
        if not is_lost:
            positions = {index: self.positions[index] for index in owned if index in self.positions}
            reader.told(Share(owned, member.generation, positions), self.now)

    def read(self, name: str) -> None:
        """As the loop of a reader that has its next message."""
        reader = self.readers.get(name)
        if reader is None:
            return
        reader.done()
        if reader.is_to_commit(self.now):
            self.commit(name, reader)
        if reader.is_to_let_go:
            reader.let_go()
        message = reader.take()
        if message is not None:
            self.seen.append((message.partition, message.offset))
            return
        chosen = reader.to_read()
        if chosen is not None:
            index, start, _ = chosen
            at = 0 if start == EARLIEST else int(str(start))
            messages = [message_at(index, offset) for offset in range(at, min(at + 2, LENGTH))]
            reader.came(index, start, Part(messages, at + len(messages), 0, LENGTH))

    def commit(self, name: str, reader: Places) -> None:
        positions, _ = reader.take_done(self.now)
        member = self.members.members.get(name)
        if member is None or any(index not in member.has for index in positions):
            return  # refused
        for index, at in positions.items():
            self.positions[index] = max(self.positions.get(index, 0), at)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.members.silent(self.now)

    def check(self) -> None:
        self.members.check()
        had = [
            index
            for reader in self.readers.values()
            for index in reader.has
            if self.now < reader._member_until  # who is not heard may not know yet that it has nothing
        ]
        assert len(had) == len({*had}), "a partition has one reader"


def message_at(index: int, offset: int) -> TopicMessage:
    return TopicMessage("t", index, offset, None, 1, 0.0, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["beat", "beat", "read", "read", "read", "lost", "die", "time", "long"]),
            st.sampled_from("abc"),
        ),
        max_size=60,
    )
)
def test_nobody_reads_what_another_has_and_all_is_read(steps: list[tuple[str, str]]) -> None:
    group = Group()
    for what, name in steps:
        if what in ("beat", "lost"):
            group.beat(name, is_lost=what == "lost")
        elif what == "read":
            group.read(name)
        elif what == "die":
            group.readers.pop(name, None)
        else:
            group.pass_time(1.3 if what == "time" else 5.0)
        group.check()
    for _ in range(60):  # then all goes well
        for name in "ab":
            group.beat(name, is_lost=False)
            for _ in range(3):
                group.read(name)
        group.pass_time(1.0)
        group.check()
    assert {*group.seen} == {(index, offset) for index in range(PARTITIONS) for offset in range(LENGTH)}
    assert group.positions == dict.fromkeys(range(PARTITIONS), LENGTH)


def test_alone_each_partition_ends_where_it_ended_at_the_beginning() -> None:
    places = Places(EARLIEST, SESSION_S, 0.0)
    places.alone([0, 1], {0: 3, 1: 0})
    seen: list[Any] = []
    while not places.is_at_end:
        chosen = places.to_read()
        assert chosen is not None
        index, start, wait = chosen
        assert not wait
        at = 0 if start == EARLIEST else int(str(start))
        places.came(index, start, Part([message_at(index, offset) for offset in range(at, at + 2)], at + 2, 0, 9))
        while (message := places.take()) is not None:
            seen.append((message.partition, message.offset))
    assert seen == [(0, 0), (0, 1), (0, 2)]


def test_what_is_behind_a_gap_is_not_read_twice() -> None:
    places = Places(2, SESSION_S, 0.0)
    places.alone([0], None)
    places.came(0, 2, Part([], 5, 5, 9))
    places.came(0, 2, Part([message_at(0, 2)], 3, 0, 9))
    assert places.take() is None, "an answer to an older question is passed over"
    places.came(0, 5, Part([], 5, 0, 5))
    assert places.to_read() == (0, 5, 1.0)


def test_what_is_given_back_is_read_from_where_it_was_left() -> None:
    """A partition is taken back while a body works, and given back before the member has let it go."""
    places = Places(EARLIEST, 30.0, 0.0)
    places.told(Share([0, 1], 1, {}), 0.0)
    places.came(1, EARLIEST, Part([message_at(1, offset) for offset in range(5)], 5, 0, 6))
    assert places.take() == message_at(1, 0)
    places.told(Share([0], 1, {}), 1.0)
    places.told(Share([0, 1], 1, {}), 5.0)
    places.done()
    assert places.take() is None
    assert places.next[1] == 1
    assert places.take_done(9.0)[0] == {1: 1}


def test_a_node_that_does_not_know_of_all_yet_is_asked_again_with_a_wait() -> None:
    places = Places(EARLIEST, SESSION_S, 0.0)
    places.alone([0], {0: 2})
    places.came(0, EARLIEST, Part([], 0, 0, 0))
    places.came(0, 0, Part([], 0, 0, 0))
    assert not places.is_at_end
    assert places.to_read() == (0, 0, 1.0)
    places.came(0, 0, Part([message_at(0, 0), message_at(0, 1)], 2, 0, 2))
    assert places.is_at_end


def test_where_the_latest_was_is_committed_before_a_message_of_it_is_done() -> None:
    places = Places("latest", 30.0, 0.0)
    places.told(Share([0], 1, {}), 0.0)
    places.came(0, "latest", Part([], 5, 0, 5))
    assert places.take_done(1.0)[0] == {0: 5}, "or who goes on for this member would begin later"


def test_partitions_without_messages_do_not_hold_up_one_that_has_some() -> None:
    places = Places(EARLIEST, 30.0, 0.0)
    places.alone([0, 1, 2, 3], None)
    waited = 0.0
    for _ in range(40):
        chosen = places.to_read()
        assert chosen is not None
        index, start, wait = chosen
        waited += wait
        at = 0 if start == EARLIEST else int(str(start))
        places.came(index, start, Part([message_at(2, at)] if index == 2 else [], at + (index == 2), 0, 99))
    assert not waited
    for _ in range(4):
        index, start, wait = places.to_read() or (0, 0, 0.0)
        places.came(index, start, Part([], int(str(start)), 0, 99))
    assert places.to_read() is not None
    assert (places.to_read() or (0, 0, 0.0))[2] == 0.25, "none has any: each is waited at"


def test_nothing_is_let_go_of_before_it_is_committed() -> None:
    places = Places(EARLIEST, 30.0, 0.0)
    places.told(Share([0, 1], 1, {}), 0.0)
    places.came(1, EARLIEST, Part([message_at(1, 0)], 1, 0, 1))
    places.take()
    places.done()
    places.told(Share([], 1, {}), 1.0)
    places.let_go()
    assert [*places.has] == [1]
    assert places.take_done(1.0)[0] == {1: 1}
    places.let_go()
    assert not places.has
    assert not places.is_to_let_go


def test_what_a_filter_lets_nobody_have_is_done_when_nothing_before_it_is_worked_on() -> None:
    """A worker takes many messages before the first is done; those, it says, are `busy`."""
    places = Places(EARLIEST, 30.0, 0.0)
    places.told(Share([0], 1, {0: 0}), 0.0)
    places.came(0, 0, Part([message_at(0, 0)], 1, 0, 9))
    places.came(0, 1, Part([], 5, 0, 9))
    assert places.take() == message_at(0, 0)
    places.busy.add(0)
    places.take()
    places.came(0, 5, Part([], 9, 0, 9))
    assert 9 not in places.take_done(1.0)[0].values(), "the message is worked on yet"
    places.busy.clear()
    places.came(0, 9, Part([], 12, 0, 12))
    assert places.take_done(2.0)[0] == {0: 12}
