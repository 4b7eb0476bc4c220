"""Links to nodes: whom they dial and let in, what they pass on, and what they say when a link breaks."""

from collections.abc import Callable
from typing import Any

from actors.links.links import Links
from actors.messages.peers import CutPeer, Introduce, PeerDown, PeerFault, PeerSaid, PeerUnheard, PeerUp, SendPeers
from net.peers.forwarding import packed_call
from net.peers.greeting import Greeting
from net.peers.link import Origin, PeerLink
from net.peers.messages import (
    PEER_MAJOR,
    ClientLeft,
    Forward,
    ForwardAnswers,
    ForwardReturned,
    Hello,
    PeerMessage,
    Refused,
    Stored,
)
from quorate.protocol import Action, Request
from storage.records import Member
from storage.vote_file import Identity
from tests.actors.cranked import CrankedRuntime, Probe, ref
from tests.net.peers.wire import OPENING, TERMS, TRUSTED, framed


class Wire:
    """This node's end of a stream."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Noted."""
        self.written += data

    def close(self) -> None:
        """Noted."""
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def abort(self) -> None:
        """Noted."""
        self.is_closed = True


Connected = Callable[[Any, Origin], PeerLink]


class Host:
    """The Links of node 1, which know nodes 2 and 3; what they dial is noted, and answered by hand."""

    def __init__(self, *, cluster_id: int = 9) -> None:
        self.runtime = CrankedRuntime()
        self.replicator, self.router = Probe(), Probe()
        self.dialled: list[tuple[str, Connected, Callable[[str], None]]] = []
        self.actor = Links(self.runtime, self, Greeting(client_host="c1", client_port=5, level=99), TERMS, 1)
        self.actor.attach(ref(self.replicator), ref(self.router))
        self.actor.begin()
        self.introduce(cluster_id)

    def dial(self, host: str, port: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """The network's part."""
        self.dialled.append((host, connected, failed))

    def dial_sibling(self, shard: int, connected: Connected, failed: Callable[[str], None]) -> None:
        """There is one shard."""
        raise AssertionError(shard)

    def introduce(self, cluster_id: int = 9, removed: tuple[Member, ...] = (), nodes: tuple[int, ...] = (2, 3)) -> None:
        members = tuple(Member(n, f"n{n}", 1, n * 11) for n in nodes)
        own = Member(1, "n1", 1, 11)
        self.tell(Introduce(own, Identity(cluster_id, 1, 11), members, cluster_id == 0, removed))

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.actor.actor_ref.tell(message)
        self.runtime.crank()

    def link(self, node_id: int = 2) -> tuple[PeerLink, Wire]:
        """The link that was dialled to that node, open."""
        (at,) = [n for n, (host, _, _) in enumerate(self.dialled) if host == f"n{node_id}"]
        _, connected, _ = self.dialled.pop(at)
        wire = Wire()
        link = connected(wire, TRUSTED)
        link.receive(OPENING + framed(hello(node_id)))
        self.runtime.crank()
        wire.written = b""
        return link, wire

    def accept(self, *messages: PeerMessage, origin: Origin = TRUSTED) -> tuple[PeerLink, Wire]:
        """Another node dials, and says this."""
        wire = Wire()
        link = self.actor.accepted(wire, origin)
        link.receive(OPENING + b"".join(map(framed, messages)))
        self.runtime.crank()
        return link, wire


def hello(node_id: int = 2, cluster_id: int = 9, disk_id: int | None = None) -> Hello:
    disk = node_id * 11 if disk_id is None else disk_id
    return Hello(PEER_MAJOR, 0, 1, node_id, 1, cluster_id, disk, f"n{node_id}", 1, "c", 2, 99)


def test_all_that_are_known_are_dialled_and_a_link_is_told_when_the_other_has_introduced_itself() -> None:
    host = Host()
    assert sorted(name for name, _, _ in host.dialled) == ["n2", "n3"]
    assert host.replicator.take(PeerUp) == []
    host.link(2)
    assert [up.node_id for up in host.replicator.take(PeerUp)] == [2]
    assert [up.node_id for up in host.router.take(PeerUp)] == [2]


def test_a_node_that_can_not_be_reached_is_dialled_again_later_and_later_and_said_once() -> None:
    host = Host()
    tries = []
    for _ in range(8):
        ((_, _, failed),) = [one for one in host.dialled if one[0] == "n2"]
        host.dialled = [one for one in host.dialled if one[0] != "n2"]
        failed("refused")
        begun = host.runtime.time
        while not any(name == "n2" for name, _, _ in host.dialled):
            host.runtime.crank(0.01)
        tries.append(host.runtime.time - begun)
    assert tries[0] < 0.1
    assert tries == sorted(tries)
    assert 0.9 < tries[-1] < 1.1
    assert [fault.reason for fault in host.replicator.take(PeerFault)] == ["refused"]


def test_what_one_turn_says_leaves_in_one_piece_and_nothing_to_whom_no_link_is_open() -> None:
    host = Host()
    _, wire = host.link(2)
    stored = Stored(1, 7, 1.0)
    host.tell(SendPeers((2, 3), stored), SendPeers((2,), ClientLeft(4)))
    assert wire.written == framed(stored) + framed(ClientLeft(4))


def test_answers_wait_for_the_link_to_who_has_asked_and_nothing_else_does() -> None:
    host = Host()
    host.accept(hello(2))
    host.tell(SendPeers((2,), ForwardAnswers([(7, (0, b"x", []))], 5)), SendPeers((2,), Stored(1, 1, 0.0)))
    (at,) = [n for n, (name, _, _) in enumerate(host.dialled) if name == "n2"]
    wire = Wire()
    link = host.dialled.pop(at)[1](wire, TRUSTED)
    link.receive(OPENING)
    wire.written = b""
    link.receive(framed(hello(2)))
    assert wire.written == framed(ForwardAnswers([(7, (0, b"x", []))], 5))


def test_answers_for_who_can_not_be_heard_any_more_are_dropped() -> None:
    host = Host()
    incoming, _ = host.accept(hello(2))
    host.tell(SendPeers((2,), ForwardReturned([1], 5)))
    incoming.lost("it is gone")
    (at,) = [n for n, (name, _, _) in enumerate(host.dialled) if name == "n2"]
    wire = Wire()
    link = host.dialled.pop(at)[1](wire, TRUSTED)
    link.receive(OPENING)
    wire.written = b""
    link.receive(framed(hello(2)))
    assert wire.written == b""


def test_what_comes_is_the_routers_or_the_replicators() -> None:
    host = Host()
    host.accept(hello(), Stored(1, 7, 1.0), ClientLeft(4))
    assert [said.message for said in host.replicator.take(PeerSaid)] == [Stored(1, 7, 1.0)]
    said = host.router.take(PeerSaid)[0]
    assert (said.message, said.node_id, said.disk_id) == (ClientLeft(4), 2, 22)


def test_who_does_not_belong_here_is_told_why_and_not_listened_to() -> None:
    for stranger in (hello(4, 0), hello(2, 8), hello(2, 0, disk_id=99)):
        host = Host()
        _, wire = host.accept(stranger, Stored(1, 7, 1.0))
        assert wire.is_closed
        assert framed(Refused(""))[5:6] == wire.written[len(OPENING) :][5:6]
        assert host.replicator.take(PeerSaid) == []


def test_who_was_removed_is_told_so() -> None:
    host = Host()
    host.introduce(removed=(Member(2, "n2", 1, 22),), nodes=(3,))
    _, wire = host.accept(hello())
    assert b"was removed" in wire.written


def test_who_belongs_to_the_cluster_is_let_in_and_dialled_though_the_own_log_does_not_know_it() -> None:
    host = Host()
    host.dialled = []
    link, _ = host.accept(hello(7))
    assert [name for name, _, _ in host.dialled] == ["n7"]
    link.cut("it has left")
    host.runtime.crank()
    assert [unheard.node_id for unheard in host.router.take(PeerUnheard)] == [7]


def test_a_link_that_breaks_is_told_with_what_had_left_and_dialled_again() -> None:
    host = Host()
    link, _ = host.link(2)
    calls = [packed_call(serial, 0, 1 << 20, Request(Action.MONITOR, queue="q")) for serial in (4, 5)]
    host.tell(SendPeers((2,), Forward(1, calls)))
    link.lost("reset")
    host.runtime.crank(0.2)
    assert [down.node_id for down in host.replicator.take(PeerDown)] == [2]
    assert [down.last_serial for down in host.router.take(PeerDown)] == [5]
    assert [name for name, _, _ in host.dialled if name == "n2"] == ["n2"]


def test_who_says_nonsense_is_cut_off_and_it_is_told_why() -> None:
    host = Host()
    _, wire = host.accept(hello())
    host.tell(CutPeer(2, "it makes no sense"))
    assert wire.is_closed
    assert [fault.reason for fault in host.replicator.take(PeerFault)] == ["it makes no sense"]


def test_who_does_not_introduce_itself_in_time_is_cut_off() -> None:
    host = Host()
    wire = Wire()
    host.actor.accepted(wire, TRUSTED)
    host.runtime.crank(4.0)
    assert wire.is_closed


def test_a_node_that_joins_a_cluster_says_so_over_its_open_links() -> None:
    host = Host(cluster_id=0)
    _, wire = host.link(2)
    host.introduce(cluster_id=9)
    assert wire.written, "the others go by what it says of itself"


def test_that_a_client_has_left_goes_behind_what_it_has_asked() -> None:
    """It overtook that, within a turn: a consumer waited on for nobody, and took a message."""
    host = Host()
    _, wire = host.link(2)
    call = packed_call(4, 9, 1 << 20, Request(Action.CONSUME, queue="q", wait=60.0))
    host.tell(SendPeers((2,), Forward(1, [call])), SendPeers((2,), ClientLeft(9)), SendPeers((2,), Stored(1, 7, 1.0)))
    assert wire.written == framed(Stored(1, 7, 1.0)) + framed(Forward(1, [call])) + framed(ClientLeft(9))
