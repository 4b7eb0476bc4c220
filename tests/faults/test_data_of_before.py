"""Data that version 0.1.0 wrote are taken over: a node's, and a cluster's whose nodes get ports of their own."""

import tarfile
from pathlib import Path

import pytest

from quorate import Client, RefusedError
from quorate.protocol import Action
from storage.records import LEVEL
from tests.cluster import Cluster, wait_for
from tests.conftest import StartNode

FIXTURE = Path(__file__).parents[1] / "fixtures" / "data-of-0.1.tar.gz"
SIZES = {"journal_segment_bytes": 1 << 20, "max_request_bytes": 262144, "max_data_bytes": 100_000}


def unpacked(folder: Path) -> Path:
    """The fixture's folders."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder / "before", filter="data")
    return folder / "before"


def test_a_nodes_data_are_there_with_all_their_options(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node(data_dir=str(unpacked(tmp_path) / "single"), **SIZES)
    with node.client() as client:
        rows = {row["name"]: row for row in client.queue_rows()}
        assert (rows["trimmed"]["size"], rows["q"]["size"], rows["limited"]["max_size"]) == (100, 5, 7)
        held = client.show(queue="q", key="k")
        assert (held["data"], held["priority"], held["deliveries"]) == ("text", 5, 1)
        delayed = [message for message in client.peek("q", 10) if message["state"] == "delayed"]
        assert [message["data"] for message in delayed] == [[1, 2.5, None, {"a": "b"}]]
        assert {m.data for m in client.consume_many("q", 10)} >= {"one", "two", "last, in the journal alone"}
        kinds: set[str] = set()
        reply = {"last_trans_id": client.status()["shards"][0]["first_trans_id"] - 1, "committed": 1 << 53}
        while reply["last_trans_id"] < reply["committed"]:  # LMDB's part and what is in memory come one by one
            reply = client.log(reply["last_trans_id"], 1000)
            kinds |= {record["kind"] for record in reply["records"]}
        assert {"produce", "confirm", "lead"} <= kinds


def test_old_data_take_nothing_that_an_old_version_could_not_read_until_they_are_upgraded(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node(data_dir=str(unpacked(tmp_path) / "single"), **SIZES)
    with node.client() as client:
        with pytest.raises(RefusedError, match="qctl cluster upgrade") as caught:
            client.produce("q", b"\xff")
        assert caught.value.error == "not_supported"
        client.request(Action.CLUSTER, command="upgrade")
        client.produce("bytes", b"\xff", retry=60)
        assert client.status()["shards"][0]["level"] == LEVEL
    node.kill()
    node.start()
    with node.client() as client:
        message = client.consume("bytes")
        assert message is not None
        assert message.data == b"\xff"


def test_a_clusters_nodes_find_each_other_on_ports_of_their_own(tmp_path: Path) -> None:
    before = unpacked(tmp_path)
    cluster = Cluster(tmp_path, 3, SIZES)
    for node_id, node in cluster.nodes.items():
        node.config["data_dir"] = str(before / f"cluster-{node_id}")
    try:
        cluster.start()
        with Client(nodes=[("127.0.0.1", node.port) for node in cluster.nodes.values()]) as client:
            assert client.monitor("q")["size"] == 20
            listed = {one["node_id"]: one["port"] for one in cluster.listed}
            wait_for(lambda: {m["node_id"]: m["port"] for m in client.cluster()["members"]} == listed)
            wait_for(lambda: client.request(Action.CLUSTER, command="upgrade"))  # the new addresses are changes, too
            client.produce("q", b"\xff", retry=60)
    finally:
        cluster.kill()
