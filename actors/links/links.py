"""Links: to the other nodes, and to the workers of other shards, on this node and on others.

Three kinds of contacts (`actors.links.contact`) have one way of dialling, of sending and of keeping what can't be
sent yet. A link goes one way: what a worker asks and answers goes over the one that it dialled. What is sent to
nobody's link is not sent: every message of the protocol may be lost. Only answers to requests wait for the way back.

What comes over a link belongs to the room that its kind names: requests to the Router, who leads what to ShardNews,
everything else, of the own shard alone, to the Replicator.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from actors.links.changes import Changes
from actors.links.contact import Contact, shown_address
from actors.links.contacts import Contacts, IncomingLinks
from actors.links.known_nodes import KnownNodes
from actors.links.parting import Parting
from actors.messages.lifecycle import Stop
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToLinks, ToReplicator, ToRouter, ToShardNews
from actors.messages.peers import (
    CutPeer,
    Introduce,
    KeyringChanged,
    PeerBehind,
    PeerDown,
    PeerFault,
    PeerReceiving,
    PeerRestless,
    PeerSaid,
    PeerUnheard,
    PeerUp,
    Reach,
    SendPeers,
    worker_key,
)
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.greeting import Greeting
from net.peers.link import Connected, LinkTerms, Origin, PeerLink, PeerNetwork, PeerTransport, encoded
from net.peers.messages import ANSWERS, ASKS, NEWS, PEER_MAJOR, Hello, PeerMessage
from net.peers.post import Post

log = logging.getLogger("quorate.peers")

HELLO_S: Final = 3.0
"""Who was dialled and has not proved itself by then is dialled again."""

PENDING_S: Final = 10.0
"""A worker of another node that has dialled, and can't be dialled by then, dials again."""

INTRODUCE_S: Final = 1.0
"""How often a node that does not belong yet is told again to which cluster this one does."""

RECEIVING_S: Final = 0.02  # how often it is told that a long message is coming in

OF_WORKERS: Final = frozenset({*ASKS, *ANSWERS, *NEWS})
"""What the workers of different shards say to each other."""


