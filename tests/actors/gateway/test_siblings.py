"""The links between a node's workers, and requests over them: three workers in one process, cranked by hand."""

from collections.abc import Callable
from typing import Any

import msgspec

from actors.gateway.dispatcher import Dispatcher
from actors.gateway.router import Router
from actors.gateway.routing import Routing
from actors.gateway.sharding import Sharding
from actors.gateway.siblings import Siblings
from actors.messages.calls import Answered, Call, ClientGone, Execute
from actors.messages.lifecycle import Stop, Stopped
from actors.messages.peers import LeaderChanged
from net.peers.link import PeerLink, PeerTransport
from quorate.protocol import Action, Reply, Request
from quorate.shards import shard_of_queue
from tests.actors.cranked import CrankedRuntime, Probe, ref

SHARDS = 3


class End:
    """One end of a stream between two workers."""

    def __init__(self, runtime: CrankedRuntime) -> None:
        self._runtime = runtime
        self.other: End | None = None
        self.link: PeerLink | None = None

    def write(self, data: bytes) -> None:
        """In order, and soon."""
        self._runtime.call_later(0.0, lambda: self._carry(data))

    def _carry(self, data: bytes) -> None:
        if self.other is not None and self.other.link is not None:
            self.other.link.receive(data)

    def close(self) -> None:
        """When all that was written has arrived."""
        self._runtime.call_later(0.0, self.abort)

    def abort(self) -> None:
        """Both ends."""
        other, self.other = self.other, None
        if other is not None:
            other.other = None
            for end in (self, other):
                if end.link is not None:
                    end.link.lost("closed")


class Worker:
    """The gateway of one shard's worker; its owner, its clients and its Peers are probes."""

    def __init__(self, node: "Node", shard: int) -> None:
        runtime = node.runtime
        self.owner, self.asker, self.peers = Probe(), Probe(), Probe()
        own = Router(runtime, ref(self.owner), {}, Routing(forwards=True))
        others = {
            one: Router(runtime, None, {}, Routing(forwards=True, hold_s=2.0, has_owner=False))
            for one in range(SHARDS)
            if one != shard
        }
        refs = {one: router.actor_ref for one, router in others.items()}
        hello = Siblings.greeting(1, 1, shard, 1, "test")
        self.siblings = Siblings(runtime, node, hello, own.actor_ref, refs)
        own.attach(ref(self.peers), self.siblings.actor_ref)
        for router in others.values():
            router.attach(self.siblings.actor_ref)
        by_shard = [refs.get(one, own.actor_ref) for one in range(SHARDS)]
        self.front = Dispatcher(runtime, Sharding(SHARDS, shard), by_shard, {"all": ["q0", "q1", "q4"]})
        self.links: list[End] = []
        node.workers[shard] = self
        for actor in (own, *others.values(), self.siblings, self.front):
            actor.begin()
        own.actor_ref.tell(LeaderChanged(1, True, "h", 1))


class Node:
    """All workers of a node, and the sockets between them."""

    def __init__(self) -> None:
        self.runtime = CrankedRuntime()
        self.workers: dict[int, Worker] = {}
        self.blocked: set[int] = set()
        for shard in range(SHARDS):
            Worker(self, shard)
        self.runtime.crank(1.0)

    def dial_sibling(
        self, shard: int, connected: Callable[[PeerTransport], PeerLink], failed: Callable[[str], None]
    ) -> None:
        """Connect, unless that worker is not there."""
        worker = self.workers.get(shard)
        if worker is None or shard in self.blocked:
            failed("nobody listens")
            return
        here, there = End(self.runtime), End(self.runtime)
        here.other, there.other = there, here
        there.link = worker.siblings.accepted(there)
        here.link = connected(here)
        worker.links.append(there)

    def ask(self, shard: int, client: Any, *requests: Request) -> None:
        """A client of that worker asks."""
        worker = self.workers[shard]
        calls = [Call(request, client, order, worker.asker) for order, request in enumerate(requests)]
        worker.front.actor_ref.tell(Execute(calls))
        self.runtime.crank()

    def executed(self, shard: int) -> list[Call]:
        """What that shard's owner was given."""
        return [call for message in self.workers[shard].owner.take(Execute) for call in message.calls]

    def done(self, shard: int, call: Call, **fields: Any) -> None:
        """That shard's owner has done a call."""
        call.reply_to.tell(Answered([(call, Reply(action=call.request.action, **{"code": 0, **fields}))]))
        self.runtime.crank()

    def replies(self, shard: int) -> list[Reply]:
        """What the clients of that worker were answered."""
        return [reply for message in self.workers[shard].asker.take(Answered) for _, reply in message.answers]

    def kill(self, shard: int) -> None:
        """That worker is gone, and nobody listens there."""
        worker = self.workers.pop(shard)
        for end in worker.links:
            end.abort()
        worker.siblings.actor_ref.tell(Stop(ref(Probe())))
        self.runtime.crank()


class Asker:
    """A client."""

    has_left = is_gone = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """By the probe."""


def queue_in(shard: int) -> str:
    return next(f"q{n}" for n in range(1000) if shard_of_queue(f"q{n}", SHARDS) == shard)


def produce(queue: str) -> Request:
    return Request(Action.PRODUCE, queue=queue, data=msgspec.Raw(b"1"))


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
    Worker(node, 1)
    node.runtime.crank(1.0)
    [call] = node.executed(1)
    assert call.request.action == Action.MONITOR
    node.runtime.crank(1.0)
    node.ask(1, Asker(), produce(queue_in(0)))
    assert len(node.executed(0)) == 1, "the new worker has found its siblings"


def test_an_answer_waits_for_the_way_back() -> None:
    node = Node()
    node.workers[1].links[0].abort()  # what one of the others says to shard 1; its own links stay
    node.runtime.crank()
    node.ask(0, Asker(), produce(queue_in(1)))
    node.ask(2, Asker(), produce(queue_in(1)))
    node.runtime.crank(0.05)
    for call in node.executed(1):
        node.done(1, call, msg_id=1025)
    for worker in (0, 2):
        assert [reply.msg_id for reply in node.replies(worker)] == [1025]
    for end in node.workers[0].links:
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


def test_a_stranger_on_the_socket_is_refused() -> None:
    node = Node()
    here, there = End(node.runtime), End(node.runtime)
    here.other, there.other = there, here
    told: list[str] = []

    class Stranger:
        """Says that it is shard 9."""

        def link_hello(self, link: PeerLink, hello: Any) -> None:
            told.append("accepted")

        def link_said(self, link: PeerLink, message: Any) -> None:
            told.append("said")

        link_renewed = link_said

        def link_receiving(self, link: PeerLink) -> None:
            told.append("receiving")

        def link_closed(self, link: PeerLink, reason: str) -> None:
            told.append(reason)

    there.link = node.workers[0].siblings.accepted(there)
    here.link = PeerLink(here, Stranger(), is_dialler=True)
    here.link.introduce(Siblings.greeting(1, 1, 9, 1, "test"))
    node.runtime.crank()
    assert len(told) == 1
    assert "none of this node's" in told[0]
