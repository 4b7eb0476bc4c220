"""A cluster of an earlier version is upgraded node by node, under load: nothing that was acknowledged is lost.

The earlier version comes out of this repository's history; where that is not there (an unpacked archive, a shallow
clone), this is skipped.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from actors.node.launch import SUPERVISOR, launch
from quorate import RefusedError
from quorate.protocol import Action
from storage.records import JOBS_LEVEL, LEVEL, READERS_LEVEL, WORKERS_LEVEL
from tests.cluster import Cluster
from tests.faults.load import Load
from tests.node import Node

BEFORE = {"e07ad61": READERS_LEVEL, "dbc96fc": JOBS_LEVEL}
"""Versions before, and the feature level that a cluster of each has."""

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=BEFORE)
def before(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An earlier version's code, in a folder of its name."""
    folder = tmp_path_factory.mktemp("before") / str(request.param)
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
            assert {row["level"] for row in client.status()["shards"]} == {BEFORE[before.name]}, "nobody has raised it"
            client.produce("bytes", b"\xff")
            if BEFORE[before.name] < WORKERS_LEVEL:
                with pytest.raises(RefusedError, match="qctl cluster upgrade"):
                    client.produce("new", "x", headers={"a": "b"})
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
