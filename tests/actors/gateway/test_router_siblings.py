"""The links between a node's workers, and requests over them."""

from actors.messages.calls import ClientGone
from actors.messages.lifecycle import Stop, Stopped
from net.peers.greeting import Greeting
from net.peers.link import PeerLink
from quorate.protocol import Action, Request
from storage.records import LEVEL
from tests.actors.cranked import Probe, ref
from tests.actors.gateway.workers import SHARDS, Asker, End, Node, Stranger, Worker, produce, queue_in
from tests.net.peers.wire import TERMS, TRUSTED


def test_a_request_goes_to_its_shard_and_its_answer_comes_back() -> None:
    node = Node()
    for shard in range(SHARDS):
        node.ask(0, Asker(), produce(queue_in(shard)))
        [call] = node.executed(shard)
        assert call.request.queue == queue_in(shard)
        node.done(shard, call, msg_id=1024 + shard)
        [reply] = node.replies(0)
        assert reply.msg_id == 1024 + shard


def test_a_produce_to_a_virtual_queue_is_stored_in_each_queues_shard() -> None:
    node = Node()
    node.ask(1, Asker(), produce("all"))
    stored = 0
    for shard in range(SHARDS):
        for call in node.executed(shard):
            stored += 1
            node.done(shard, call, msg_id=1024 * stored + shard)
    [reply] = node.replies(1)
    assert stored == len(reply.msg_ids or ()) == 3


def test_a_client_that_leaves_waits_in_no_shard() -> None:
    node = Node()
    client = Asker()
    node.ask(0, client, Request(Action.CONSUME, queue=queue_in(1), wait=60.0))
    [call] = node.executed(1)
    node.workers[0].front.actor_ref.tell(ClientGone(client))
    node.runtime.crank()
    [gone] = node.workers[1].owner.take(ClientGone)
    assert gone.client is call.client


def test_a_worker_that_dies_leaves_writes_unknown_and_looks_are_asked_again() -> None:
    node = Node()
    node.ask(0, Asker(), produce(queue_in(1)), Request(Action.MONITOR, queue=queue_in(1)))
    assert len(node.executed(1)) == 2
    node.kill(1)
    [reply] = node.replies(0)
    assert reply.error == "unknown_outcome"
    node.ask(0, Asker(), produce(queue_in(2)))
    assert len(node.executed(2)) == 1, "the other shards do not notice"
    node.restarts = 1
    Worker(node, 1)
    node.runtime.crank(1.0)
    [call] = node.executed(1)
    assert call.request.action == Action.MONITOR
    node.runtime.crank(1.0)
    node.ask(1, Asker(), produce(queue_in(0)))
    assert len(node.executed(0)) == 1, "the new worker has found its siblings"


def test_an_answer_waits_for_the_way_back() -> None:
    node = Node()
    node.workers[1].ends[0].abort()  # what one of the others says to shard 1; its own links stay
    node.runtime.crank()
    node.ask(0, Asker(), produce(queue_in(1)))
    node.ask(2, Asker(), produce(queue_in(1)))
    node.runtime.crank(0.05)
    for call in node.executed(1):
        node.done(1, call, msg_id=1025)
    for worker in (0, 2):
        assert [reply.msg_id for reply in node.replies(worker)] == [1025]
    for end in node.workers[0].ends:
        end.abort()  # nothing that is said to shard 0 arrives
    node.blocked = {0}
    node.ask(0, Asker(), produce(queue_in(1)))
    node.runtime.crank(1.0)
    [call] = node.executed(1)
    node.done(1, call, msg_id=2049)
    assert node.replies(0) == []
    node.blocked = set()
    node.runtime.crank(1.0)
    [reply] = node.replies(0)
    assert reply.msg_id == 2049, reply


