"""Contacts: whom a worker keeps links to, and whose link is whose. A part of Links, which dials.

`IncomingLinks` are those that others have dialled, until and after they have proved themselves. Who is refused is
told, but never so often that telling it is the harm.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from actors.links.contact import Contact
from actors.links.known_nodes import KnownNodes
from actors.messages.peers import worker_key
from actors.runtime.contract import Runtime
from net.peers.link import PeerLink
from net.peers.messages import Hello
from net.refusals import Refusals
from storage.records import Member

log = logging.getLogger("quorate.peers")

PROOF_S: Final = 2.0
"""A link on which nobody has proved himself by then is closed."""

INCOMING_MAX: Final = 200
"""Links from other nodes; who has not proved himself makes room for who comes after him."""


class Contacts:
    """Of one worker, which knows what `known` says. `dial` is called for each that has come.

    `of_link`: whose a link is, if that is known.
    """

    def __init__(self, known: KnownNodes, dial: Callable[[Contact], None]) -> None:
        self.of_link: dict[PeerLink, Contact] = {}
        self._known = known
        self._dial = dial
        self._own_shard = known.greeting.shard
        near = [worker_key(shard) for shard in range(known.greeting.shards) if shard != self._own_shard]
        self._by_key = {key: Contact(key, self._own_shard) for key in near}

    def get(self, key: int) -> Contact | None:
        """Give the one of that key."""
        return self._by_key.get(key)

    def all(self) -> list[Contact]:
        """Every one."""
        return list(self._by_key.values())

    def has(self, contact: Contact) -> bool:
        """Whether it still is one."""
        return self._by_key.get(contact.key) is contact

    def drop(self, contact: Contact, reason: str) -> None:
        """Forget it."""
        del self._by_key[contact.key]
        contact.close(reason)

    def links(self) -> list[PeerLink]:
        """Those that were dialled."""
        return [one.link for one in self._by_key.values() if one.link is not None]

    # -- mates -------------------------------------------------------------------------------------------------

    def keep_mate(self, node_id: int, addresses: list[tuple[str, int]]) -> Contact:
        """Dial that node's worker of the own shard at one of these."""
        contact = self._by_key.get(node_id)
        if contact is None:
            contact = self._by_key[node_id] = Contact(node_id, self._own_shard)
            contact.addresses = addresses
            self._dial(contact)
        elif addresses != contact.addresses:
            contact.move_to(addresses)
        return contact

    def welcome(self, link: PeerLink, hello: Hello) -> None:
        """Keep a link to a node that belongs to the cluster, though this one's log does not say so (yet): answers need
        one, too. A node that belongs to none lets everybody in, and dials back: its list may not name who leads."""
        if hello.cluster_id and self._known.cluster_id in (0, hello.cluster_id):
            member = Member(hello.node_id, link.origin.address or hello.host, hello.port)  # nobody else is dialled
            self.keep_mate(hello.node_id, self._known.addresses(member)).guest = link

    def _linked_mates(self) -> list[tuple[PeerLink, int]]:
        """Give the links to the other nodes that were dialled and are open, and those nodes' numbers."""
        of_mates = [(one.link, one.node_id) for one in self._by_key.values() if one.is_mate]
        return [(link, node_id) for link, node_id in of_mates if link is not None and link.is_open]

    def say_hello_again(self, incoming: Iterable[PeerLink]) -> None:
        """To all nodes, also over the links by which they came: they go by what this one says of itself."""
        for link, node_id in self._linked_mates():
            link.renew(self._known.hello(node_id, self._own_shard))
        for link in incoming:
            if link.is_open and link.peer is not None:
                link.renew(self._known.hello(link.peer.node_id, self._own_shard))

    def introduce_again(self) -> None:
        """To those who do not belong to this cluster: they may not have heard, and wait for that."""
        for link, node_id in self._linked_mates():
            if link.peer is not None and link.peer.cluster_id != self._known.cluster_id:
                link.renew(self._known.hello(node_id, self._own_shard))

    # -- far workers -------------------------------------------------------------------------------------------

    def far(self, shard: int, node_id: int) -> Contact | None:
        """Find that node's worker of the shard, as this one's own worker's address tells where it is; None: not
        known."""
        member = self._known.member(node_id)
        if member is None:
            return None
        key = worker_key(shard, node_id)
        contact = self._by_key.setdefault(key, Contact(key, self._own_shard))
        at = self._known.addresses(member, shard)
        contact.addresses = list(dict.fromkeys([*at, contact.said_at] if contact.said_at[1] else at))
        return contact

    def reach_leader(self, shard: int, node_id: int) -> None:
        """Dial the worker of the node that leads the shard, if it is known (0: this node leads it)."""
        contact = self.far(shard, node_id) if node_id else None
        if contact is not None:
            self._dial(contact)


class IncomingLinks:
    """Of one worker. `links` are in the order in which they came."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._refusals = Refusals(log, "the nodes' port")
        self.links: dict[PeerLink, None] = {}

    def admit(self, link: PeerLink) -> None:
        """Somebody has dialled, and has some time to prove himself."""
        if len(self.links) >= INCOMING_MAX:
            oldest = next((one for one in self.links if one.peer is None), link)
            oldest.cut("it had not proved itself, and others came")
        if not link.is_closed:
            self.links[link] = None
            self._runtime.call_later(PROOF_S, lambda: None if link.peer else link.cut("it has proved nothing in time"))

    def of_node(self, node_id: int) -> list[PeerLink]:
        """Those over which that node has introduced itself."""
        return [link for link in self.links if link.peer is not None and link.peer.node_id == node_id]

    def refuse(self, link: PeerLink, hello: Hello, fault: str, *, is_removed: bool) -> None:
        """Whoever says hello is not to be talked with. `is_removed`: since it was removed from the cluster."""
        who = f"{link.origin.address or 'somebody'}, who says that it is node {hello.node_id}"
        self._refusals.log(self._runtime.monotonic(), who, fault)
        link.refuse(fault, is_removed=is_removed)

    def turned_away(self, address: str, why: str) -> None:
        """Somebody at that address did not get as far as a link."""
        self._refusals.log(self._runtime.monotonic(), address, why)

    def left(self, link: PeerLink, reason: str) -> bool:
        """Note that a link is closed; whether it was one of these."""
        if link not in self.links:
            return False
        del self.links[link]
        if link.peer is None:
            self._refusals.log(self._runtime.monotonic(), link.origin.address, reason)
        return True
