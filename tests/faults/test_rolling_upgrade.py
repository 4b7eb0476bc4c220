"""A cluster of an earlier version is upgraded node by node, under load: nothing that was acknowledged is lost.

The earlier version comes out of this repository's history; where that is not there (an unpacked archive, a shallow
clone), this is skipped.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from actors.node.launch import SUPERVISOR, launch
from quorate import Client
from quorate.protocol import Action
from storage.records import BASE_LEVEL, LEVEL
from tests.cluster import Cluster, wait_for
from tests.faults.load import Load
from tests.node import Node

BEFORE = "dbc96fc"
"""The version before, whose clusters have feature level `BASE_LEVEL`."""

TOO_OLD = "e07ad61"
"""One whose clusters have a lower level."""

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the version before."""
    return code_of(BEFORE, tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="module")
def too_old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of a version whose clusters this one does not join."""
    return code_of(TOO_OLD, tmp_path_factory.mktemp("before"))


def code_of(commit: str, into: Path) -> Path:
    """An earlier version's code, in a folder of its name."""
    folder = into / commit
    folder.mkdir()
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", folder.name], capture_output=True)
    if packed.returncode:
        pytest.skip("the history of this repository is not here")
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed.stdout, check=True)
    asked = [*_environment(folder), sys.executable, "-P", "-c", "import actors.node.worker as w; print(w.__file__)"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(folder)), f"this is the code that would run: {found}"
    return folder


def _environment(code: Path) -> list[str]:
    return ["env", f"PYTHONPATH={code}", "QUORATE_COMPILE=0"]


def start_old(node: Node, code: Path) -> None:
    """Start a node with the earlier version's code, interpreted."""
    node.try_start = lambda: _launched(node, code)  # type: ignore[method-assign]
    node.start()
    del node.try_start  # from now on it runs what is here


def _launched(node: Node, code: Path) -> str:
    node.write_config()
    node.process, said = launch(node.config_path, {}, node.log_path, [*_environment(code), *SUPERVISOR])
    return said


@pytest.mark.parametrize("shards", [1, 2])
def test_a_cluster_of_an_earlier_version_is_upgraded_node_by_node_under_load(
    before: Path, tmp_path: Path, shards: int
) -> None:
    cluster = Cluster(tmp_path, 3, {"shards": shards} if shards > 1 else {})
    try:
        for node in cluster.nodes.values():
            start_old(node, before)
        cluster.wait_whole()
        load = Load([node.port for node in cluster.nodes.values()], queues=["a", "b", "c"])
        try:
            load.wait_more(60)
            for node in [*cluster.followers(), cluster.leader()]:
                node.stop(10)
                node.start()
                cluster.wait_whole()
                load.wait_more(60)
        finally:
            load.stop()
        with cluster.leader().client() as client:
            load.check(client)
            assert {row["level"] for row in client.status()["shards"]} == {BASE_LEVEL}, "nobody has raised it"
            client.produce("bytes", b"\xff")
            client.request(Action.CLUSTER, command="upgrade")
            assert {row["level"] for row in client.status()["shards"]} == {LEVEL}
            client.produce("new", "x", headers={"a": "b"})
            message = client.consume("new")
            assert message is not None
            assert message.headers == {"a": "b"}
        for node in cluster.nodes.values():
            assert "Traceback" not in node.log
            assert "CRITICAL" not in node.log
    finally:
        cluster.kill()


def test_a_version_before_refuses_data_that_were_written_at_a_later_level(before: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, {"queue_log_size": 1000})
    node = cluster.nodes[1]
    try:
        node.start()
        with node.client() as client:
            assert {row["level"] for row in client.status()["shards"]} == {LEVEL}
            client.produce_many("q", range(100))
        node.stop(10)
        node.try_start = lambda: _launched(node, before)  # type: ignore[method-assign]
        said = node.try_start()
        assert "the data" in node.log, said
        refusals = ("feature level 6, and this version understands", "has format 3, this version reads")
        assert any(one in node.log for one in refusals), node.log[-1500:]
        assert "Traceback" not in node.log.split("the data")[-1]
    finally:
        cluster.kill()


def test_data_of_a_lower_level_are_refused_and_how_to_raise_it_is_said(too_old: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, {})
    node = cluster.nodes[1]
    try:
        start_old(node, too_old)
        with node.client() as client:
            assert client.status()["shards"][0]["level"] < BASE_LEVEL
            client.produce("q", 1)
        node.stop(10)
        assert "qctl cluster upgrade" in node.try_start() + node.log
        assert "needs 5 at least: run version 0.3 on every node" in node.log
        assert "Traceback" not in node.log
        start_old(node, too_old)  # nothing was changed
        with node.client() as client:
            assert client.monitor("q")["size"] == 1
    finally:
        cluster.kill()


def test_a_new_node_leaves_a_cluster_of_a_lower_level_alone(too_old: Path, tmp_path: Path) -> None:
    """It has nothing of that cluster yet: it ends when it knows the level, and so at each start."""
    cluster = Cluster(tmp_path, 3, {})
    try:
        for node_id in (1, 2):
            start_old(cluster.nodes[node_id], too_old)
        cluster.nodes[3].start()
        wait_for(lambda: "needs 5 at least: run version 0.3 on every node" in cluster.nodes[3].log, 30)
        ports = [("127.0.0.1", cluster.nodes[node_id].port) for node_id in (1, 2)]
        with Client(nodes=ports) as client:
            client.produce("q", 1)
    finally:
        cluster.kill()