def test_a_shard_that_stays_away_is_refused_after_a_while() -> None:
    node = Node()
    node.kill(1)
    node.ask(0, Asker(), produce(queue_in(1)))
    node.runtime.crank(1.5)
    assert node.replies(0) == []
    node.runtime.crank(1.0)
    [reply] = node.replies(0)
    assert reply.error == "no_leader"


def test_a_consumer_over_shards_that_gets_one_is_forgotten_by_the_others() -> None:
    node = Node()
    queues = [queue_in(shard) for shard in range(SHARDS)]
    node.ask(0, Asker(), Request(Action.CONSUME, queues=queues, wait=60.0))
    for shard in range(SHARDS):
        [call] = node.executed(shard)
        assert call.request.wait is None
        node.done(shard, call, queue=queues[shard])
    watches = [node.executed(shard) for shard in range(SHARDS)]
    assert [[one.request.action for one in calls] for calls in watches] == [[Action.WATCH]] * SHARDS
    node.done(2, watches[2][0], queue=queues[2], count=1)
    [call] = node.executed(2)
    node.done(2, call, queue=queues[2], msg_id=1024 + 2)
    [reply] = node.replies(0)
    assert reply.msg_id == 1024 + 2
    for shard in range(SHARDS):
        assert len(node.workers[shard].owner.take(ClientGone)) == 1


def test_a_worker_stops_when_the_others_have_answered_its_clients() -> None:
    node = Node()
    asked_by = Probe()
    node.ask(0, Asker(), produce(queue_in(1)))
    [call] = node.executed(1)
    node.workers[0].front.actor_ref.tell(Stop(ref(asked_by)))
    node.runtime.crank()
    assert node.workers[0].owner.take(Stop) == []
    node.done(1, call, msg_id=1025)
    assert [reply.msg_id for reply in node.replies(0)] == [1025]
    [stop] = node.workers[0].owner.take(Stop)
    stop.reply_to.tell(Stopped("replicator"))
    assert asked_by.told


def test_a_worker_that_waits_for_others_before_it_stops_serves_them_on() -> None:
    """Two that stop at the same time gave back what the other asked, until one was gone with it."""
    node = Node()
    stopper = Probe()
    node.ask(1, Asker(), produce(queue_in(0)))
    node.workers[1].front.actor_ref.tell(Stop(ref(stopper)))
    node.ask(0, Asker(), produce(queue_in(1)))
    [here] = node.executed(1)
    node.done(1, here, msg_id=1025)
    assert [reply.msg_id for reply in node.replies(0)] == [1025]
    assert node.workers[1].owner.take(Stop) == []
    [there] = node.executed(0)
    node.done(0, there, msg_id=1024)
    assert [reply.msg_id for reply in node.replies(1)] == [1024]
    assert len(node.workers[1].owner.take(Stop)) == 1
    node.ask(0, Asker(), produce(queue_in(1)))
    assert node.executed(1) == [], "from here on it serves nobody"


def test_a_worker_that_is_about_to_end_still_has_answers_for_the_others() -> None:
    node = Node()
    node.ask(0, Asker(), produce(queue_in(1)))
    [call] = node.executed(1)
    node.workers[1].links.actor_ref.tell(Stop(ref(Probe())))
    node.runtime.crank()
    node.done(1, call, msg_id=1025)
    assert [reply.msg_id for reply in node.replies(0)] == [1025], "its Router stopped in time, its links do not matter"


def test_a_stranger_on_the_socket_is_refused() -> None:
    node = Node()
    here, there = End(node.runtime), End(node.runtime)
    here.other, there.other = there, here
    stranger = Stranger()
    there.link = node.workers[0].links.accepted_near(there, TRUSTED)
    here.link = PeerLink(here, stranger, TERMS, is_dialler=True, origin=TRUSTED)
    here.link.introduce(Greeting(level=LEVEL, shard=9, shards=10).hello(1, 1, 0))
    node.runtime.crank()
    assert len(stranger.told) == 1
    assert "none of this node's" in stranger.told[0]
