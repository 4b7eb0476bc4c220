"""qctl cluster, as somebody types it: a cluster on this machine from nothing to its end."""

import json
from pathlib import Path

from storage.records import LEVEL
from tests.cli.test_qctl import qctl
from tests.node import free_port


def test_a_cluster_from_its_start_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    port = free_port()
    try:
        assert "are for nodes" in qctl("cluster", "start", "--dir", folder, "--port", port, "--node-port", port, code=1)
        said = qctl("cluster", "start", "--dir", folder, "--port", port)
        assert said.count("ready on 127.0.0.1") == 3
        assert "all take part" in said
        rows = [json.loads(line) for line in qctl("cluster", "status", "--json", "--port", port).splitlines()]
        assert [row["role"] for row in rows].count("leader") == 1
        assert all(row["state"] == "up" for row in rows)
        leader = next(row for row in rows if row["role"] == "leader")
        assert "runs already" in qctl("cluster", "start", "--dir", folder, "--port", port)
        assert "leads" in qctl("cluster", "transfer-leader", "--port", port + 1)
        assert f"node {leader['node_id']} leads," not in qctl("cluster", "status", "--port", port)
        assert "node 2 leads" in qctl("cluster", "transfer-leader", 2, "--port", port)
        assert "node 2 leads already" in qctl("cluster", "transfer-leader", 2, "--port", port)
        assert "leads" in qctl("cluster", "transfer-leader", "--port", port)
        said = qctl("cluster", "transfer-leader", "9", "--port", port, code=1)
        assert "node 9 does not vote, so it can't lead" in said
        assert "no member any more" in qctl("cluster", "remove-node", leader["node_id"], "--port", port + 2)
        assert f"node {leader['node_id']} is no member" in qctl(
            "cluster", "remove-node", leader["node_id"], "--port", port + 1, code=1
        )
        others = [row for row in rows if row is not leader]
        own = int(others[0]["clients"].split(":")[1])
        assert "votes" in qctl("cluster", "add-node", leader["node_id"], leader["address"], "--port", own)
        assert f"at feature level {LEVEL} already" in qctl("cluster", "upgrade", "--port", port, code=1)
        assert "belongs to a cluster already" in qctl("cluster", "init", "--port", port, code=1)
        assert "HOST:PORT is wanted" in qctl("cluster", "add-node", 7, "nonsense", "--port", port, code=1)
    finally:
        said = qctl("cluster", "stop", "--dir", folder)
    assert said.count("has stopped") == 3
    assert "no node runs in" in qctl("cluster", "stop", "--dir", folder, code=1)


def test_what_can_not_be_started_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    for ports in (("--port", 65534), ("--port", 5), ("--port", 1111, "--node-port", 65535)):
        assert "of 1 to 65535" in qctl("cluster", "start", "--dir", folder, *ports, code=1)
    assert not folder.exists()
    port, own = free_port(), folder / "node-1"
    own.mkdir(parents=True)
    settings = {"node_id": 1, "port": port, "data_dir": str(own / "data"), "late_push_ms": 5000}
    (own / "node.json").write_text(json.dumps(settings))
    said = qctl("cluster", "start", "--dir", folder, "--port", port, code=1)
    assert "late_push_ms: 5000 is above 100" in " ".join(said.split())


def test_a_node_that_waits_for_others_says_so_and_can_be_told_to_begin(tmp_path: Path) -> None:
    ports = [free_port()]
    listed = json.dumps(
        [{"node_id": n, "host": "127.0.0.1", "port": port} for n, port in ((1, free_port()), (2, free_port()))]
    )
    settings = ["-s", f"cluster_node_list={listed}", "-s", "node_id=1"]
    qctl("node", "start", "-b", "-d", tmp_path / "data", "-p", ports[0], *settings)
    try:
        assert "belongs to no cluster yet" in qctl("cluster", "status", "--port", ports[0], code=3)
        assert "founds a cluster" in qctl("cluster", "init", "--port", ports[0])
        qctl("msg", "produce", "q", "1", "--port", ports[0])
        rows = qctl("cluster", "status", "--json", "--port", ports[0]).splitlines()
        assert [json.loads(row)["role"] for row in rows] == ["leader", "wanted"]
    finally:
        qctl("node", "stop", "-d", tmp_path / "data")
