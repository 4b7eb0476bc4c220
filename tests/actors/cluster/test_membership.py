"""Who belongs to the cluster: one change after the other, and who is let in."""

from typing import Any

from msgspec.structs import replace

from actors.cluster.membership import Membership
from actors.cluster.progress import Progress
from net.peers.messages import PEER_MAJOR, Hello
from storage import entry_codec
from storage.records import BASE_LEVEL, FIRST_LEVEL, Member, Members, Remove

OWN = Member(1, "a", 1, 11, is_voter=True)
OTHER = Member(2, "b", 1, 22, is_voter=True)


def members(*nodes: Member, wanted: tuple[Member, ...] = ()) -> Members:
    return Members("", 9, list(nodes), list(wanted))


def hello(node_id: int = 2, disk_id: int = 22, cluster_id: int = 9, **changed: int) -> Hello:
    fields: dict[str, Any] = {"major": PEER_MAJOR, "minor": 0, "node_type": 1, "to": 1, **changed}
    return Hello(**fields, node_id=node_id, cluster_id=cluster_id, disk_id=disk_id, host="h", port=1)


def test_a_wanted_node_becomes_a_member_when_it_is_met_and_votes_when_it_has_caught_up() -> None:
    membership = Membership(OWN, members(OWN))
    change = membership.add(Member(2, "b", 1))
    assert change.members is not None
    membership.replaced(change.members)
    assert membership.next_step({}, {}, 5000) is None
    met = membership.next_step({2: hello(cluster_id=0)}, {}, 5000)
    assert met == members(OWN, Member(2, "b", 1, 22))
    membership.replaced(met)
    its = Progress(0.0)
    its.sent, its.match, its.echo = 3000, 3000, 1.0
    assert membership.next_step({}, {2: its}, 5000) is None
    its.match = 4500
    assert membership.next_step({}, {2: its}, 5000) == members(OWN, OTHER)


def test_of_several_shards_a_node_needs_as_many_ports() -> None:
    membership = Membership(OWN, members(Member(1, "a", 1101, 11, True)))
    for port, says in (
        (1101, "is node 1's"),
        (1104, "node 1's address"),
        (1098, "node 1's address"),
        (65533, "no 4 ports"),
    ):
        refusal = membership.add(Member(2, "a", port), 4).refusal
        assert says in (refusal or "") or port == 1101
        assert refusal
    assert membership.add(Member(2, "a", 1105), 4).members is not None
    assert membership.add(Member(2, "b", 1102), 4).members is not None
    assert membership.add(Member(2, "a", 1102)).members is not None


def test_members_count_as_soon_as_they_are_in_the_log_and_go_with_a_cut() -> None:
    membership = Membership(OWN, members(OWN))
    entry = entry_codec.stored_entry(entry_codec.encode(1, 7, 1.0, [members(OWN, OTHER)]))
    assert membership.appended(entry)
    assert membership.voters == [1, 2]
    assert membership.since == 7
    assert membership.cut(6)
    assert membership.voters == [1]
    membership.appended(replace(entry, is_members=True))
    membership.committed(7)
    assert not membership.cut(7)
    assert membership.voters == [1, 2]
    other = entry_codec.stored_entry(entry_codec.encode(1, 8, 1.0, [Remove("q")]))
    assert not membership.appended(other)
    assert not membership.appended(replace(other, is_members=False))


def test_the_level_that_never_falls_again_is_that_of_committed_members() -> None:
    membership = Membership(OWN, members(OWN))
    raised = replace(members(OWN), level=BASE_LEVEL)
    membership.appended(entry_codec.stored_entry(entry_codec.encode(1, 7, 1.0, [raised])))
    assert (membership.level, membership.settled_level) == (BASE_LEVEL, FIRST_LEVEL)
    membership.committed(7)
    assert membership.settled_level == BASE_LEVEL
    assert Membership(OWN, None).settled_level == FIRST_LEVEL


def test_a_node_with_a_new_disk_is_not_its_old_self() -> None:
    membership = Membership(OWN, members(OWN, OTHER))
    assert membership.electors == {1, 2}
    emptied = Membership(Member(1, "a", 1, 99), members(OWN))
    assert emptied.electors == frozenset(), "it was the only voter when the cluster was founded, under another disk"


def test_members_that_only_the_journal_had_go_with_a_cut_after_a_restart() -> None:
    membership = Membership(OWN, members(OWN), [(7, members(OWN, OTHER))])
    assert membership.voters == [1, 2]
    assert membership.since == 7
    assert membership.cut(5)
    assert membership.voters == [1]


def test_what_can_not_be_added_or_removed_is_said() -> None:
    membership = Membership(OWN, members(OWN, OTHER))
    assert "is a member already" in str(membership.add(Member(2, "c", 1)).refusal)
    assert "is node 2's address" in str(membership.add(Member(3, "b", 1)).refusal)
    assert "is no member" in str(membership.remove(5).refusal)
    membership.replaced(members(OWN))
    assert "the only one that votes" in str(membership.remove(1).refusal)
