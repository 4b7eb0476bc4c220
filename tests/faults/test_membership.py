"""Members that come and go while clients work: who they are to ask, and why a node has no part in a cluster."""

import json
import shutil

from tests.cli.test_qctl import qctl
from tests.cluster import Cluster, wait_for
from tests.faults.load import Load
from tests.node import free_port


def test_who_asks_through_a_node_that_is_removed_hears_of_all_that_was_done(cluster: Cluster) -> None:
    """Found: the leader cut the link with answers owed, and the removed node held each request for four seconds."""
    leader, gone = cluster.leader(), cluster.followers()[0]
    load = Load([gone.port, leader.port])
    load.wait_more(50)
    with leader.client() as client:
        client.request(15, command="remove", node_id=cluster.id_of(gone))
    load.wait_more(200)
    load.stop()
    assert not load.failures
    with gone.connect() as stream:
        stream.settimeout(2)
        stream.sendall(b'{"action":1,"queue":"q","data":1}{"action":108,"seq":1}')
        replies = stream.makefile("rb")
        refused, told = sorted((json.loads(replies.readline()) for _ in range(2)), key=lambda one: one.get("seq", 0))
    assert refused["error"] == "stopping"
    assert "was removed from its cluster" in refused["reason"]
    assert told["node_id"] == cluster.id_of(gone), "what is about the node itself is told"
    own_id = cluster.id_of(gone)
    with leader.client() as client:
        client.request(15, command="add", node_id=own_id, host="127.0.0.1", port=cluster.node_port(own_id))

    def serves() -> bool:
        with gone.connect() as stream:
            stream.settimeout(5)
            stream.sendall(b'{"action":1,"queue":"q","data":1}')
            return bool(json.loads(stream.makefile("rb").readline())["code"] == 0)

    wait_for(serves)


def test_a_node_whose_list_lacks_the_leader_joins_all_the_same(cluster: Cluster) -> None:
    """Found: it was catching up for ever, and nothing said why."""
    leader = cluster.leader()
    known = [one for one in cluster.listed if one["node_id"] != cluster.id_of(leader)]
    own = {"node_id": 4, "host": "127.0.0.1", "port": free_port()}
    node = cluster.make(4, free_port(), [*known, own])
    node.start()
    try:
        said = qctl("cluster", "add-node", 4, f"127.0.0.1:{own['port']}", "--timeout", 15, "--port", leader.port)
        assert "node 4 has caught up and votes" in said
        with node.client() as client:
            client.produce("q", 1)
    finally:
        node.kill()


def test_a_node_that_others_refuse_says_why_and_another_is_asked(cluster: Cluster) -> None:
    """Found: of three addresses the first was believed, a node whose folder had been emptied."""
    gone = cluster.followers()[0]
    gone.kill()
    shutil.rmtree(gone.config["data_dir"])
    gone.start()
    others = [node.port for node in cluster.nodes.values() if node is not gone]
    url = f"quorate://127.0.0.1:{gone.port},127.0.0.1:{others[0]},127.0.0.1:{others[1]}"

    def said() -> str:
        text = qctl("cluster", "status", "--host", url)
        return text if "comes with another disk" in text else ""

    text = wait_for(said, 30)
    assert "leads" in text
    assert f"127.0.0.1:{gone.port}: node {cluster.id_of(gone)} is no member of a cluster: node" in text
    assert "comes with another disk" in qctl("cluster", "status", "--port", gone.port, code=3)
