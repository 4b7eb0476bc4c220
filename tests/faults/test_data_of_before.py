"""Data that version 0.1.0 wrote are refused as they are, and nothing of them is changed."""

import tarfile
from pathlib import Path

from tests.cluster import Cluster
from tests.node import Node

FIXTURE = Path(__file__).parents[1] / "fixtures" / "data-of-0.1.tar.gz"
SIZES = {"journal_segment_bytes": 1 << 20, "max_request_bytes": 262144, "max_data_bytes": 100_000}


def unpacked(folder: Path) -> Path:
    """The fixture's folders."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder / "before", filter="data")
    return folder / "before"


def refuses(node: Node) -> None:
    said = node.try_start()
    assert "needs 5 at least: run version 0.3 on every node" in said + node.log
    assert "Traceback" not in node.log


def test_a_nodes_data_are_refused_and_how_to_take_them_over_is_said(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, SIZES)
    cluster.nodes[1].config["data_dir"] = str(unpacked(tmp_path) / "single")
    try:
        refuses(cluster.nodes[1])
    finally:
        cluster.kill()


def test_so_are_those_of_a_clusters_node(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3, SIZES)
    cluster.nodes[1].config["data_dir"] = str(unpacked(tmp_path) / "cluster-1")
    try:
        refuses(cluster.nodes[1])
    finally:
        cluster.kill()
