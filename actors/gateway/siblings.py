"""Siblings: the links to the workers of other shards: those of this node, and those of other nodes that lead one.

This node's are reached over Unix sockets in the data folder, which nobody but the node's user can open; links to them
are kept all the time. Another node's worker is dialled at its nodes' port when it leads its shard, so that a request
gets there in one hop, or when it has dialled, so that it gets its answers. All speak the peers' protocol, and of its
messages those about forwarded requests, about who leads what, and about the members. A link goes one way, as between
nodes: what a worker asks and answers goes over the one that it dialled.

To the Router a worker is known by a number below 0: see `actors.gateway.worker_keys`.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

import pykka

from actors.gateway.worker_keys import worker_key
from actors.messages.lifecycle import Stop
from actors.messages.peers import (
    CutPeer,
    Introduce,
    KeyringChanged,
    LinkHandedOver,
    PeerBehind,
    PeerDown,
    PeerSaid,
    PeerUnheard,
    PeerUp,
    Reach,
    SendPeers,
)
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.greeting import Greeting
from net.peers.link import Connected, LinkTerms, Origin, PeerLink, PeerNetwork, PeerTransport, encoded
from net.peers.messages import ANSWERS, ASKS, NEWS, PEER_MAJOR, Hello, PeerMessage
from net.peers.post import Addressee, Post

log = logging.getLogger("quorate.siblings")

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 0.5
HELLO_S: Final = 3.0
PENDING_S: Final = 10.0
"""A worker of another node that has dialled, and can't be dialled by then, dials again."""

ANSWER_BYTES_MAX: Final = 64 << 20
"""What may wait for a link to a worker; beyond it who asked is told that the outcome is unknown, in time."""

BEHIND_BYTES: Final = 32 << 20
"""With more of clients' answers waiting for a worker, nothing is done for it that has a long one."""

OF_SIBLINGS: Final = frozenset({*ASKS, *ANSWERS, *NEWS})


