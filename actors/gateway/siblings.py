"""Siblings: the links to the workers of this node's other shards, over Unix sockets in the data folder.

They carry the frames that nodes' links carry, and of the messages only those about forwarded requests. A link goes one
way, as between nodes: what a worker asks and answers goes over the one that it dialled. Nobody but this node's user
reaches the sockets, so who is at the other end is taken from its hello.

To the Routers a sibling is known by a number below 0 (`sibling_key`), where nodes have theirs above it.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import pykka

from actors.messages.lifecycle import Stop
from actors.messages.peers import CutPeer, LeaderChanged, PeerDown, PeerSaid, PeerUnheard, PeerUp, SendPeers
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.peers.link import FRAME_BYTES_MAX, PeerLink, PeerTransport, encoded
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

log = logging.getLogger("quorate.siblings")

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 0.5
FOR_OWN: Final = (Forward, ClientLeft)
"""What asks something of this worker's shard; the rest answers what this one has asked of the other's."""

ANSWERS: Final = (ForwardAnswers, ForwardReturned)
OF_SIBLINGS: Final = frozenset({Forward, ForwardAnswers, ForwardReturned, ClientLeft})


def sibling_key(shard: int) -> int:
    """What the Routers know the worker of that shard by."""
    return -1 - shard


class SiblingNetwork(Protocol):
    """Where links to the workers of this node come from."""

    def dial_sibling(
        self, shard: int, connected: Callable[[PeerTransport], PeerLink], failed: Callable[[str], None]
    ) -> None:
        """Open a stream to that shard's worker; call one of the two. What it receives, and its end, go to the link."""


class _Sibling:
    """The worker of another shard, and the link to it.

    `answers` are for what it has asked before the link to it was open; they are for nobody when the one it asks over is
    closed.
    """

    def __init__(self, shard: int, router: "pykka.ActorRef[Any]") -> None:
        self.shard = shard
        self.router = router
        self.link: PeerLink | None = None
        self.is_up = False
        self.is_dialling = False
        self.backoff_s = BACKOFF_MIN_S
        self.answers: list[bytes] = []
        self.unsent: list[bytes] = []
        self.unsent_serial = 0
        self.last_serial = 0


