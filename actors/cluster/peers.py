"""Peers: the links to the other nodes. Dials those that this node knows, accepts those that may talk to it.

A link that breaks is dialled again, after a time that doubles and is drawn at random within half of it, so that nodes
do not all come at once. What is sent to a node without a link is not sent: every message of the protocol may be lost.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import pykka

from actors.cluster.membership import hello_fault
from actors.messages.lifecycle import Stop
from actors.messages.peers import Acquaintances, CutPeer, PeerDown, PeerSaid, PeerUnheard, PeerUp, SendPeers
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.link import PeerLink, PeerTransport, encoded
from net.peers.messages import (
    PEER_MAJOR,
    PEER_MINOR,
    ClientLeft,
    Forward,
    ForwardAnswers,
    ForwardReturned,
    Hello,
    PeerMessage,
)
from storage.records import Member
from storage.vote_file import Identity

log = logging.getLogger("quorate.peers")

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
HELLO_S: Final = 3.0
"""A link on which nobody has introduced himself by then is closed."""

INCOMING_MAX: Final = 200
ANEW: Final = "this node has joined a cluster, and introduces itself again"
FOR_ROUTER: Final = (Forward, ForwardAnswers, ForwardReturned, ClientLeft)


class PeerNetwork(Protocol):
    """Where links come from."""

    def dial(
        self, host: str, port: int, connected: Callable[[PeerTransport], PeerLink], failed: Callable[[str], None]
    ) -> None:
        """Open a stream; call one of the two. What it receives, and its end, go to the link."""


class _Node:
    """A node that links are kept to."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.link: PeerLink | None = None
        self.is_dialling = False
        self.backoff_s = BACKOFF_MIN_S
        self.last_fault = ""
        self.unsent: list[bytes] = []