class SiblingNetwork(Protocol):
    """Where links to the workers of this node come from."""

    def dial_sibling(self, shard: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Open a stream to that shard's worker; call one of the two. What it receives, and its end, go to the link."""


class _Worker(Addressee):
    """The worker of another shard, of node `node_id`, 0: of this one; and the link to it.

    Kept answers are for nobody when the link it asks over (`incoming`) is closed. A link from another node is `pending`
    until that node could be dialled: what is asked over it could not be answered. Another node is dialled at one of its
    `addresses`, the next when one fails; it says itself that it is at `said_at`.
    """

    def __init__(self, shard: int, node_id: int) -> None:
        super().__init__(worker_key(shard, node_id), ANSWER_BYTES_MAX)
        self.shard = shard
        self.node_id = node_id
        self.addresses: list[tuple[str, int]] = []
        self.said_at = ("", 0)
        self.at = 0
        self.pending: PeerLink | None = None
        self.incoming: PeerLink | None = None
        self.is_up = False
        self.is_dialling = False
        self.backoff_s = BACKOFF_MIN_S


class Siblings(LoopActor):
    """Owns the links of one worker. `greeting` is how it introduces itself, for node `node_id`.

    `network` leads to this node's workers, `nodes` to other nodes.
    """

    def __init__(
        self,
        runtime: Runtime,
        network: SiblingNetwork,
        nodes: PeerNetwork,
        greeting: Greeting,
        node_id: int,
        router: "pykka.ActorRef[Any]",
        terms: LinkTerms,
    ) -> None:
        super().__init__(runtime)
        self._network = network
        self._nodes = nodes
        self._greeting = greeting
        self.node_id = node_id
        self._router = router
        others = [shard for shard in range(greeting.shards) if shard != greeting.shard]
        self._workers = {worker_key(shard): _Worker(shard, 0) for shard in others}
        self._terms = terms
        self._incoming: dict[PeerLink, None] = {}
        self._post = Post(
            BEHIND_BYTES,
            lambda call: runtime.call_later(0.0, call),
            lambda key, is_behind: self._router.tell(PeerBehind(key, is_behind)),
        )
        self._led: dict[int, int] = {}
        self._known: Introduce | None = None
        self._has_stopped = False
        self._news: pykka.ActorRef[Any]
        self.handlers = {
            SendPeers: self._send,
            CutPeer: self._cut,
            LinkHandedOver: self._handed_over,
            Introduce: self._know,
            KeyringChanged: self._keyring_changed,
            Reach: self._reach,
            Stop: self._close_all,
        }

    def attach(self, news: "pykka.ActorRef[Any]") -> None:
        """Whom it tells beside the Router; called by the assembly before any message."""
        self._news = news

    def on_start(self) -> None:
        """Dial this node's workers."""
        for worker in self._workers.values():
            self._dial(worker)

    def _close_all(self, message: Stop) -> None:
        self._has_stopped = True
        links = [*self._incoming, *(one.link for one in self._workers.values() if one.link is not None)]
        for link in links:
            link.close("this worker stops")

    def _keyring_changed(self, message: KeyringChanged) -> None:
        self._terms = replace(self._terms, keyring=message.keyring)
        for link in [*self._incoming, *(one.link for one in self._workers.values() if one.link is not None)]:
            if not self._terms.is_met_by(link):
                link.close("the cluster's secret was changed")

    def _cut(self, message: CutPeer) -> None:
        worker = self._workers.get(message.node_id)
        if worker is not None and worker.incoming is not None:
            worker.incoming.cut(message.reason)

    # -- workers of other nodes --------------------------------------------------------------------------------

    def _know(self, message: Introduce) -> None:
        """Who this node is, and which others there are."""
        self._known = message
        there = {one.node_id for one in message.nodes}
        for worker in list(self._workers.values()):
            if worker.node_id and worker.node_id not in there:
                for link in (worker.link, worker.incoming, worker.pending):
                    if link is not None:
                        link.close("it is no member any more")
                self._workers.pop(worker.key, None)
        for shard, node_id in self._led.items():
            self._dial_leader(shard, node_id)  # its address may not have been known before

    def _reach(self, message: Reach) -> None:
        """That node leads the shard: its worker is to be reached."""
        self._led[message.shard] = message.node_id
        self._dial_leader(message.shard, message.node_id)

    def _dial_leader(self, shard: int, node_id: int) -> None:
        worker = self._far_worker(shard, node_id) if node_id else None
        if worker is not None:
            self._dial(worker)

    def _far_worker(self, shard: int, node_id: int) -> _Worker | None:
        """That node's worker of the shard, as this one's own worker's address tells where it is; None: not known."""
        known = self._known
        member = None if known is None else next((one for one in known.nodes if one.node_id == node_id), None)
        if known is None or member is None:
            return None
        listed = known.addresses.get(node_id, (member.host, member.port))
        worker = self._workers.setdefault(worker_key(shard, node_id), _Worker(shard, node_id))
        shift = shard - self._greeting.shard
        at = [(host, port + shift) for host, port in (listed, (member.host, member.port))]
        worker.addresses = list(dict.fromkeys([*at, worker.said_at] if worker.said_at[1] else at))
        return worker

    def _handed_over(self, message: LinkHandedOver) -> None:
        """A worker of another node has dialled, and belongs to this one's cluster."""
        link, hello = message.link, message.hello
        worker = self._far_worker(hello.shard, hello.node_id)
        if link.is_closed:
            return
        link.hand_to(self)
        self._incoming[link] = None
        if not self._terms.is_met_by(link):
            link.close("the cluster's secret was changed")
            return
        self.runtime.call_later(PENDING_S, lambda: None if link.is_open else link.cut("it can't be reached itself"))
        if worker is None or self._has_stopped:
            link.refuse(f"node {hello.node_id} is no member, as far as shard {self._greeting.shard} knows")
            return
        worker.said_at = (link.origin.address or hello.host, hello.port)
        if worker.link is not None:
            self._accept(link, worker)
            return
        if worker.pending is not None:
            worker.pending.close("it has dialled again")
        worker.pending = link
        worker.addresses = [worker.said_at, *(one for one in worker.addresses if one != worker.said_at)]
        worker.backoff_s = BACKOFF_MIN_S
        self._dial(worker)

    def _hello(self, worker: _Worker) -> Hello:
        known = self._known
        if not worker.node_id or known is None:
            return self._greeting.hello(self.node_id, self.node_id, worker.shard)
        own, at = known.identity, (known.own.host, known.own.port)
        return self._greeting.hello(
            self.node_id, worker.node_id, worker.shard, cluster_id=own.cluster_id, disk_id=own.disk_id, at=at
        )

    def _is_wanted(self, worker: _Worker) -> bool:
        if not worker.node_id:
            return True
        belongs = self._known is not None and self._known.identity.cluster_id != 0
        leads = self._led.get(worker.shard) == worker.node_id
        is_member = self._workers.get(worker.key) is worker
        asks = worker.incoming is not None or (worker.pending is not None and not worker.pending.is_closed)
        return belongs and is_member and (leads or asks)

    # -- sending -----------------------------------------------------------------------------------------------

    def _send(self, message: SendPeers) -> None:
        said = message.message
        frame = encoded(said)
        assert len(frame) <= self._terms.frame_bytes_max, f"{type(said).__name__} of {len(frame)} bytes"
        for key in message.node_ids:
            worker = self._workers.get(key)
            if worker is None:
                continue
            if not worker.is_up:
                if isinstance(said, ANSWERS) and worker.incoming is not None:
                    worker.keep(frame)
                continue
            self._post.add(worker, said, frame)

    def take_turn(self) -> None:
        """All that one turn has for a worker leaves in one piece."""
        super().take_turn()
        self._post.send_all()

    def link_drained(self, link: PeerLink) -> None:
        """What waited for room goes on."""
        worker = self._worker_of(link)
        if worker is not None and worker.link is link:
            self._post.send(worker)

    # -- links -------------------------------------------------------------------------------------------------

    def _dial(self, worker: _Worker) -> None:
        is_gone = self._has_stopped or self.has_ended or not self._is_wanted(worker)
        if is_gone or worker.link is not None or worker.is_dialling:
            return
        worker.is_dialling = True

        def connected(transport: PeerTransport, origin: Origin) -> PeerLink:
            worker.is_dialling = False
            link = worker.link = PeerLink(transport, self, self._terms, is_dialler=True, origin=origin)
            link.introduce(self._hello(worker))
            if worker.node_id:
                self.runtime.call_later(HELLO_S, lambda: None if link.is_open else link.cut("no hello came"))
            pending, worker.pending = worker.pending, None
            if pending is not None and not pending.is_closed:
                self._accept(pending, worker)
            return link

        def failed(reason: str) -> None:
            worker.is_dialling = False
            worker.at += 1
            self._dial_later(worker)

        if worker.node_id:
            self._nodes.dial(*worker.addresses[worker.at % len(worker.addresses)], connected, failed)
        else:
            self._network.dial_sibling(worker.shard, connected, failed)

    def _dial_later(self, worker: _Worker) -> None:
        delay_s = worker.backoff_s * (0.5 + self.runtime.random())
        worker.backoff_s = min(worker.backoff_s * 2, BACKOFF_MAX_S)
        self.runtime.call_later(delay_s, lambda: self._dial(worker))

    def accepted(self, transport: PeerTransport, origin: Origin) -> PeerLink:
        """A worker of this node has dialled."""
        link = PeerLink(transport, self, self._terms, is_dialler=False, origin=origin)
        if self._has_stopped:
            link.cut("this worker stops")
        else:
            self._incoming[link] = None
        return link

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """The other side has introduced itself."""
        if link.is_dialler:
            self._answered(link, hello)
            return
        known = self._workers.get(worker_key(hello.shard))
        if known is None or (hello.major, hello.node_id) != (PEER_MAJOR, self.node_id):
            reason = f"it is shard {hello.shard} of node {hello.node_id}, version {hello.version}: none of this node's"
            log.error("a worker is refused: %s", reason)
            link.refuse(reason)
        else:
            self._accept(link, known)

    def _accept(self, link: PeerLink, worker: _Worker) -> None:
        if worker.incoming is not None:
            worker.incoming.close("it has dialled again")
        worker.incoming = link
        link.accept(self._hello(worker))
        if worker.link is None:
            worker.backoff_s = BACKOFF_MIN_S
            self._dial(worker)  # it is there: no need to wait for the back-off

    def _answered(self, link: PeerLink, hello: Hello) -> None:
        """The worker that was dialled has introduced itself."""
        worker = self._worker_of(link)
        node_id = hello.node_id if hello.node_id != self.node_id else 0
        if worker is None or (hello.major, node_id, hello.shard) != (PEER_MAJOR, worker.node_id, worker.shard):
            link.cut(f"it is shard {hello.shard} of node {hello.node_id}, another worker than was dialled")
            return
        link.is_open = worker.is_up = True
        if answers := worker.take_answers():
            link.send(answers)
        worker.backoff_s = BACKOFF_MIN_S
        for ref in (self._router, self._news):
            ref.tell(PeerUp(worker.key, hello))

    def _worker_of(self, link: PeerLink) -> _Worker | None:
        return next((one for one in self._workers.values() if link in (one.link, one.incoming)), None)

    def link_renewed(self, link: PeerLink, hello: Hello) -> None:
        """A worker has nothing to say anew."""
        link.cut("a second hello")

    def link_receiving(self, link: PeerLink) -> None:
        """A part of a message has come."""

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        """A message of another worker."""
        peer = link.peer
        assert peer is not None
        worker = self._workers.get(worker_key(peer.shard, 0 if peer.node_id == self.node_id else peer.node_id))
        if type(message) not in OF_SIBLINGS or worker is None:
            link.cut(f"a {type(message).__name__} between workers")
        else:
            to = self._news if isinstance(message, NEWS) else self._router
            to.tell(PeerSaid(worker.key, message))

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """A link is gone."""
        self._incoming.pop(link, None)
        worker = self._worker_of(link)
        if worker is None or self.has_ended:
            return
        if worker.incoming is link:  # neither its questions nor its answers come over that one any more
            worker.incoming = None
            worker.take_answers()
            self._router.tell(PeerUnheard(worker.key))
            return
        last_serial = worker.outbox.serial
        self._post.lost(worker)
        if worker.is_up:
            worker.is_up = False
            for ref in (self._news, self._router):
                ref.tell(PeerDown(worker.key, last_serial))
        self._dial_later(worker)
