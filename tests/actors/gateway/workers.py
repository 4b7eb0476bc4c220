"""The gateways of nodes with three workers each, in one process, cranked by hand."""

from collections.abc import Callable
from typing import Any

import msgspec

from actors.gateway.router import Router
from actors.gateway.routing import Routing
from actors.gateway.shard_news import ShardNews
from actors.gateway.sharding import Sharding
from actors.gateway.siblings import Siblings
from actors.gateway.worker_keys import worker_key
from actors.messages.call import Call
from actors.messages.calls import Answered, Execute
from actors.messages.lifecycle import Stop
from actors.messages.peers import LeaderChanged, LinkHandedOver
from net.peers.greeting import Greeting
from net.peers.link import Connected, PeerLink
from net.peers.messages import Hello
from quorate.protocol import Action, Reply, Request
from quorate.shards import shard_of_queue
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


class Worker:
    """The gateway of one shard's worker; its owner, its clients and its Peers are probes."""

    def __init__(self, node: "Node", shard: int) -> None:
        runtime = node.runtime
        self.owner, self.asker, self.peers = Probe(), Probe(), Probe()
        routings = [
            Routing(forwards=True, hold_s=4.0 if one == shard else 2.0, sibling=0 if one == shard else worker_key(one))
            for one in range(SHARDS)
        ]
        virtual = {"all": ["q0", "q1", "q4"]}
        self.front = Router(runtime, ref(self.owner), Sharding(SHARDS, shard), routings, virtual)
        self.replicator = Probe()
        greeting = Greeting(shard=shard, shards=SHARDS)
        router = self.front.actor_ref
        self.siblings = Siblings(runtime, node, node, greeting, node.node_id, router, TERMS)
        self.news = ShardNews(runtime, node.node_id, shard, SHARDS, router)
        self.siblings.attach(self.news.actor_ref)
        self.front.attach(ref(self.peers), self.siblings.actor_ref)
        self.news.attach(ref(self.replicator), ref(self.peers), self.siblings.actor_ref)
        self.shard = shard
        self.links: list[End] = []
        node.workers[shard] = self
        for actor in (self.front, self.news, self.siblings):
            actor.begin()
        if node.leads:
            self.lead(node.node_id, 1 + node.restarts)

    def lead(self, leader: int, vote_id: int) -> None:
        """Who leads this worker's shard."""
        changed = LeaderChanged(leader, leader == self.siblings.node_id, f"c{leader}", 1, vote_id, self.shard)
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
        there.link = worker.siblings.accepted(there, TRUSTED)
        here.link = connected(here, TRUSTED)
        worker.links.append(there)

    def dial(self, host: str, port: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Connect to another node's worker, at its nodes' port: that worker's Peers hand the link over."""
        worker = self.others[host].workers.get(port - PORT)
        if worker is None:
            failed("nobody listens")
            return
        here, there = End(self.runtime), End(self.runtime)
        here.other, there.other = there, here
        there.link = PeerLink(there, HandsOver(worker), TERMS, is_dialler=False, origin=TRUSTED)
        here.link = connected(here, TRUSTED)
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


class HandsOver:
    """What the Peers of a worker do with a link of another shard's worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """Hand over."""
        self._worker.siblings.actor_ref.tell(LinkHandedOver(link, hello))

    def link_said(self, link: PeerLink, message: Any) -> None:
        """Not before it is accepted."""
        raise AssertionError(message)

    link_renewed = link_said

    def link_receiving(self, link: PeerLink) -> None:
        """Nothing."""

    def link_drained(self, link: PeerLink) -> None:
        """Nothing waits here."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """Nothing."""


class Asker:
    """A client."""

    has_left = is_gone = False

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """By the probe."""


def queue_in(shard: int) -> str:
    return next(f"q{n}" for n in range(1000) if shard_of_queue(f"q{n}", SHARDS) == shard)


def produce(queue: str) -> Request:
    return Request(Action.PRODUCE, queue=queue, data=msgspec.Raw(b"1"))
