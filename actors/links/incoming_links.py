"""IncomingLinks: the links that others have dialled, until and after they have proved themselves.

Who is refused is told, but never so often that telling it is the harm.
"""

import logging
from typing import Final

from actors.runtime.contract import Runtime
from net.peers.link import PeerLink
from net.peers.messages import Hello
from net.refusals import Refusals

log = logging.getLogger("quorate.peers")

PROOF_S: Final = 2.0
"""A link on which nobody has proved himself by then is closed."""

INCOMING_MAX: Final = 200
"""Links from other nodes; who has not proved himself makes room for who comes after him."""


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

    def refuse(self, link: PeerLink, hello: Hello, fault: str) -> None:
        """Whoever says hello is not to be talked with."""
        who = f"{link.origin.address or 'somebody'}, who says that it is node {hello.node_id}"
        self._refusals.log(self._runtime.monotonic(), who, fault)
        link.refuse(fault)

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
