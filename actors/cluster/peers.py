"""Peers: the links to the other nodes. Dials those that this node knows, accepts those that prove to be such.

A link that breaks is dialled again, after a time that doubles and is drawn at random within half of it, so that nodes
do not all come at once. What is sent to a node without a link is not sent: every message of the protocol may be lost.
"""

import logging
from dataclasses import replace
from typing import Any, Final

import pykka

from actors.cluster.doorway import Doorway
from actors.cluster.membership import hello_fault
from actors.cluster.peer_node import BACKOFF_MIN_S, PeerNode, shown_address
from actors.messages.lifecycle import Stop
from actors.messages.peers import (
    CutPeer,
    Introduce,
    KeyringChanged,
    LinkHandedOver,
    PeerBehind,
    PeerDown,
    PeerFault,
    PeerReceiving,
    PeerSaid,
    PeerUnheard,
    PeerUp,
    SendPeers,
)
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.greeting import Greeting
from net.peers.link import LinkTerms, Origin, PeerLink, PeerNetwork, PeerTransport, encoded
from net.peers.messages import ANSWERS, ASKS, NEWS, Hello, PeerMessage
from net.peers.post import Post
from storage.records import Member
from storage.vote_file import Identity

log = logging.getLogger("quorate.peers")

BACKOFF_MAX_S: Final = 1.0
HELLO_S: Final = 3.0
"""A node that was dialled and has not proved itself by then is dialled again."""

INTRODUCE_S: Final = 1.0
"""How often a node that does not belong yet is told again to which cluster this one does."""

BEHIND_BYTES: Final = 8 << 20
"""With more of clients' answers waiting for a node, nothing is done for it that has a long one."""

RECEIVING_S: Final = 0.02  # how often it is told that a long message is coming in