class Peers(LoopActor):
    """Owns all links of one node. `faults`: why there is none to a node, as far as that is known."""

    def __init__(self, runtime: Runtime, network: PeerNetwork, node_type: int) -> None:
        super().__init__(runtime)
        self._network = network
        self._node_type = node_type
        self._known = Acquaintances(Member(0, "", 0), Identity(0, 0, 0), (), False)
        self._guests: dict[int, PeerLink] = {}
        self._nodes: dict[int, _Node] = {}
        self._incoming: dict[PeerLink, float] = {}
        self._has_stopped = False
        self.faults: dict[int, str] = {}
        self._refused: dict[int, str] = {}
        self._replicator: pykka.ActorRef[Any]
        self._router: pykka.ActorRef[Any]

    def attach(self, replicator: "pykka.ActorRef[Any]", router: "pykka.ActorRef[Any]") -> None:
        """Whom it tells; called by the assembly before any message."""
        self._replicator = replicator
        self._router = router

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        if isinstance(message, SendPeers):
            self._send(message)
        elif isinstance(message, Acquaintances):
            self._know(message)
        elif isinstance(message, CutPeer):
            log.error("node %d: %s; its link is cut", message.node_id, message.reason)
            for link in list(self._incoming):
                if link.peer is not None and link.peer.node_id == message.node_id:
                    link.cut(message.reason)
        elif isinstance(message, Stop):
            self._close_all()
        else:
            raise TypeError(message)

    def _close_all(self) -> None:
        """This node is about to end."""
        links = [*self._incoming, *(node.link for node in self._nodes.values() if node.link is not None)]
        self._nodes = {}
        self._has_stopped = True
        for link in links:
            link.close("this node stops")

    def _send(self, message: SendPeers) -> None:
        frame = b""
        for node_id in message.node_ids:
            node = self._nodes.get(node_id)
            if node is not None and node.link is not None and node.link.is_open:
                frame = frame or encoded(message.message)
                node.unsent.append(frame)

    def take_turn(self) -> None:
        """All that one turn has for a node leaves in one piece: a system call costs more than a message."""
        super().take_turn()
        for node in self._nodes.values():
            if node.unsent:
                unsent, node.unsent = node.unsent, []
                if node.link is not None:
                    node.link.send(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def _know(self, message: Acquaintances) -> None:
        is_new_cluster = message.identity.cluster_id != self._known.identity.cluster_id
        self._known = message
        if is_new_cluster:
            for node in self._nodes.values():
                if node.link is not None:
                    node.link.close(ANEW)
        wanted = {member.node_id: member for member in message.nodes if member.node_id != message.identity.node_id}
        for node_id in list(self._nodes):
            node = self._nodes[node_id]
            new = wanted.get(node_id)
            if new is None and node_id in self._guests:
                continue
            if new is None or (new.host, new.port) != (node.member.host, node.member.port):
                del self._nodes[node_id]
                if node.link is not None:
                    node.link.close("it is no member any more, or has moved")
        for link in list(self._incoming):
            fault = None if link.peer is None else self._fault(link.peer)
            if fault is not None:
                link.close(fault)
        for node_id, member in wanted.items():
            if node_id in self._nodes:
                self._nodes[node_id].member = member
            else:
                self._nodes[node_id] = _Node(member)
                self._dial(node_id)
        for link in self._incoming:
            if link.is_open and link.peer is not None and link.peer.node_id not in self._nodes:
                self._welcome(link, link.peer)

    # -- dialling ----------------------------------------------------------------------------------------------

    def _dial(self, node_id: int) -> None:
        node = self._nodes.get(node_id)
        if node is None or node.link is not None or node.is_dialling or not self.actor_ref.is_alive():
            return
        node.is_dialling = True

        def connected(transport: PeerTransport) -> PeerLink:
            node.is_dialling = False
            link = node.link = PeerLink(transport, self, is_dialler=True)
            link.introduce(self._hello(node_id))
            self.runtime.call_later(HELLO_S, lambda: None if link.is_open else link.cut("no hello came"))
            return link

        def failed(reason: str) -> None:
            node.is_dialling = False
            self._dial_later(node_id, node, reason)

        self._network.dial(node.member.host, node.member.port, connected, failed)

    def _dial_later(self, node_id: int, node: _Node, fault: str) -> None:
        if self._nodes.get(node_id) is not node:
            return
        self.faults[node_id] = fault
        if fault != node.last_fault and fault != ANEW:
            node.last_fault = fault
            log.warning("node %d at %s:%d: %s", node_id, node.member.host, node.member.port, fault)
        delay_s = node.backoff_s * (0.5 + self.runtime.random())
        node.backoff_s = min(node.backoff_s * 2, BACKOFF_MAX_S)
        self.runtime.call_later(delay_s, lambda: self._dial(node_id))

    def _hello(self, to: int) -> Hello:
        own = self._known.identity
        at = self._known.own
        return Hello(
            PEER_MAJOR, PEER_MINOR, self._node_type, own.node_id, to, own.cluster_id, own.disk_id, at.host, at.port
        )

    # -- links -------------------------------------------------------------------------------------------------

    def accepted(self, transport: PeerTransport) -> PeerLink:
        """Another node has dialled."""
        link = PeerLink(transport, self, is_dialler=False)
        if self._has_stopped or len(self._incoming) >= INCOMING_MAX:
            link.cut("this node stops, or has too many links")
            return link
        self._incoming[link] = self.runtime.monotonic()
        self.runtime.call_later(HELLO_S, lambda: None if link.peer else link.cut("no hello came"))
        return link

    def _fault(self, hello: Hello) -> str | None:
        known = self._known
        return hello_fault(
            known.identity, self._node_type, known.nodes, known.accepts_all, hello, removed=known.removed
        )

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """The other side has introduced itself."""
        fault = self._fault(hello)
        if not link.is_dialler:
            if fault is not None:
                if self._refused.get(hello.node_id) != fault:
                    self._refused = {hello.node_id: fault}  # one is remembered: enough for one that keeps coming
                    log.warning("a node that says it is node %d is refused: %s", hello.node_id, fault)
                link.refuse(fault)
                return
            for other in [one for one in self._incoming if one.peer is not None and one is not link]:
                if other.peer is not None and other.peer.node_id == hello.node_id:
                    other.close("it has dialled again")
            link.accept(self._hello(hello.node_id))
            node = self._nodes.get(hello.node_id)
            if node is None:
                self._welcome(link, hello)
            elif node.link is None:
                node.backoff_s = BACKOFF_MIN_S
                self._dial(hello.node_id)  # it is there: no need to wait for the back-off
            return
        node = next((one for one in self._nodes.values() if one.link is link), None)
        if fault is None and node is not None and hello.node_id != node.member.node_id:
            fault = f"it is node {hello.node_id}, not node {node.member.node_id}"
        if fault is not None or node is None:
            link.cut(fault or "it is no member any more")
            return
        node.backoff_s = BACKOFF_MIN_S
        node.last_fault = ""
        self.faults.pop(hello.node_id, None)
        link.is_open = True
        log.info("linked to node %d at %s:%d", hello.node_id, node.member.host, node.member.port)
        for ref in (self._replicator, self._router):
            ref.tell(PeerUp(hello.node_id, hello))

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        """A message of another node."""
        assert link.peer is not None
        to = self._router if isinstance(message, FOR_ROUTER) else self._replicator
        to.tell(PeerSaid(link.peer.node_id, message, link.peer.cluster_id, link.peer.disk_id))

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """A link is gone."""
        was_incoming = self._incoming.pop(link, None) is not None
        if was_incoming and link.peer is not None and not self._has_stopped and self.actor_ref.is_alive():
            self._router.tell(PeerUnheard(link.peer.node_id))
        if link.peer is not None and self._guests.get(link.peer.node_id) is link:
            self._guest_left(link.peer.node_id)
        if not link.is_dialler or not self.actor_ref.is_alive():
            return
        for node_id, node in self._nodes.items():
            if node.link is link:
                node.link = None
                node.unsent = []
                if link.peer is not None:
                    self._down(node_id)
                self._dial_later(node_id, node, reason)
                return
        if link.peer is not None:
            self._down(link.peer.node_id)

    def _welcome(self, link: PeerLink, hello: Hello) -> None:
        """A node that belongs to the cluster, though this one's log does not say so (yet): answers need a link, too."""
        if hello.cluster_id and hello.cluster_id == self._known.identity.cluster_id:
            self._nodes[hello.node_id] = _Node(Member(hello.node_id, hello.host, hello.port))
            self._guests[hello.node_id] = link
            self._dial(hello.node_id)

    def _guest_left(self, node_id: int) -> None:
        del self._guests[node_id]
        if all(member.node_id != node_id for member in self._known.nodes):
            node = self._nodes.pop(node_id, None)
            if node is not None and node.link is not None:
                node.link.close("it has left")

    def _down(self, node_id: int) -> None:
        for ref in (self._replicator, self._router):
            ref.tell(PeerDown(node_id))
