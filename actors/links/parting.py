"""Nodes that are no members any more: they are told, and owed answers leave before their links close. Part of Links."""

from collections.abc import Callable, Set
from typing import Final

from actors.links.contacts import Contacts, IncomingLinks
from actors.links.known_nodes import KnownNodes
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToRouter
from actors.messages.peers import NodeRemoved
from net.peers.messages import Hello

PARTING_S: Final = 1.0
"""The links to a node that was removed are kept for so long: what its clients had asked is answered over them."""


class Parting:
    """Of one worker. `later` calls it again after so many seconds; `router` is told when this node itself goes."""

    def __init__(
        self,
        known: KnownNodes,
        contacts: Contacts,
        incoming: IncomingLinks,
        router: Mailbox[ToRouter],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._known = known
        self._contacts = contacts
        self._incoming = incoming
        self._router = router
        self._later = later
        self._parting: set[int] = set()
        self._removed_by = 0

    def members_changed(self) -> None:
        """Tell those that are members no more, or again; close the links to all others that are none."""
        known = self._known
        parting = {one.node_id for one in known.said.removed} - known.mates.keys()
        others, self._parting = parting ^ self._parting, parting
        if others:
            for link in (*self._contacts.links(), *self._incoming.links):
                peer = link.peer
                if peer is not None and link.is_open and peer.node_id in others:
                    link.renew(known.hello(peer.node_id, peer.shard))
            self._later(PARTING_S, lambda: self._close(frozenset()))
        self._close(others & parting)

    def _close(self, but: Set[int]) -> None:
        """Close the links to who is no member any more, but to those nodes."""
        mates = self._known.mates
        for contact in self._contacts.all():
            is_other = not contact.is_near and contact.node_id not in mates and contact.guest is None
            if is_other and contact.node_id not in but:
                self._contacts.drop(contact, "it is no member any more")
        for link in list(self._incoming.links):
            fault = None if link.peer is None else self._known.fault(link.peer, is_proven=link.is_proven)
            if fault is not None and link.peer is not None and link.peer.node_id not in but:
                link.close(fault)

    def heard(self, hello: Hello) -> None:
        """Go by what another node says of this one."""
        self.is_told(hello.node_id, is_removed=hello.is_removed)

    def is_told(self, node_id: int, *, is_removed: bool) -> None:
        """Tell the Router that this node is no member any more, as that node says, or that it is one again."""
        if is_removed or node_id == self._removed_by:
            self._removed_by = node_id if is_removed else 0
            self._router.tell(NodeRemoved(self._removed_by))
