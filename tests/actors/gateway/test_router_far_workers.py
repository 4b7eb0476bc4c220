"""Requests to workers of other nodes, and what workers tell each other of leaders and members."""

import msgspec

from actors.messages.peers import CutPeer, Introduce, PeerSaid, RootSettled, SendPeers
from net.peers.greeting import Greeting
from net.peers.link import PeerLink
from net.peers.messages import RootMembers, ShardLeader, ShardLeaders
from quorate.protocol import Action, Request
from storage.records import LEVEL, Member, Members
from storage.vote_file import Identity
from tests.actors.gateway.workers import PORT, SHARDS, Asker, End, Node, Stranger, produce, queue_in
from tests.net.peers.wire import TERMS, TRUSTED


def cluster() -> tuple[Node, Node]:
    """Two nodes; node 1 leads shard 0, node 2 the others."""
    first = Node(1, leads=False)
    second = Node(2, first.runtime, leads=False)
    members = (Member(1, "n1", PORT, 11), Member(2, "n2", PORT, 22))
    for node in (first, second):
        node.others = {"n1": first, "n2": second}
        for shard, worker in node.workers.items():
            at = tuple(Member(one.node_id, one.host, PORT + shard, one.disk_id) for one in members)
            own = at[node.node_id - 1]
            known = Introduce(own, Identity(9, node.node_id, 0), at, False)
            for actor in (worker.links, worker.news):
                actor.actor_ref.tell(known)
            worker.lead(1 if shard == 0 else 2, 1)
    first.runtime.crank(1.0)
    return first, second


def test_a_request_goes_straight_to_the_worker_of_another_node_that_leads_its_shard() -> None:
    first, second = cluster()
    first.ask(0, Asker(), produce(queue_in(1)))
    assert first.executed(1) == [], "not by way of this node's worker of the shard"
    [call] = second.executed(1)
    second.done(1, call, msg_id=1024 + 1)
    [reply] = first.replies(0)
    assert reply.msg_id == 1024 + 1
    first.ask(0, Asker(), produce(queue_in(2)))
    [call] = second.executed(2)
    second.done(2, call, msg_id=1024 + 2)
    assert [reply.msg_id for reply in first.replies(0)] == [1024 + 2]


def test_what_asks_about_the_node_is_asked_of_its_own_workers() -> None:
    first, second = cluster()
    first.ask(0, Asker(), Request(Action.NODE_STATUS))
    assert [len(first.executed(shard)) for shard in range(SHARDS)] == [1, 1, 1]
    assert [len(second.executed(shard)) for shard in range(SHARDS)] == [0, 0, 0]


def test_a_new_leader_is_heard_of_from_another_node_while_the_own_worker_is_down() -> None:
    first, second = cluster()
    second.workers[1].lead(1, 2)
    first.workers[1].lead(1, 2)
    first.runtime.crank(1.0)
    first.ask(0, Asker(), produce(queue_in(1)))
    [call] = first.executed(1)
    first.done(1, call, msg_id=1)
    first.kill(1)
    first.workers[0].said.take(SendPeers)
    second.workers[1].lead(2, 3)
    second.runtime.crank(1.0)
    [told] = [m for m in second.workers[0].said.take(SendPeers) if isinstance(m.message, ShardLeaders)][-1:]
    assert told.node_ids == (1,)
    first.workers[0].news.actor_ref.tell(PeerSaid(2, told.message, 9, 22))
    first.runtime.crank(1.0)
    first.ask(0, Asker(), produce(queue_in(1)))
    assert len(second.executed(1)) == 1
    assert first.workers[0].said.take(SendPeers) == [], "what a node has told it has told everyone"


def test_the_members_of_shard_0_reach_all_workers_and_an_older_word_changes_nothing() -> None:
    first, second = cluster()
    new = Members("", 9, [Member(1, "n1", PORT, 11, True)], [])
    old = Members("", 9, [Member(1, "n1", PORT, 11, True), Member(2, "n2", PORT, 22, True)], [])
    first.workers[0].news.actor_ref.tell(RootSettled(7, new))
    first.runtime.crank()
    for shard in (1, 2):
        assert first.workers[shard].replicator.take(RootSettled) == [RootSettled(7, new)]
    [told] = [m.message for m in first.workers[1].said.take(SendPeers) if isinstance(m.message, RootMembers)]
    second.workers[1].news.actor_ref.tell(PeerSaid(1, told, 9, 11))
    second.runtime.crank()
    assert second.workers[1].replicator.take(RootSettled) == [RootSettled(7, new)]
    first.workers[0].news.actor_ref.tell(RootSettled(5, old))
    first.runtime.crank()
    assert first.workers[1].replicator.take(RootSettled) == []


