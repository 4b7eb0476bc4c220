"""The shards beyond the first have the members of shard 0 in the end, one node at a time, whatever they had before."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.cluster.membership import Membership
from actors.cluster.replicator_settings import ReplicatorSettings
from actors.cluster.root_members import Founder, founding_members, next_members, preferred, shifted, to_be_removed
from net.peers.messages import Hello
from storage.records import Member, Members
from storage.vote_file import Identity

SHARD = 2
NODES = st.dictionaries(st.integers(1, 6), st.integers(1, 3), min_size=1)
"""node_id to how often its disk was replaced."""


def root_of(nodes: dict[int, int]) -> Members:
    members = [Member(n, f"n{n}", 100, 1000 * n + disk, is_voter=True) for n, disk in sorted(nodes.items())]
    return Members("", 9, members, [])


def member(node_id: int, root_disk: int) -> Member:
    return Member(node_id, f"n{node_id}", 102, 7 * node_id, is_voter=True, root_disk_id=root_disk)


def joined(members: Members) -> Members:
    """Every node that is wanted comes, with a disk of its own for this shard."""
    came = [replace(one, disk_id=7 * one.node_id, is_voter=True) for one in members.wanted]
    nodes = sorted([*members.members, *came], key=lambda one: one.node_id)
    return replace(members, members=nodes, wanted=[])


@given(NODES, NODES, st.sets(st.integers(1, 6)))
def test_one_step_after_the_other_leads_to_the_members_of_shard_0(
    now: dict[int, int], wanted: dict[int, int], unknown: set[int]
) -> None:
    had = [member(n, 0 if n in unknown else 1000 * n + disk) for n, disk in sorted(now.items())]
    current, root = Members("", 9, had, []), root_of(wanted)
    for _ in range(40):
        gone = to_be_removed(current, root)
        if gone is not None:
            rest = [one for one in current.members if one.node_id != gone]
            current = replace(current, members=rest, wanted=[one for one in current.wanted if one.node_id != gone])
            continue
        step = next_members(current, root, SHARD)
        if step is None and not current.wanted:
            break
        if step is not None:  # what it changes is about one node
            changed = {*step.members, *step.wanted} ^ {*current.members, *current.wanted}
            assert len({one.node_id for one in changed}) == 1
        current = joined(current) if step is None else step
    assert {one.node_id: one.root_disk_id for one in current.members} == {
        one.node_id: one.disk_id for one in root.members
    }
    assert to_be_removed(current, root) is None
    assert next_members(current, root, SHARD) is None


def test_a_wanted_node_that_has_moved_is_wanted_where_it_is_now() -> None:
    current = Members("", 9, [member(1, 1001)], [Member(2, "old", 102, root_disk_id=2001)])
    root = root_of({1: 1, 2: 1})
    step = next_members(current, root, SHARD)
    assert step is not None
    assert step.wanted == [Member(2, "n2", 102, root_disk_id=2001)] == [shifted(root.members[1], SHARD)]


def test_each_node_should_lead_as_many_shards_as_the_others_or_one_more() -> None:
    for nodes in range(1, 6):
        members = root_of(dict.fromkeys(range(1, nodes + 1), 1))
        led = [preferred(members, shard) for shard in range(12)]
        counts = [led.count(node_id) for node_id in range(1, nodes + 1)]
        assert max(counts) - min(counts) <= 1
    none_votes = replace(members, members=[replace(one, is_voter=False) for one in members.members])
    assert preferred(none_votes, 3) == 0


def hello(node_id: int, cluster_id: int) -> Hello:
    return Hello(2, 0, 1, node_id, 1, cluster_id, 7 * node_id, f"n{node_id}", 102)


OWN = Member(1, "n1", 102, 7)
ROOT = root_of({1: 1, 2: 1, 3: 1})


def founding(founding_id: int, hellos: dict[int, Hello], shard: int = SHARD) -> Founder:
    settings = ReplicatorSettings(shard=shard, shards=4, founding_id=founding_id)
    return Founder(Membership(OWN, None), settings, hellos, lambda: founding_id)


def test_the_founder_alone_founds_a_shard_and_only_when_it_sees_that_nobody_has_it() -> None:
    new, fresh = Identity(0, 1, 7), {2: hello(2, 0), 3: hello(3, 0)}
    assert founding(9, fresh).is_due(new, ROOT, 0, None)
    assert not founding(8, fresh).is_due(new, ROOT, 0, None), "another node has founded the cluster"
    assert not founding(9, fresh).is_due(new, None, 0, None), "there is no cluster yet"
    wanting = replace(root_of({1: 1}), wanted=[Member(2, "n2", 100)])
    assert founding(9, {}).is_due(new, wanting, 0, None), "who is only wanted can't have it"
    assert not founding(9, {2: hello(2, 0)}).is_due(new, ROOT, 0, None), "node 3 may have the shard"
    assert not founding(9, {**fresh, 3: hello(3, 9)}).is_due(new, ROOT, 0, None), "node 3 has it"
    assert not founding(9, fresh).is_due(new, ROOT, 5, None), "there is a log"
    assert not founding(9, fresh).is_due(new, ROOT, 0, 2), "somebody leads"
    assert not founding(9, fresh).is_due(Identity(9, 1, 7), ROOT, 0, None), "it belongs to the cluster"
    without = root_of({2: 1, 3: 1})
    assert not founding(9, fresh).is_due(new, without, 0, None), "it was removed"


def test_a_shard_is_founded_with_the_members_of_shard_0() -> None:
    first = founding_members(OWN, ROOT, SHARD)
    assert first is not None
    assert first.members == [Member(1, "n1", 102, 7, is_voter=True, root_disk_id=1001)]
    assert first.wanted == [shifted(one, SHARD) for one in ROOT.members[1:]]
    assert (first.cluster_id, first.level) == (9, ROOT.level)
    assert founding(9, {}).members(ROOT) == first
    told_to = founding(9, {}).members(None)
    assert (told_to.cluster_id, told_to.members[0].root_disk_id) == (9, 0)
