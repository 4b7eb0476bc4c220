"""A node of a cluster whose data are damaged gets all from the others, and loses nothing that was acknowledged."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol import Action
from storage.records import Member, Members
from storage.renewal import others_can_elect
from storage.tables import LmdbTables
from tests.cluster import Cluster, wait_for
from tests.node import Node
from tests.storage.damage import damage_entries

QCTL = str(Path(sys.executable).with_name("qctl"))


def folder_of(node: Node) -> Path:
    return Path(str(node.config["data_dir"])) / "shard-0"


def damage_an_entry(node: Node) -> None:
    """In the middle of the log."""
    tables = LmdbTables(folder_of(node))
    damage_entries(tables, 10)
    tables.close()


def damage_the_file(node: Node) -> None:
    """LMDB can't open it: nothing says who the members are, but the configuration."""
    (folder_of(node) / "data.mdb").write_bytes(b"damaged" * 1000)


def repair(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    command = [QCTL, "log", "repair", "-d", str(node.config["data_dir"]), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def produced(cluster: Cluster, count: int = 60) -> list[int]:
    with cluster.leader().client() as client:
        return [client.produce("q", number, retry=60, key=f"k{number}") for number in range(count)]


def is_level(cluster: Cluster, node: Node) -> bool:
    with cluster.leader().client() as client:
        committed = client.status()["shards"][0]["committed"]
    return bool(cluster.shard(node)["committed"] >= committed)


def check_as_leader(cluster: Cluster, node: Node, sent: list[int]) -> None:
    """It leads, and has all."""
    node_id = cluster.id_of(node)

    def leads() -> Any:
        with cluster.leader().client() as client:
            if cluster.shard(node)["role"] != "leader":
                client.request(Action.CLUSTER, command="transfer", node_id=node_id)
        return cluster.shard(node)["role"] == "leader"

    wait_for(leads)
    with node.client() as client:
        assert client.monitor("q")["size"] == len(sent)
        assert {client.show(msg_id).queue for msg_id in sent} == {"q"}


@pytest.mark.parametrize("damage", [damage_an_entry, damage_the_file])
def test_a_member_whose_data_are_damaged_gets_all_from_the_others_once(cluster: Cluster, damage: Any) -> None:
    sent = produced(cluster)
    node = cluster.followers()[0]
    assert node.stop(10.0) == 0
    damage(node)
    node.start()
    cluster.wait_whole()
    wait_for(lambda: is_level(cluster, node))
    assert "the data were damaged" in node.log
    assert "the data were damaged" in cluster.shard(node)["recovery"]
    [aside] = folder_of(node).parent.glob("shard-0.damaged-*")
    assert (aside / "data.mdb").exists()
    check_as_leader(cluster, node, sent)
    assert node.stop(10.0) == 0
    damage(node)
    said = node.try_start()
    assert "can't be used" in said, "twice is no accident"
    node.kill()


def test_data_that_name_no_members_may_be_the_founders_alone_and_are_not_put_aside(cluster: Cluster) -> None:
    """A shard's founder whose data were damaged before there were members began anew, and all waited for ever."""
    node = cluster.followers()[0]
    assert node.stop(10.0) == 0
    for segment in (folder_of(node) / "journal").glob("*.journal"):
        segment.unlink()
    tables = LmdbTables(folder_of(node))
    damage_entries(tables)
    tables.close()
    said = node.try_start()
    assert "can't be used" in said
    assert not list(folder_of(node).parent.glob("shard-0.damaged-*"))


def test_what_can_be_read_is_not_kept_on_a_member_and_there_is_a_way_that_loses_nothing(cluster: Cluster) -> None:
    sent = produced(cluster)
    node = cluster.followers()[0]
    assert node.stop(10.0) == 0
    damage_an_entry(node)
    refused = repair(node)
    assert refused.returncode == 1
    assert "--from-cluster" in refused.stderr
    assert "DAMAGED" in refused.stdout
    renewed = repair(node, "--from-cluster")
    assert renewed.returncode == 0, renewed.stderr
    assert "gets all from the leader" in renewed.stdout
    node.start()
    cluster.wait_whole()
    wait_for(lambda: is_level(cluster, node))
    check_as_leader(cluster, node, sent)


def test_who_lost_its_log_elects_nobody_before_it_has_all_again(cluster: Cluster) -> None:
    """Two of three have what was acknowledged; one of them loses it: the third must not be elected by that one."""
    lagging, damaged = cluster.followers()
    leader = cluster.leader()
    assert lagging.stop(10.0) == 0
    sent = produced(cluster)
    assert damaged.stop(10.0) == 0
    leader.kill()
    damage_an_entry(damaged)
    lagging.start()
    damaged.start()
    for _ in range(20):
        assert {cluster.shard(node)["leader_node_id"] for node in (lagging, damaged)} == {0}
        time.sleep(0.1)
    leader.start()
    cluster.wait_whole()
    with cluster.leader().client() as client:
        assert client.monitor("q")["size"] == len(sent)
    wait_for(lambda: is_level(cluster, damaged))
    check_as_leader(cluster, damaged, sent)


def test_of_two_nodes_none_begins_anew_unasked_and_asked_it_gets_all(tmp_path: Path) -> None:
    """The other can't lead without it, and it would vote for nobody: nobody would ever lead."""
    cluster = Cluster(tmp_path, 2, {})
    try:
        cluster.start()
        sent = produced(cluster)
        node = cluster.followers()[0]
        assert node.stop(10.0) == 0
        damage_an_entry(node)
        assert "can't be used" in node.try_start()
        node.kill()
        refused = repair(node, "--from-cluster")
        assert refused.returncode == 1
        assert "--force" in refused.stderr
        renewed = repair(node, "--from-cluster", "--force")
        assert renewed.returncode == 0, renewed.stderr
        node.start()
        cluster.wait_whole()
        wait_for(lambda: is_level(cluster, node))
        check_as_leader(cluster, node, sent)
    finally:
        cluster.kill()


def test_where_too_many_began_anew_one_of_them_can_be_told_to_vote(cluster: Cluster) -> None:
    sent = produced(cluster)
    damaged = cluster.followers()
    intact = cluster.leader()
    for node in damaged:
        assert node.stop(10.0) == 0
        damage_an_entry(node)
    wait_for(lambda: cluster.shard(intact)["leader_node_id"] == 0)  # back within its time-out, they would keep its lead
    for node in damaged:
        node.start()
    for _ in range(20):
        assert {cluster.shard(node)["leader_node_id"] for node in damaged} == {0}
        time.sleep(0.1)
    assert [cluster.shard(node)["abstains"] for node in damaged] == [True, True]
    assert damaged[0].stop(10.0) == 0
    said = repair(damaged[0], "--force")
    assert "it votes again" in said.stdout, said.stderr
    damaged[0].start()
    cluster.wait_whole()
    assert cluster.leader() is intact
    wait_for(lambda: all(is_level(cluster, node) and not cluster.shard(node)["abstains"] for node in damaged))
    check_as_leader(cluster, damaged[1], sent)


def test_a_renewal_that_was_cut_short_goes_on(cluster: Cluster) -> None:
    """The log is put aside, and the newest of it is not: the node ended in between."""
    sent = produced(cluster)
    node = cluster.followers()[0]
    assert node.stop(10.0) == 0
    damage_an_entry(node)
    folder = folder_of(node)
    aside = folder.with_name(f"{folder.name}.damaged-20260101-000000")
    (aside / "journal").mkdir(parents=True)
    (aside / "unfinished").touch()
    for name in ("data.mdb", "lock.mdb"):
        (folder / name).rename(aside / name)
    node.start()
    cluster.wait_whole()
    wait_for(lambda: is_level(cluster, node))
    assert [one.name for one in folder.parent.glob("shard-0.damaged-*")] == [aside.name]
    assert not (aside / "unfinished").exists()
    assert list((aside / "journal").iterdir()), "all of it is there now"
    check_as_leader(cluster, node, sent)


@pytest.mark.parametrize(
    ("voters", "others", "can"),
    [((1, 2, 3), (), True), ((1, 2), (), False), ((1,), (), False), ((1, 2, 3, 4), (), True), ((2, 3), (), True),
     (None, (2, 3), True), (None, (2,), False), (None, (), False)],
)  # fmt: skip
def test_it_is_known_whether_the_others_can_elect_without_a_node(
    voters: tuple[int, ...] | None, others: tuple[int, ...], can: bool
) -> None:
    members = None
    if voters is not None:
        known = [Member(n, "h", n, n, is_voter=n in voters) for n in (1, 2, 3, 4)]
        members = Members("", 9, known, [])
    assert others_can_elect(1, members, others) is can
