"""Contacts: whom a worker keeps links to, and whose link is whose. A part of Links, which dials."""

from collections.abc import Callable, Iterable

from actors.links.contact import Contact
from actors.links.known_nodes import KnownNodes
from actors.messages.worker_keys import worker_key
from net.peers.link import PeerLink
from net.peers.messages import Hello
from storage.records import Member


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
        one, too."""
        if hello.cluster_id and hello.cluster_id == self._known.cluster_id:
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
