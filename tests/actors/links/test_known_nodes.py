"""Who may come: what a hello is judged by."""

from typing import Any

import pytest

from actors.links.known_nodes import KnownNodes
from actors.messages.peers import Introduce
from net.peers.greeting import Greeting
from net.peers.messages import PEER_MAJOR, Hello
from storage.records import Member
from storage.vote_file import Identity

OWN = Member(1, "a", 1, 11)
OTHER = Member(2, "b", 1, 22)
GONE = Member(5, "e", 1, 55)


def hello(node_id: int = 2, disk_id: int = 22, cluster_id: int = 9, **changed: int) -> Hello:
    fields: dict[str, Any] = {"major": PEER_MAJOR, "minor": 0, "node_type": 1, "to": 1, **changed}
    return Hello(**fields, node_id=node_id, cluster_id=cluster_id, disk_id=disk_id, host="h", port=1)


def known(identity: Identity) -> KnownNodes:
    """What node 1 of two knows, from which node 5 was removed."""
    it = KnownNodes(Greeting(), 1)
    it.said = Introduce(OWN, identity, (OWN, OTHER), False, (GONE,))
    return it


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (hello(), None),
        (hello(major=1), "version 1"),
        (hello(node_type=5), "cluster number"),
        (hello(to=3), "expects node 3"),
        (hello(node_id=1), "that is this node"),
        (hello(cluster_id=8), "another cluster"),
        (hello(node_id=7, cluster_id=0), "is no member"),
        (hello(node_id=7), "is no member"),
        (hello(disk_id=33), "another disk"),
        (hello(disk_id=33, cluster_id=0), "another disk"),
        (hello(node_id=5, disk_id=55), "was removed"),
    ],
)
def test_only_members_with_the_disk_they_joined_with_are_let_in(said: Hello, why: str | None) -> None:
    fault = known(Identity(9, 1, 11)).fault(said)
    assert fault is None if why is None else why in str(fault)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (hello(), None),
        (hello(node_id=7), None),
        (hello(disk_id=33), None),
        (hello(node_id=7, cluster_id=0), "is no member"),
        (hello(node_id=5, disk_id=55), "was removed"),
        (hello(cluster_id=8), "another cluster"),
    ],
)
def test_who_has_proved_the_secret_is_let_in_though_this_nodes_log_does_not_know_it_yet(
    said: Hello, why: str | None
) -> None:
    fault = known(Identity(9, 1, 11)).fault(said, is_proven=True)
    assert fault is None if why is None else why in str(fault)


def test_a_node_without_a_cluster_lets_a_cluster_in() -> None:
    alone = KnownNodes(Greeting(), 1)
    alone.said = Introduce(OWN, Identity(0, 1, 11), (), True)
    assert alone.fault(hello()) is None


def test_who_is_in_the_configuration_is_let_in_where_nobody_has_a_secret_though_the_log_does_not_know_it_yet() -> None:
    """Two nodes whose disks were replaced one after the other shut each other out for good: one's log was behind."""
    it = known(Identity(9, 1, 11))
    stranger = hello(node_id=7)
    assert "is no member" in str(it.fault(stranger))
    it.said.addresses = {7: ("n7", 1)}
    assert it.fault(stranger) is None
    assert "is no member" in str(it.fault(hello(node_id=7, cluster_id=0))), "it belongs to no cluster, or to another"
    it.said.addresses = {5: ("n5", 1)}
    assert "was removed" in str(it.fault(hello(node_id=5, disk_id=55)))