class LinkNetwork(PeerNetwork, Protocol):
    """Where links come from: other nodes, and this node's other workers."""

    def dial_sibling(self, shard: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """Open a stream to that shard's worker; call one of the two. What it receives, and its end, go to the link."""


class Links(LoopActor[ToLinks]):
    """All links of one worker. `greeting` is how it introduces itself, for node `node_id`."""

    def __init__(
        self, runtime: Runtime, network: LinkNetwork, greeting: Greeting, terms: LinkTerms, node_id: int
    ) -> None:
        super().__init__(runtime)
        self._network = network
        self._terms = terms
        self._known = KnownNodes(greeting, node_id)
        self._contacts = Contacts(self._known, self._dial)
        self._workers_links: dict[PeerLink, None] = {}
        self.incoming = IncomingLinks(runtime)
        self._post = Post(
            lambda call: runtime.call_later(0.0, call),
            lambda key, is_behind: self._router.tell(PeerBehind(key, is_behind)),
        )
        self._receiving_told: dict[int, float] = {}
        self._changes = Changes(lambda node_id: self._replicator.tell(PeerRestless(node_id)))
        self._has_stopped = self._introduces = False
        self._replicator: Mailbox[ToReplicator]
        self._router: Mailbox[ToRouter]
        self._news: Mailbox[ToShardNews] | None
        self._parting: Parting
        self.handlers = {
            SendPeers: self._send,
            CutPeer: self._cut,
            Introduce: self._know,
            Reach: self._reach,
            KeyringChanged: self._keyring_changed,
            Stop: self._close_all,
        }

    def attach(
        self,
        replicator: Mailbox[ToReplicator],
        router: Mailbox[ToRouter],
        news: Mailbox[ToShardNews] | None = None,
    ) -> None:
        """Whom it tells, `news` where there are several shards; called by the assembly before any message."""
        self._replicator = replicator
        self._router = router
        self._news = news
        self._parting = Parting(self._known, self._contacts, self.incoming, router, self.runtime.call_later)

    def on_start(self) -> None:
        """Dial this node's workers."""
        for contact in self._contacts.all():
            self._dial(contact)

    def _tell(self, contact: Contact, message: Any) -> None:
        """Whoever talks with contacts of that kind."""
        for ref in (self._replicator if contact.is_mate else None, self._router, self._news):
            if ref is not None:
                ref.tell(message)

    @property
    def _links(self) -> list[PeerLink]:
        return [*self.incoming.links, *self._workers_links, *self._contacts.links()]

    def _keyring_changed(self, message: KeyringChanged) -> None:
        """Links that were proved by a secret which is not valid any more are closed, and dialled anew."""
        self._terms = replace(self._terms, keyring=message.keyring)
        for link in self._links:
            if not self._terms.is_met_by(link):
                link.close("the cluster's secret was changed")

    def _close_all(self, message: Stop) -> None:
        """Let other nodes notice that this worker is about to end. Workers of other shards still have its answers to
        read."""
        self._has_stopped = True
        for link in self._links:
            contact = self._contacts.of_link.get(link)
            if link not in self._workers_links and (contact is None or contact.is_mate):
                link.close("this node stops")

    def _cut(self, message: CutPeer) -> None:
        key, reason = message.node_id, message.reason
        if key < 0:
            contact = self._contacts.get(key)
            if contact is not None and contact.incoming is not None:
                contact.incoming.cut(reason)
            return
        log.error("node %d: %s; its link is cut", key, reason)
        if self.runtime.watcher is not None:
            self.runtime.watcher("cut off", message)
        self._replicator.tell(PeerFault(key, reason))
        for link in self.incoming.of_node(key):
            link.cut(reason)

    # -- sending -----------------------------------------------------------------------------------------------

    def _send(self, message: SendPeers) -> None:
        frame = b""
        said = message.message
        self._known.greeting.facts.said += len(message.node_ids)
        for key in message.node_ids:
            contact = self._contacts.get(key)
            if contact is None:
                continue
            is_linked = contact.is_linked
            if not is_linked and not (isinstance(said, ANSWERS) and contact.is_heard):
                continue
            if not frame:
                frame = encoded(said)
                assert len(frame) <= self._terms.frame_bytes_max, f"{type(said).__name__} of {len(frame)} bytes"
            if is_linked:
                self._post.add(contact, said, frame)
            else:
                contact.keep(frame)

    def take_turn(self) -> None:
        """All that one turn has for somebody leaves in one piece."""
        super().take_turn()
        self._post.send_all()

    def link_drained(self, link: PeerLink) -> None:
        """Clients' requests that waited for room go on."""
        contact = self._contacts.of_link.get(link)
        if contact is not None and contact.link is link:
            self._post.send(contact)

    # -- whom this worker knows --------------------------------------------------------------------------------

    def _know(self, message: Introduce) -> None:
        known = self._known
        says_more = message.identity.cluster_id != known.cluster_id or message.is_leaving != known.said.is_leaving
        known.said = message
        mates = known.mates
        self._parting.members_changed()
        for node_id, member in mates.items():
            self._contacts.keep_mate(node_id, known.addresses(member))
        for link in list(self.incoming.links):
            if link.is_open and link.peer is not None and self._contacts.get(link.peer.node_id) is None:
                self._contacts.welcome(link, link.peer)
        for shard, node_id in known.led.items():
            self._contacts.reach_leader(shard, node_id)  # its address may not have been known before
        if says_more:
            self._contacts.say_hello_again(self.incoming.links)
        if known.cluster_id and not self._introduces:
            self._introduces = True
            self.runtime.call_later(INTRODUCE_S, self._introduce_again)

    def _introduce_again(self) -> None:
        if not self._has_stopped and not self.has_ended:
            self._contacts.introduce_again()
            self.runtime.call_later(INTRODUCE_S, self._introduce_again)

    def _reach(self, message: Reach) -> None:
        """Reach the worker of the node that leads the shard."""
        self._known.led[message.shard] = message.node_id
        self._contacts.reach_leader(message.shard, message.node_id)

    # -- dialling ----------------------------------------------------------------------------------------------

    def _dial(self, contact: Contact) -> None:
        is_gone = self._has_stopped or self.has_ended or not self._contacts.has(contact)
        if is_gone or contact.link is not None or contact.is_dialling or not self._known.wants(contact):
            return
        contact.is_dialling = True

        def connected(transport: PeerTransport, origin: Origin) -> PeerLink:
            contact.is_dialling = False
            link = contact.link = PeerLink(transport, self, self._terms, is_dialler=True, origin=origin)
            self._contacts.of_link[link] = contact
            contact.said = self._known.hello(contact.node_id, contact.shard)
            link.introduce(contact.said)
            if not contact.is_near:
                self.runtime.call_later(HELLO_S, lambda: None if link.is_open else link.cut("no hello came"))
            pending, contact.pending = contact.pending, None
            if pending is not None and not pending.is_closed:
                self._accept_worker(pending, contact)
            return link

        def failed(reason: str) -> None:
            contact.is_dialling = False
            self._dial_later(contact, reason)

        if contact.is_near:
            self._network.dial_sibling(contact.shard, connected, failed)
        else:
            self._network.dial(*contact.address, connected, failed)

    def _dial_later(self, contact: Contact, fault: str) -> None:
        if not self._contacts.has(contact):
            return
        if contact.is_mate and fault != contact.last_fault:
            contact.last_fault = fault
            self._replicator.tell(PeerFault(contact.key, fault))
            if not self._changes.note(self.runtime.monotonic(), contact.key):
                log.warning("node %d at %s: %s", contact.key, shown_address(*contact.address), fault)
        self.runtime.call_later(contact.failed(self.runtime.random()), lambda: self._dial(contact))

    def _answered(self, link: PeerLink, hello: Hello) -> None:
        """Who was dialled has introduced itself: the link is open, if it is the one that is meant."""
        contact = self._contacts.of_link.get(link)
        if contact is None or not self._contacts.has(contact):
            link.cut("it is no member any more")
            return
        fault = self._known.other_fault(contact, hello, is_proven=link.is_proven)
        if fault is not None:
            link.cut(fault)
            return
        contact.is_there()
        if contact.is_mate:
            self._parting.heard(hello)
        link.is_open = contact.is_up = True
        if answers := contact.take_answers():
            link.send(answers)
        if contact.is_mate:
            contact.last_fault = ""
            if not self._changes.note(self.runtime.monotonic(), contact.key):
                log.info("linked to node %d at %s", contact.key, shown_address(*contact.address))
            if contact.said != (now := self._known.hello(contact.node_id, contact.shard)):
                link.renew(now)  # what it was told is not true any more
        self._tell(contact, PeerUp(contact.key, hello))

    # -- who dials here ----------------------------------------------------------------------------------------

    def accepted(self, transport: PeerTransport, origin: Origin) -> PeerLink:
        """Somebody has dialled, at the nodes' port."""
        link = PeerLink(transport, self, self._terms, is_dialler=False, origin=origin)
        if self._has_stopped:
            link.cut("this node stops")
        else:
            self.incoming.admit(link)
        return link

    def accepted_near(self, transport: PeerTransport, origin: Origin) -> PeerLink:
        """Take in a worker of this node that has dialled."""
        link = PeerLink(transport, self, self._terms, is_dialler=False, origin=origin)
        if self._has_stopped:
            link.cut("this node stops")
        else:
            self._workers_links[link] = None
        return link

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """Take the other side in, which has introduced itself."""
        if link.is_dialler:
            self._answered(link, hello)
        elif link in self._workers_links:
            self._near_came(link, hello)
        elif (fault := self._known.fault(hello, is_proven=link.is_proven)) is not None:
            self.incoming.refuse(link, hello, fault, is_removed=self._known.was_removed(hello.node_id))
        elif hello.shard != self._known.greeting.shard:
            self._far_came(link, hello)
        else:
            self._mate_came(link, hello)

    def _mate_came(self, link: PeerLink, hello: Hello) -> None:
        for other in self.incoming.of_node(hello.node_id):
            if other is not link and other.peer is not None and other.peer.disk_id == hello.disk_id:
                other.close("it has dialled again")
                self._changes.note(self.runtime.monotonic(), hello.node_id)
        link.accept(self._known.hello(hello.node_id, self._known.greeting.shard))
        contact = self._contacts.get(hello.node_id)
        if contact is None:
            self._contacts.welcome(link, hello)
        elif contact.link is None:
            contact.is_there()
            self._dial(contact)  # it is there: no need to wait for the back-off

    def _near_came(self, link: PeerLink, hello: Hello) -> None:
        contact = self._contacts.get(worker_key(hello.shard))
        if contact is None or (hello.major, hello.node_id) != (PEER_MAJOR, self._known.node_id):
            reason = f"it is shard {hello.shard} of node {hello.node_id}, version {hello.version}: none of this node's"
            log.error("a worker is refused: %s", reason)
            link.refuse(reason)
        else:
            self._accept_worker(link, contact)

    def _far_came(self, link: PeerLink, hello: Hello) -> None:
        """Another shard's worker of another node: it is let in when it could be dialled, or could not be answered."""
        del self.incoming.links[link]
        self._workers_links[link] = None
        self.runtime.call_later(PENDING_S, lambda: None if link.is_open else link.cut("it can't be reached itself"))
        contact = self._contacts.far(hello.shard, hello.node_id)
        if contact is None or self._has_stopped:
            link.refuse(f"node {hello.node_id} is no member, as far as shard {self._known.greeting.shard} knows")
            return
        contact.said_at = (link.origin.address or hello.host, hello.port)
        self._contacts.of_link[link] = contact
        if contact.link is not None:
            self._accept_worker(link, contact)
            return
        if contact.pending is not None:
            contact.pending.close("it has dialled again")
        contact.pending = link
        contact.addresses = [contact.said_at, *(one for one in contact.addresses if one != contact.said_at)]
        contact.is_there()
        self._dial(contact)

    def _accept_worker(self, link: PeerLink, contact: Contact) -> None:
        if contact.incoming is not None:
            contact.incoming.close("it has dialled again")
        contact.incoming = link
        self._contacts.of_link[link] = contact
        link.accept(self._known.hello(contact.node_id, contact.shard))
        if contact.link is None:
            contact.is_there()
            self._dial(contact)  # it is there: no need to wait for the back-off

    # -- what happens on links ---------------------------------------------------------------------------------

    def link_renewed(self, link: PeerLink, hello: Hello) -> None:
        """Note that a node has introduced itself anew, over either link between it and this one."""
        contact = self._contacts.of_link.get(link)
        if contact is not None and not contact.is_mate:
            link.cut("a second hello")
            return
        fault = self._known.fault(hello, is_proven=link.is_proven)
        if fault is not None:
            link.cut(fault)
            return
        self._parting.heard(hello)
        contact = self._contacts.get(hello.node_id)
        if contact is None:
            self._contacts.welcome(link, hello)
        elif contact.is_linked:
            self._tell(contact, PeerUp(contact.key, hello))

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        """Handle a message of another worker."""
        peer = link.peer
        assert peer is not None
        self._known.greeting.facts.heard += 1
        contact = self._contacts.of_link.get(link)
        if contact is not None and type(message) not in OF_WORKERS:
            link.cut(f"a {type(message).__name__} between workers of different shards")
            return
        to: Mailbox[Any] | None = self._replicator
        if isinstance(message, NEWS):
            to = self._news
        elif isinstance(message, ASKS + ANSWERS):
            to = self._router
        if to is None:
            link.cut(f"a {type(message).__name__} where there is one shard")
        elif contact is None:
            to.tell(PeerSaid(peer.node_id, message, peer.cluster_id, peer.disk_id))
        else:
            to.tell(PeerSaid(contact.key, message))

    def link_receiving(self, link: PeerLink) -> None:
        """Note that a part of a message has come; told now and then, since a long one comes in many parts."""
        contact = self._contacts.of_link.get(link)
        if link in self._workers_links or (contact is not None and not contact.is_mate):
            return
        assert link.peer is not None
        now, node_id = self.runtime.monotonic(), link.peer.node_id
        if now - self._receiving_told.get(node_id, -1.0) >= RECEIVING_S:
            self._receiving_told[node_id] = now
            self._replicator.tell(PeerReceiving(node_id))

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """Forget a link that is gone."""
        contact = self._contacts.of_link.pop(link, None)
        if link.is_dialler:
            if contact is not None:
                self._lost(contact, link, reason)
        elif link in self._workers_links:
            del self._workers_links[link]
            if contact is not None and contact.incoming is link:
                contact.incoming = None
                self._unheard(contact.key, contact)
        elif self.incoming.left(link, reason) and link.peer is not None:
            node_id = link.peer.node_id
            mate = self._contacts.get(node_id)
            self._unheard(node_id, mate)
            if mate is not None and mate.guest is link:
                mate.guest = None
                if self._known.member(node_id) is None:
                    self._contacts.drop(mate, "it has left")

    def _lost(self, contact: Contact, link: PeerLink, reason: str) -> None:
        """Give the link that was dialled."""
        self._post.lost(contact)
        if self.has_ended:
            return
        if contact.is_up:
            contact.is_up = False
            self._tell(contact, PeerDown(contact.key, self._post.serials.get(contact.key, 0)))
        if contact.is_mate and link.is_removed:
            self._parting.is_told(contact.node_id, is_removed=True)
        if not self._has_stopped:
            self._dial_later(contact, reason)

    def _unheard(self, key: int, contact: Contact | None) -> None:
        """Neither its questions nor its answers come over that link any more, and nobody waits for what is kept."""
        if not self._has_stopped and not self.has_ended:
            self._router.tell(PeerUnheard(key))
            if contact is not None:
                contact.take_answers()
