"""The links that others dial: how long they have, how many there are, and how often a refusal is told."""

import logging
from typing import Any

import pytest

from actors.links.contacts import INCOMING_MAX, PROOF_S, IncomingLinks, log
from net.peers.link import Origin, PeerLink
from net.peers.messages import PEER_MAJOR, Hello
from net.refusals import LINES_MAX, QUIET_S, REFUSED_MAX, Refusals
from tests.actors.cranked import CrankedRuntime
from tests.net.peers.wire import OPENING, TERMS, framed


def hello(node_id: int) -> Hello:
    return Hello(PEER_MAJOR, 0, 1, node_id, 1, 9, node_id * 11, "h", 1)


class House:
    """A incoming, and who comes to it: transport and sink of all links."""

    def __init__(self) -> None:
        self.runtime = CrankedRuntime()
        self.incoming = IncomingLinks(self.runtime)
        self.closed: list[tuple[PeerLink, str]] = []

    def came(self, address: str = "192.0.2.1") -> PeerLink:
        house: Any = self
        link = PeerLink(house, house, TERMS, is_dialler=False, origin=Origin(address))
        self.incoming.admit(link)
        return link

    def introduced(self, node_id: int) -> PeerLink:
        link = self.came()
        link.receive(OPENING + framed(hello(node_id)))
        return link

    def write(self, data: bytes) -> None:
        """To the other side."""

    def close(self) -> None:
        """Of the transport."""

    abort = close

    def link_hello(self, link: PeerLink, its: Hello) -> None:
        """It has introduced itself."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        self.closed.append((link, reason))
        self.incoming.left(link, reason)


def test_who_has_proved_nothing_in_time_is_cut_and_who_has_stays() -> None:
    house = House()
    silent, known = house.came(), house.introduced(2)
    house.runtime.crank(PROOF_S - 0.1)
    assert house.closed == []
    house.runtime.crank(0.2)
    assert house.closed == [(silent, "it has proved nothing in time")]
    assert list(house.incoming.links) == [known]
    assert house.incoming.of_node(2) == [known]
    assert house.incoming.of_node(3) == []


def test_the_oldest_that_has_proved_nothing_makes_room_and_no_other() -> None:
    house = House()
    known = [house.introduced(node_id) for node_id in range(2, 102)]
    crowd = [house.came(f"10.0.0.{n}") for n in range(INCOMING_MAX - len(known))]
    assert house.closed == []
    last = house.came()
    assert house.closed == [(crowd[0], "it had not proved itself, and others came")]
    assert list(house.incoming.links) == [*known, *crowd[1:], last]


def test_where_all_have_proved_themselves_one_more_is_not_let_in() -> None:
    house = House()
    known = [house.introduced(node_id) for node_id in range(1, INCOMING_MAX + 1)]
    more = house.came()
    assert more.is_closed
    assert list(house.incoming.links) == known


def test_a_link_that_is_not_of_the_doorway_is_not_its_business() -> None:
    house = House()
    known, other = house.introduced(2), House().came()
    assert not house.incoming.left(other, "closed")
    assert house.incoming.left(known, "closed")
    assert not house.incoming.left(known, "closed")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


def test_who_ends_without_a_proof_or_is_refused_is_told_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    house = House()
    house.came("192.0.2.9").cut("a frame of 9999 bytes")
    house.incoming.refuse(house.introduced(5), hello(5), "it is no member", is_removed=False)
    house.incoming.turned_away("192.0.2.7", "no certificate")
    house.introduced(6).cut("gone")
    house.came("").cut("nonsense")
    assert said(caplog) == [
        "192.0.2.9 is refused on the nodes' port: a frame of 9999 bytes",
        "192.0.2.1, who says that it is node 5 is refused on the nodes' port: it is no member",
        "192.0.2.7 is refused on the nodes' port: no certificate",
        "somebody is refused on the nodes' port: nonsense",
    ]


def test_the_same_refusal_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(log, "the nodes' port")
    refusals.log(100.0, "a", "why")
    for n in range(50):
        refusals.log(100.5 + n, "a", "why")
    assert len(said(caplog)) == 1
    refusals.log(100.0 + QUIET_S, "a", "why")
    assert said(caplog) == ["50 more were refused on the nodes' port", "a is refused on the nodes' port: why"]
    refusals.log(100.0 + 2 * QUIET_S, "b", "why")
    assert said(caplog) == ["b is refused on the nodes' port: why"], "none was left out"
    refusals.log(101.0 + 2 * QUIET_S, "b", "something else")
    assert len(said(caplog)) == 1


def test_a_crowd_is_told_of_in_so_many_lines_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(log, "the nodes' port")
    for n in range(1000):
        refusals.log(100.0 + n * 0.01, f"10.0.{n >> 8}.{n & 255}", "why")
    assert len(said(caplog)) == LINES_MAX
    refusals.log(100.0 + QUIET_S, "new", "why")
    assert said(caplog)[0] == f"{1000 - LINES_MAX} more were refused on the nodes' port"
    for n in range(30 * LINES_MAX):
        refusals.log(1000.0 + n * QUIET_S / LINES_MAX, f"10.1.{n >> 8}.{n & 255}", "why")
    assert len(refusals._logged_at) == REFUSED_MAX