def test_a_stranger_who_is_no_member_is_refused_by_a_worker_of_another_shard() -> None:
    first, second = cluster()
    second.node_id = 7
    here, there = End(first.runtime), End(first.runtime)
    here.other, there.other = there, here
    there.link = first.workers[0].links.accepted(there, TRUSTED)
    stranger = Stranger()
    here.link = PeerLink(here, stranger, TERMS, is_dialler=True, origin=TRUSTED)
    here.link.introduce(Greeting(level=LEVEL, shard=1, shards=SHARDS).hello(7, 1, 0, cluster_id=9))
    first.runtime.crank()
    assert "no member" in stranger.told[0]


def known(node: Node, shard: int, *members: Member, addresses: dict[int, tuple[str, int]] | None = None) -> None:
    """What that worker's own shard says of the members."""
    own = Member(node.node_id, f"n{node.node_id}", PORT + shard, 0)
    said = Introduce(own, Identity(9, node.node_id, 0), members, False, addresses=addresses or {})
    for actor in (node.workers[shard].links, node.workers[shard].news):
        actor.actor_ref.tell(said)
    node.runtime.crank(1.0)


def test_a_leader_that_the_own_log_does_not_know_yet_is_reached_when_it_does() -> None:
    first, second = cluster()
    own, other = Member(1, "n1", PORT, 11), Member(2, "n2", PORT, 22)
    known(first, 0, own)
    second.workers[1].lead(2, 2)
    first.workers[1].lead(2, 2)
    first.runtime.crank(1.0)
    known(first, 0, own)
    first.ask(0, Asker(), produce(queue_in(1)))
    assert second.executed(1) == []
    known(first, 0, own, other)
    assert len(second.executed(1)) == 1


def test_a_node_that_has_moved_is_dialled_where_the_log_says() -> None:
    first, second = cluster()
    own, moved = Member(1, "n1", PORT, 11), Member(2, "moved", PORT, 22)
    first.others = {"n1": first, "n2": Node(7, first.runtime), "moved": second}
    first.others["n2"].workers.clear()
    for end in second.workers[1].ends:
        end.abort()
    for listed in ({2: ("n2", PORT)}, {}):
        known(first, 0, own, moved, addresses=listed)
    known(first, 0, own, moved, addresses={2: ("n2", PORT)})
    first.ask(0, Asker(), produce(queue_in(1)))
    first.runtime.crank(3.0)
    assert len(second.executed(1)) == 1


def test_who_can_not_be_dialled_back_is_not_let_in() -> None:
    first, second = cluster()
    nobody = Node(7, first.runtime)
    nobody.workers.clear()
    second.others = {"n1": nobody, "n2": second}
    for node in (first, second):
        for worker in node.workers.values():
            for end in worker.ends:
                end.abort()
    first.runtime.crank(1.0)
    first.ask(0, Asker(), produce(queue_in(1)))
    first.runtime.crank(5.0)
    assert second.executed(1) == [], "its answer would not come back"
    assert [reply.error for reply in first.replies(0)] == ["no_leader"], "so it was not done, for certain"


def test_members_of_another_cluster_count_only_from_this_nodes_shard_0() -> None:
    first, _ = cluster()
    mine = Members("", 9, [Member(1, "n1", PORT, 11, True)], [])
    other = Members("", 8, [Member(2, "n2", PORT, 22, True)], [])
    first.workers[1].news.actor_ref.tell(PeerSaid(2, RootMembers(50, msgspec.msgpack.encode(other)), 9, 22))
    first.runtime.crank()
    assert len(first.workers[1].replicator.take(RootSettled)) == 1, "there is no other yet"
    first.workers[0].news.actor_ref.tell(RootSettled(3, mine))
    first.runtime.crank()
    assert first.workers[1].replicator.take(RootSettled) == [RootSettled(3, mine)]
    first.workers[1].news.actor_ref.tell(PeerSaid(2, RootMembers(60, msgspec.msgpack.encode(other)), 9, 22))
    first.runtime.crank()
    assert first.workers[1].replicator.take(RootSettled) == []
    first.workers[1].news.actor_ref.tell(PeerSaid(4, RootMembers(70, msgspec.msgpack.encode(mine))))
    first.runtime.crank()
    assert first.workers[1].replicator.take(RootSettled) == [], "node 4 is no member"


def test_what_workers_of_other_nodes_say_counts_from_a_members_disk_and_within_reason() -> None:
    first, _ = cluster()
    news, cut = first.workers[1].news, first.workers[1].said
    before = news._leaders.copy()
    far_off = ShardLeader(2, 2**53 - 1, 2, "evil.example", 666)
    of_own = ShardLeader(1, 9, 2, "evil.example", 666)
    for disk_id, rows in ((99, [ShardLeader(2, 9, 2, "evil.example", 666)]), (22, [far_off, of_own])):
        news.actor_ref.tell(PeerSaid(2, ShardLeaders(rows), 9, disk_id))
    first.runtime.crank()
    assert news._leaders == before
    for garbage in (b"\xc1", b"\x91\xa2\xff\xff", b""):
        news.actor_ref.tell(PeerSaid(2, RootMembers(50, garbage), 9, 22))
    first.runtime.crank()
    assert [one.node_id for one in cut.take(CutPeer)] == [2, 2, 2]
