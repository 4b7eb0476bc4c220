"""The gateways of nodes with three workers each, in one process, cranked by hand."""

from collections.abc import Callable
from typing import Any

import msgspec

from actors.gateway.router import Router
from actors.gateway.routing import Routing
from actors.gateway.shard_news import ShardNews
from actors.gateway.sharding import Sharding
from actors.links.links import Links
from actors.messages.call import Call
from actors.messages.calls import Answered, Execute
from actors.messages.lifecycle import Stop
from actors.messages.peers import LeaderChanged, worker_key
from net.peers.greeting import Greeting
from net.peers.link import Connected, PeerLink
from net.peers.messages import Hello
from quorate.protocol import Action, Reply, Request
from quorate.shards import shard_of_queue
from storage.records import LEVEL
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.net.peers.wire import TERMS, TRUSTED

SHARDS = 3
PORT = 100


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

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def abort(self) -> None:
        """Both ends."""
        other, self.other = self.other, None
        if other is not None:
            other.other = None
            for end in (self, other):
                if end.link is not None:
                    end.link.lost("closed")


class Tap(Probe):
    """Notes what an actor is told, and passes it on."""

    def __init__(self, to: Any) -> None:
        super().__init__()
        self._to = to

    def tell(self, message: Any) -> None:
        super().tell(message)
        self._to.tell(message)


class Worker:
    """The gateway of one shard's worker; its owner and its clients are probes."""

    def __init__(self, node: "Node", shard: int) -> None:
        runtime = node.runtime
        self.owner, self.asker = Probe(), Probe()
        routings = [
            Routing(forwards=True, hold_s=4.0 if one == shard else 2.0, sibling=0 if one == shard else worker_key(one))
            for one in range(SHARDS)
        ]
        virtual = {"all": ["q0", "q1", "q4"]}
        self.front = Router(runtime, ref(self.owner), Sharding(SHARDS, shard), routings, virtual)
        self.replicator = Probe()
        greeting = Greeting(level=LEVEL, shard=shard, shards=SHARDS)
        router = self.front.actor_ref
        self.links = Links(runtime, node, greeting, TERMS, node.node_id)
        self.news = ShardNews(runtime, node.node_id, shard, SHARDS, router)
        self.said = Tap(self.links.actor_ref)
        self.links.attach(ref(self.replicator), router, self.news.actor_ref)
        self.front.attach(self.links.actor_ref)
        self.news.attach(ref(self.replicator), ref(self.said))
        self.node_id = node.node_id
        self.shard = shard
        self.ends: list[End] = []
        node.workers[shard] = self
        for actor in (self.front, self.news, self.links):
            actor.begin()
        if node.leads:
            self.lead(node.node_id, 1 + node.restarts)

    def lead(self, leader: int, vote_id: int) -> None:
        """Who leads this worker's shard."""
        changed = LeaderChanged(leader, leader == self.node_id, f"c{leader}", 1, vote_id, self.shard)
        for actor in (self.front, self.news):
            actor.actor_ref.tell(changed)


class Node:
    """All workers of a node, and the sockets between them."""

    def __init__(self, node_id: int = 1, runtime: CrankedRuntime | None = None, *, leads: bool = True) -> None:
        self.node_id = node_id
        self.leads = leads
        self.restarts = 0
        self.others: dict[str, Node] = {}
        self.runtime = runtime or CrankedRuntime()
        self.workers: dict[int, Worker] = {}
        self.blocked: set[int] = set()
        for shard in range(SHARDS):
            Worker(self, shard)
        self.runtime.crank(1.0)

    def dial_sibling(self, shard: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Connect, unless that worker is not there."""
        worker = self.workers.get(shard)
        if worker is None or shard in self.blocked:
            failed("nobody listens")
            return
        here, there = End(self.runtime), End(self.runtime)
        here.other, there.other = there, here
        there.link = worker.links.accepted_near(there, TRUSTED)
        here.link = connected(here, TRUSTED)
        worker.ends.append(there)

    def dial(self, host: str, port: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Connect to another node's worker, at its nodes' port."""
        worker = self.others[host].workers.get(port - PORT)
        if worker is None:
            failed("nobody listens")
            return
        here, there = End(self.runtime), End(self.runtime)
        here.other, there.other = there, here
        there.link = worker.links.accepted(there, TRUSTED)
        here.link = connected(here, TRUSTED)
        worker.ends.append(there)

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
        for end in worker.ends:
            end.abort()
        worker.links.actor_ref.tell(Stop(ref(Probe())))
        self.runtime.crank()
        for link in worker.links._links:
            link.cut("killed")
        self.runtime.crank()


class Stranger:
    """Whoever dials a worker; notes what becomes of that."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """It is let in."""
        self.told.append("accepted")

    def link_said(self, link: PeerLink, message: Any) -> None:
        """It is talked with."""
        self.told.append("said")

    link_renewed = link_said

    def link_receiving(self, link: PeerLink) -> None:
        """It is talked with, at length."""
        self.told.append("receiving")

    def link_drained(self, link: PeerLink) -> None:
        """Nothing waits here."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """It is not let in."""
        self.told.append(reason)


class Asker:
    """A client."""

    has_left = is_gone = False

    has_ended = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """By the probe."""


def queue_in(shard: int) -> str:
    return next(f"q{n}" for n in range(1000) if shard_of_queue(f"q{n}", SHARDS) == shard)


def produce(queue: str) -> Request:
    return Request(Action.PRODUCE, queue=queue, data=msgspec.Raw(b"1"))