class Peers(LoopActor):
    """Owns all links of one node's shard to the other nodes'. `greeting` is how it introduces itself.

    A worker of another shard of another node may dial here, too: its link is handed over to the `Siblings`.
    """

    def __init__(self, runtime: Runtime, network: PeerNetwork, greeting: Greeting, terms: LinkTerms) -> None:
        super().__init__(runtime)
        self._network = network
        self._greeting = greeting
        self._terms = terms
        self._known = Introduce(Member(0, "", 0), Identity(0, 0, 0), (), False)
        self._guests: dict[int, PeerLink] = {}
        self._nodes: dict[int, PeerNode] = {}
        self._post = Post(
            BEHIND_BYTES,
            lambda call: runtime.call_later(0.0, call),
            lambda node_id, is_behind: self._router.tell(PeerBehind(node_id, is_behind)),
        )
        self.doorway = Doorway(runtime)
        self._receiving_told: dict[int, float] = {}
        self._up: dict[int, PeerLink] = {}
        self._has_stopped = False
        self._introduces = False
        self._replicator: pykka.ActorRef[Any]
        self._router: pykka.ActorRef[Any]
        self._siblings: pykka.ActorRef[Any] | None
        self._news: pykka.ActorRef[Any] | None
        self.handlers = {
            SendPeers: self._send,
            Introduce: self._know,
            CutPeer: self._cut,
            KeyringChanged: self._keyring_changed,
            Stop: self._close_all,
        }

    def attach(
        self,
        replicator: "pykka.ActorRef[Any]",
        router: "pykka.ActorRef[Any]",
        siblings: "pykka.ActorRef[Any] | None" = None,
        news: "pykka.ActorRef[Any] | None" = None,
    ) -> None:
        """Whom it tells; called by the assembly before any message."""
        self._replicator = replicator
        self._router = router
        self._siblings, self._news = siblings, news

    def _cut(self, message: CutPeer) -> None:
        log.error("node %d: %s; its link is cut", message.node_id, message.reason)
        if self.runtime.watcher is not None:
            self.runtime.watcher("cut off", message)
        self._replicator.tell(PeerFault(message.node_id, message.reason))
        for link in self.doorway.of_node(message.node_id):
            link.cut(message.reason)

    @property
    def _links(self) -> list[PeerLink]:
        return [*self.doorway.links, *(node.link for node in self._nodes.values() if node.link is not None)]

    def _keyring_changed(self, message: KeyringChanged) -> None:
        """Links that were proved by a secret which is not valid any more are closed, and dialled anew."""
        self._terms = replace(self._terms, keyring=message.keyring)
        for link in self._links:
            if not self._terms.is_met_by(link):
                link.close("the cluster's secret was changed")

    def _close_all(self, message: Stop) -> None:
        """This node is about to end."""
        links = self._links
        self._nodes = {}
        self._has_stopped = True
        for link in links:
            link.close("this node stops")

    # -- sending -----------------------------------------------------------------------------------------------

    def _send(self, message: SendPeers) -> None:
        frame = b""
        said = message.message
        for node_id in message.node_ids:
            node = self._nodes.get(node_id)
            if node is None or node.link is None or not node.link.is_open:
                if node is not None and isinstance(said, ANSWERS):
                    node.keep(encoded(said))
                continue
            if not frame:
                frame = encoded(said)
                assert len(frame) <= self._terms.frame_bytes_max, f"{type(said).__name__} of {len(frame)} bytes"
            self._post.add(node, said, frame)

    def take_turn(self) -> None:
        """All that one turn has for a node leaves in one piece."""
        super().take_turn()
        self._post.send_all()

    def link_drained(self, link: PeerLink) -> None:
        """Clients' requests that waited for room go on."""
        node = next((one for one in self._nodes.values() if one.link is link), None)
        if node is not None:
            self._post.send(node)

    # -- whom this node knows ----------------------------------------------------------------------------------

    def _know(self, message: Introduce) -> None:
        is_new_cluster = message.identity.cluster_id != self._known.identity.cluster_id
        self._known = message
        wanted = {member.node_id: member for member in message.nodes if member.node_id != message.identity.node_id}
        for node_id in list(self._nodes):
            if node_id not in wanted and node_id not in self._guests:
                node = self._nodes.pop(node_id)
                if node.link is not None:
                    node.link.close("it is no member any more")
        for link in list(self.doorway.links):
            fault = None if link.peer is None else self._fault(link, link.peer)
            if fault is not None:
                link.close(fault)
        for node_id, member in wanted.items():
            addresses = self._addresses(member)
            if node_id not in self._nodes:
                self._nodes[node_id] = PeerNode(node_id, addresses)
                self._dial(node_id)
            elif addresses != self._nodes[node_id].addresses:
                self._nodes[node_id].move_to(addresses)
        for link in self.doorway.links:
            if link.is_open and link.peer is not None and link.peer.node_id not in self._nodes:
                self._welcome(link, link.peer)
        if is_new_cluster:  # the others go by what this node says of itself
            for node in self._nodes.values():
                if node.link is not None and node.link.is_open:
                    node.link.renew(self._hello(node.node_id))
            for link in self.doorway.links:
                if link.is_open and link.peer is not None:
                    link.renew(self._hello(link.peer.node_id))
        if message.identity.cluster_id and not self._introduces:
            self._introduces = True
            self.runtime.call_later(INTRODUCE_S, self._introduce_again)

    def _introduce_again(self) -> None:
        """Say it again to those who do not belong to this cluster: they may not have heard, and wait for that."""
        if self._has_stopped or self.has_ended:
            return
        for node in self._nodes.values():
            link = node.link
            if link is None or not link.is_open or link.peer is None:
                continue
            if link.peer.cluster_id != self._known.identity.cluster_id:
                link.renew(self._hello(node.node_id))
        self.runtime.call_later(INTRODUCE_S, self._introduce_again)

    def _addresses(self, member: Member) -> list[tuple[str, int]]:
        at = (member.host, member.port)
        listed = self._known.addresses.get(member.node_id, at)
        return [at] if listed == at else [listed, at]

    def _hello(self, to: int) -> Hello:
        own, at = self._known.identity, self._known.own
        return self._greeting.hello(
            own.node_id, to, self._greeting.shard, cluster_id=own.cluster_id, disk_id=own.disk_id, at=(at.host, at.port)
        )

    # -- dialling ----------------------------------------------------------------------------------------------

    def _dial(self, node_id: int) -> None:
        node = self._nodes.get(node_id)
        if node is None or node.link is not None or node.is_dialling or self.has_ended:
            return
        node.is_dialling = True

        def connected(transport: PeerTransport, origin: Origin) -> PeerLink:
            node.is_dialling = False
            link = node.link = PeerLink(transport, self, self._terms, is_dialler=True, origin=origin)
            node.said = self._hello(node_id)
            link.introduce(node.said)
            self.runtime.call_later(HELLO_S, lambda: None if link.is_open else link.cut("no hello came"))
            return link

        def failed(reason: str) -> None:
            node.is_dialling = False
            self._dial_later(node, reason)

        self._network.dial(*node.address, connected, failed)

    def _dial_later(self, node: PeerNode, fault: str) -> None:
        if self._nodes.get(node.node_id) is not node:
            return
        if fault != node.last_fault:
            node.last_fault = fault
            self._replicator.tell(PeerFault(node.node_id, fault))
            log.warning("node %d at %s: %s", node.node_id, shown_address(*node.address), fault)
        node.at += 1
        delay_s = node.backoff_s * (0.5 + self.runtime.random())
        node.backoff_s = min(node.backoff_s * 2, BACKOFF_MAX_S)
        self.runtime.call_later(delay_s, lambda: self._dial(node.node_id))

    # -- links -------------------------------------------------------------------------------------------------

    def accepted(self, transport: PeerTransport, origin: Origin) -> PeerLink:
        """Somebody has dialled."""
        link = PeerLink(transport, self, self._terms, is_dialler=False, origin=origin)
        if self._has_stopped:
            link.cut("this node stops")
        else:
            self.doorway.admit(link)
        return link

    def _fault(self, link: PeerLink, hello: Hello) -> str | None:
        known = self._known
        return hello_fault(
            known.identity,
            self._greeting.node_type,
            known.nodes,
            known.accepts_all,
            hello,
            removed=known.removed,
            level=known.level,
            shard=self._greeting.shard,
            shards=self._greeting.shards,
            is_proven=link.is_proven,
        )

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """The other side has introduced itself."""
        fault = self._fault(link, hello)
        if link.is_dialler:
            self._answered(link, hello, fault)
            return
        if fault is not None:
            self.doorway.refuse(link, hello, fault)
            return
        if hello.shard != self._greeting.shard:
            self._hand_over(link, hello)
            return
        for other in self.doorway.of_node(hello.node_id):
            if other is not link and other.peer is not None and other.peer.disk_id == hello.disk_id:
                other.close("it has dialled again")
        link.accept(self._hello(hello.node_id))
        node = self._nodes.get(hello.node_id)
        if node is None:
            self._welcome(link, hello)
        elif node.link is None:
            node.backoff_s = BACKOFF_MIN_S
            self._dial(hello.node_id)  # it is there: no need to wait for the back-off

    def _hand_over(self, link: PeerLink, hello: Hello) -> None:
        """A worker of another shard has requests for this one."""
        del self.doorway.links[link]
        assert self._siblings is not None, "of one shard there is no other: see hello_fault"
        self._siblings.tell(LinkHandedOver(link, hello))

    def _answered(self, link: PeerLink, hello: Hello, fault: str | None) -> None:
        """The node that was dialled has introduced itself: the link is open, if it is the one that is meant."""
        node = next((one for one in self._nodes.values() if one.link is link), None)
        if fault is None and node is not None and hello.node_id != node.node_id:
            fault = f"it is node {hello.node_id}, not node {node.node_id}"
        if fault is None and hello.shard != self._greeting.shard:
            fault = f"it is shard {hello.shard}'s worker, not shard {self._greeting.shard}'s"
        if fault is not None or node is None:
            link.cut(fault or "it is no member any more")
            return
        node.backoff_s = BACKOFF_MIN_S
        node.last_fault = ""
        link.is_open = True
        if answers := node.take_answers():
            link.send(answers)
        self._up[hello.node_id] = link
        log.info("linked to node %d at %s", hello.node_id, shown_address(*node.address))
        if node.said != (now := self._hello(node.node_id)):
            link.renew(now)  # what it was told is not true any more
        self._tell_up(hello)

    def _tell_up(self, hello: Hello) -> None:
        for ref in (self._replicator, self._router, self._news):
            if ref is not None:
                ref.tell(PeerUp(hello.node_id, hello))

    def link_renewed(self, link: PeerLink, hello: Hello) -> None:
        """A node has introduced itself anew, over either link between it and this one."""
        fault = self._fault(link, hello)
        if fault is not None:
            link.cut(fault)
            return
        node = self._nodes.get(hello.node_id)
        if node is None:
            self._welcome(link, hello)
        elif node.link is not None and node.link.is_open:
            self._tell_up(hello)

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        """A message of another node."""
        peer = link.peer
        assert peer is not None
        to = self._router if isinstance(message, ASKS + ANSWERS) else self._replicator
        if isinstance(message, NEWS):
            if self._news is None:
                link.cut(f"a {type(message).__name__} where there is one shard")
                return
            to = self._news
        to.tell(PeerSaid(peer.node_id, message, peer.cluster_id, peer.disk_id))

    def link_receiving(self, link: PeerLink) -> None:
        """A part of a message has come; told now and then, since a long one comes in many parts."""
        assert link.peer is not None
        now, node_id = self.runtime.monotonic(), link.peer.node_id
        if now - self._receiving_told.get(node_id, -1.0) >= RECEIVING_S:
            self._receiving_told[node_id] = now
            self._replicator.tell(PeerReceiving(node_id))

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """A link is gone."""
        was_incoming = self.doorway.left(link, reason)
        if was_incoming and link.peer is not None and not self._has_stopped and not self.has_ended:
            self._router.tell(PeerUnheard(link.peer.node_id))
            if link.peer.node_id in self._nodes:
                self._nodes[link.peer.node_id].take_answers()  # nobody waits for them any more
        if link.peer is not None and self._guests.get(link.peer.node_id) is link:
            self._guest_left(link.peer.node_id)
        if not link.is_dialler or self.has_ended:
            return
        node = next((one for one in self._nodes.values() if one.link is link), None)
        if node is not None:
            self._post.lost(node)
        if link.peer is not None and self._up.get(link.peer.node_id) is link:
            del self._up[link.peer.node_id]
            for ref in (self._replicator, self._router):
                ref.tell(PeerDown(link.peer.node_id, self._post.serials.get(link.peer.node_id, 0)))
        if node is not None:
            self._dial_later(node, reason)

    def _welcome(self, link: PeerLink, hello: Hello) -> None:
        """A node that belongs to the cluster, though this one's log does not say so (yet): answers need a link, too."""
        if hello.cluster_id and hello.cluster_id == self._known.identity.cluster_id:
            member = Member(hello.node_id, link.origin.address or hello.host, hello.port)  # nobody else is dialled
            self._nodes[hello.node_id] = PeerNode(hello.node_id, self._addresses(member))
            self._guests[hello.node_id] = link
            self._dial(hello.node_id)

    def _guest_left(self, node_id: int) -> None:
        del self._guests[node_id]
        if all(member.node_id != node_id for member in self._known.nodes):
            node = self._nodes.pop(node_id, None)
            if node is not None and node.link is not None:
                node.link.close("it has left")
