"""Somebody who reaches a node's port for nodes and is none: says hello as it likes, and then whatever it likes.

Nothing that it says may count, whether nodes prove a secret to each other or are trusted for where they are. Somebody
who has the secret and is no member may be taken for a leader by a node that has none, so that is not said here; all
else that it says must not count either.
"""

from collections.abc import Callable

from actors.links.links import Links
from net.peers.link import LinkTerms, Origin, PeerLink, encoded
from net.peers.messages import (
    PEER_MAJOR,
    Diverged,
    ForwardAnswers,
    ForwardReturned,
    Hello,
    PeerMessage,
    Pull,
    Push,
    SnapshotPull,
    Stored,
    TakeOver,
    Vote,
    VoteRequest,
)
from net.peers.proof import Keyring
from tests.net.peers.wire import OPENING, framed
from tests.simulation.cluster import SimulatedNode
from tests.simulation.observe import STRANGER
from tests.simulation.world import World


class _Deaf:
    """The stranger's end of the stream: it does not listen."""

    def write(self, data: bytes) -> None:
        """Not heard."""

    def close(self) -> None:
        """Not heard."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def abort(self) -> None:
        """Not heard."""


class _Guest:
    """Somebody who has the secret: a link over which each side hears the other at once."""

    def __init__(self, keyring: Keyring, links: Links, hello: Hello) -> None:
        self._link = PeerLink(self, self, LinkTerms(keyring), is_dialler=True, origin=Origin())
        self._there = links.accepted(_End(self._hears), Origin("guest"))
        self._link.introduce(hello)

    def _hears(self, data: bytes) -> None:
        self._link.receive(data)

    def say(self, messages: list[PeerMessage]) -> None:
        """Whatever it likes, if it is let in."""
        self._link.send([encoded(message) for message in messages])

    def leave(self) -> None:
        """It is gone."""
        self._there.lost("it has left")

    def write(self, data: bytes) -> None:
        """To the node."""
        self._there.receive(data)

    def close(self) -> None:
        """Nothing more."""

    abort = close

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """The node lets it in."""
        link.is_open = True

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        """Not heard."""

    def link_renewed(self, link: PeerLink, hello: Hello) -> None:
        """Not heard."""

    def link_receiving(self, link: PeerLink) -> None:
        """Not heard."""

    def link_drained(self, link: PeerLink) -> None:
        """Nothing waits here."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """Not heard."""


class _End:
    """The node's end of the stream to a guest."""

    def __init__(self, hears: Callable[[bytes], None]) -> None:
        self.write = hears

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def close(self) -> None:
        """Nothing more."""

    abort = close


class Stranger:
    """Talks to `node`, under a number of its own or that of a member."""

    def __init__(self, world: World, node: SimulatedNode, member: SimulatedNode) -> None:
        self._world = world
        self._node = node
        self._member = member

    def talk(self) -> None:
        """Say hello, and all the rest at once."""
        random, node = self._world.random, self._node
        runtime, links, log = node.runtime, node.links, node.log
        if runtime is None or links is None or log is None:
            return
        current = log.membership.current
        own = 0 if current is None else current.cluster_id
        cluster_id = random.choice([0, 12345, own])
        is_member = cluster_id != own and self._member is not node and random.random() < 0.5
        node_id = self._member.node_id if is_member else STRANGER
        hello = Hello(PEER_MAJOR, 0, 1, node_id, node.node_id, cluster_id, 4711, "nowhere", 1, "nowhere", 2, 99)
        hello.shards, hello.to_shard = node.shards, node.shard
        hello.shard = random.randrange(node.shards + 1) if node.shards > 1 else 0
        said: list[PeerMessage] = [hello]
        vote_id, end = log.tail.end.vote_id + random.choice([0, 1]), log.tail.end.trans_id
        wishes: list[PeerMessage] = [
            Vote(vote_id, False, True),
            Stored(vote_id, end, 1e9),
            Stored(vote_id, end + 100, 1e9),
            Pull(vote_id, 0, 0, 100),
            Diverged(vote_id, 0, end, vote_id),
            SnapshotPull(vote_id, 0, b""),
            TakeOver(vote_id),
            ForwardAnswers([(1, (0, b"garbage", []))]),
            ForwardReturned([1, 2, 3]),
            Push(vote_id + 7, 0, 0, [], end, 1.0),
            VoteRequest(vote_id + 7, False, True, vote_id + 7, end),
        ]
        said += random.sample(wishes, random.randint(1, len(wishes)))
        data = OPENING + b"".join(framed(message) for message in said)
        if random.random() < 0.2:
            data += bytes([random.randrange(256) for _ in range(50)])
        self._world.note("stranger", node.name, data)
        if node.observer is not None:
            node.observer.posed.add((node.node_id, node_id))

        def arrive() -> None:
            link = links.accepted(_Deaf(), Origin("stranger"))
            link.receive(data)
            link.lost("it has left")

        keyring = node.network.keyring
        if not node.network.is_sealed or random.random() < 0.5:
            runtime.run(arrive)
            return
        guest_hello = hello
        guest_hello.shard, guest_hello.node_id, guest_hello.cluster_id = node.shard, STRANGER, own

        def talk() -> None:
            guest = _Guest(keyring, links, guest_hello)
            guest.say([one for one in said[1:] if not isinstance(one, Push | Diverged)])
            guest.leave()

        runtime.run(talk)
