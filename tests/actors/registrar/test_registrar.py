"""When it is looked where MetaQ's groups are: one piece after the other, and seldom where that fails."""

from actors.messages.registering import GroupsRead
from actors.registrar.registrar import GROUPS_MAX, GROUPS_S, GROUPS_SHARE, PLACES_MAX, Groups
from quorate.stream_replies import MetaqGroupRow, MetaqPlace


def asked() -> Groups:
    groups = Groups()
    groups.topics = ["t"]
    assert groups.next(100.0) == ""
    return groups


def test_pieces_follow_each_other_and_one_is_asked_at_a_time() -> None:
    groups = asked()
    assert groups.next(1000.0) is None, "the answer is not there yet"
    assert groups.read(100.3, GroupsRead(0, {"t": [MetaqGroupRow("a", 1)]}, "a")) is None
    assert groups.next(100.3) is None
    assert groups.next(100.4 + 0.3 / GROUPS_SHARE) == "a"
    whole = groups.read(120.0, GroupsRead(0, {"t": [MetaqGroupRow("b", 1)]}))
    assert whole is not None
    assert [row.group for row in whole["t"]] == ["a", "b"]


def test_what_fails_at_once_is_not_asked_again_at_once() -> None:
    """Without rights in ZooKeeper, say: at its beginning, and in the middle."""
    groups = asked()
    assert groups.read(100.001, GroupsRead(0, {}, "")) is None
    assert groups.next(99.9 + GROUPS_S) is None
    assert groups.next(100.1 + GROUPS_S) == ""
    groups.read(111.0, GroupsRead(0, {}, "a"))
    assert groups.next(200.0) == "a"
    assert groups.read(200.001, GroupsRead(0, {}, "a")) is None
    assert groups.next(199.9 + GROUPS_S) is None


def test_what_is_kept_of_a_topic_is_bounded() -> None:
    groups = asked()
    many = [MetaqGroupRow(f"g{number}", 1) for number in range(GROUPS_MAX + 9)]
    large = [MetaqGroupRow(f"l{number}", 1, [MetaqPlace(0, 0, 0, 0, None)] * 9000) for number in range(9)]
    whole = groups.read(101.0, GroupsRead(0, {"t": many, "u": large}))
    assert whole is not None
    assert len(whole["t"]) == GROUPS_MAX
    assert sum(len(row.partitions) for row in whole["u"]) <= PLACES_MAX