class Siblings(LoopActor):
    """Owns the links of one worker. `hello` is how it introduces itself, whatever `shard` it has.

    `own` is the Router of its own shard, `routers` are those of the others, by shard.
    """

    def __init__(
        self,
        runtime: Runtime,
        network: SiblingNetwork,
        hello: Hello,
        own: "pykka.ActorRef[Any]",
        routers: "dict[int, pykka.ActorRef[Any]]",
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        super().__init__(runtime)
        self._network = network
        self._hello = hello
        self._own = own
        self._siblings = {shard: _Sibling(shard, router) for shard, router in routers.items()}
        self._frame_bytes_max = frame_bytes_max
        self._incoming: dict[PeerLink, None] = {}
        self._to_send: list[_Sibling] = []
        self._has_stopped = False
        self.handlers = {SendPeers: self._send, CutPeer: self._cut, Stop: self._close_all}

    @staticmethod
    def greeting(node_type: int, node_id: int, shard: int, level: int, version: str) -> Hello:
        """How the worker of a shard introduces itself to its siblings."""
        return Hello(
            PEER_MAJOR, PEER_MINOR, node_type, node_id, node_id, 0, 0, "", 0, level=level, version=version, shard=shard
        )

    def on_start(self) -> None:
        """Dial them all."""
        for sibling in self._siblings.values():
            self._dial(sibling)

    def _close_all(self, message: Stop) -> None:
        self._has_stopped = True
        links = [*self._incoming, *(one.link for one in self._siblings.values() if one.link is not None)]
        for link in links:
            link.close("this worker stops")

    def _cut(self, message: CutPeer) -> None:
        for link in list(self._incoming):
            if link.peer is not None and sibling_key(link.peer.shard) == message.node_id:
                link.cut(message.reason)

    # -- sending -----------------------------------------------------------------------------------------------

    def _send(self, message: SendPeers) -> None:
        said = message.message
        frame = encoded(said)
        assert len(frame) <= self._frame_bytes_max + 4, f"{type(said).__name__} of {len(frame)} bytes"
        for key in message.node_ids:
            sibling = self._siblings[-1 - key]
            if not sibling.is_up:
                if isinstance(said, ANSWERS):
                    sibling.answers.append(frame)
                continue
            if not sibling.unsent:
                self._to_send.append(sibling)
            sibling.unsent.append(frame)
            if isinstance(said, Forward):
                sibling.unsent_serial = said.calls[-1].serial

    def take_turn(self) -> None:
        """All that one turn has for a worker leaves in one piece."""
        super().take_turn()
        to_send, self._to_send = self._to_send, []
        for sibling in to_send:
            unsent, sibling.unsent = sibling.unsent, []
            if unsent and sibling.is_up and sibling.link is not None:
                sibling.last_serial = max(sibling.last_serial, sibling.unsent_serial)
                sibling.link.send(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    # -- links -------------------------------------------------------------------------------------------------

    def _dial(self, sibling: _Sibling) -> None:
        if self._has_stopped or sibling.link is not None or sibling.is_dialling or not self.actor_ref.is_alive():
            return
        sibling.is_dialling = True

        def connected(transport: PeerTransport) -> PeerLink:
            sibling.is_dialling = False
            link = sibling.link = PeerLink(transport, self, is_dialler=True, frame_bytes_max=self._frame_bytes_max)
            link.introduce(self._hello)
            return link

        self._network.dial_sibling(sibling.shard, connected, lambda reason: self._dial_later(sibling))

    def _dial_later(self, sibling: _Sibling) -> None:
        sibling.is_dialling = False
        delay_s = sibling.backoff_s * (0.5 + self.runtime.random())
        sibling.backoff_s = min(sibling.backoff_s * 2, BACKOFF_MAX_S)
        self.runtime.call_later(delay_s, lambda: self._dial(sibling))

    def accepted(self, transport: PeerTransport) -> PeerLink:
        """A sibling has dialled."""
        link = PeerLink(transport, self, is_dialler=False, frame_bytes_max=self._frame_bytes_max)
        if self._has_stopped:
            link.cut("this worker stops")
        else:
            self._incoming[link] = None
        return link

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """The other side has introduced itself."""
        known = self._siblings.get(hello.shard)
        if known is None or (hello.major, hello.node_id) != (PEER_MAJOR, self._hello.node_id):
            reason = f"it is shard {hello.shard} of node {hello.node_id}, version {hello.version}: none of this node's"
            log.error("a worker is refused: %s", reason)
            if link.is_dialler:
                link.cut(reason)
            else:
                link.refuse(reason)
            return
        if not link.is_dialler:
            for other in list(self._incoming):
                if other is not link and other.peer is not None and other.peer.shard == hello.shard:
                    other.close("it has dialled again")
            link.accept(self._hello)
            if known.link is None:
                known.backoff_s = BACKOFF_MIN_S
                self._dial(known)  # it is there: no need to wait for the back-off
            return
        if known.link is not link:
            link.cut("it is another worker than was dialled")
            return
        link.is_open = known.is_up = True
        for frame in known.answers:
            link.send(frame)
        known.answers = []
        known.backoff_s = BACKOFF_MIN_S
        key = sibling_key(known.shard)
        known.router.tell(PeerUp(key, hello))
        known.router.tell(LeaderChanged(key, False))

    def link_renewed(self, link: PeerLink, hello: Hello) -> None:
        """A worker has nothing to say anew."""
        link.cut("a second hello")

    def link_receiving(self, link: PeerLink) -> None:
        """A part of a message has come."""

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        """A message of a sibling."""
        assert link.peer is not None
        shard = link.peer.shard
        if type(message) not in OF_SIBLINGS:
            link.cut(f"a {type(message).__name__} between workers")
            return
        to = self._own if isinstance(message, FOR_OWN) else self._siblings[shard].router
        to.tell(PeerSaid(sibling_key(shard), message))

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """A link is gone."""
        was_incoming = link in self._incoming
        self._incoming.pop(link, None)
        if not self.actor_ref.is_alive():
            return
        if was_incoming:
            spoke = None if link.peer is None else self._siblings.get(link.peer.shard)
            if spoke is not None:  # neither its questions nor its answers come over that one any more
                spoke.answers = []
                for router in (self._own, spoke.router):
                    router.tell(PeerUnheard(sibling_key(spoke.shard)))
            return
        sibling = next((one for one in self._siblings.values() if one.link is link), None)
        if sibling is None:
            return
        sibling.link = None
        sibling.unsent = []
        if sibling.is_up:
            sibling.is_up = False
            key = sibling_key(sibling.shard)
            sibling.router.tell(LeaderChanged(0, False))
            sibling.router.tell(PeerDown(key, sibling.last_serial))
            self._own.tell(PeerDown(key))
        self._dial_later(sibling)
