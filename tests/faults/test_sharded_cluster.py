"""A cluster of several shards under real faults: shards are led by different nodes, and lose nothing."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quorate import Client
from quorate.protocol import Action
from quorate.shards import shard_of_queue
from tests.cluster import Cluster, wait_for
from tests.faults.load import Load
from tests.node import Node, free_port

SHARDS = 3
QUEUES = [next(f"q{n}" for n in range(1000) if shard_of_queue(f"q{n}", SHARDS) == shard) for shard in range(SHARDS)]


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of three shards, each of which leads one."""
    made = Cluster(tmp_path, 3, {"shards": SHARDS, "leader_balance_s": 0.5})
    try:
        made.start()
        wait_for(lambda: sorted(leaders(made)) == [1, 2, 3])
        yield made
    finally:
        made.kill()


def nodes_of(cluster: Cluster) -> list[tuple[str, int]]:
    return [("127.0.0.1", node.port) for node in cluster.nodes.values()]


def spread(cluster: Cluster) -> list[dict[str, Any]]:
    """A row for each shard, as its leader tells it."""
    with Client(nodes=nodes_of(cluster), timeout=5) as client:
        return list(client.cluster()["shards"])


def leaders(cluster: Cluster) -> list[int]:
    return [int(row["leader_node_id"]) for row in spread(cluster)]


def check(cluster: Cluster, load: Load) -> None:
    """All that was acknowledged is there."""
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log, node.log
        assert "CRITICAL" not in node.log, node.log
    cluster.wait_whole()
    with Client(nodes=nodes_of(cluster), timeout=20) as client:
        load.check(client)


@pytest.mark.slow
def test_kill_9_of_each_node_loses_nothing_and_it_gets_its_shards_back(sharded: Cluster) -> None:
    load = Load([port for _, port in nodes_of(sharded)], queues=QUEUES)
    for node_id, node in sharded.nodes.items():
        load.wait_more(20)
        node.kill()
        others = {n: one for n, one in sharded.nodes.items() if n != node_id}
        first = next(iter(others.values()))
        with first.client() as client:
            wait_for(lambda: node_id not in {row["leader_node_id"] for row in client.status()["shards"]})  # noqa: B023
        load.wait_more(20)
        node.start()
        wait_for(lambda: sorted(leaders(sharded)) == [1, 2, 3])
    load.stop()
    assert load.confirmed
    check(sharded, load)


def test_a_rolling_restart_under_load_fails_no_request(sharded: Cluster) -> None:
    load = Load([port for _, port in nodes_of(sharded)], threads=4, timeout=20, queues=QUEUES)
    for node in sharded.nodes.values():
        load.wait_more(20)
        assert node.stop(10.0) == 0
        node.start()
        sharded.wait_whole()
    load.stop()
    assert not load.failures
    check(sharded, load)


def test_a_node_serves_a_shard_whose_worker_it_lacks(sharded: Cluster) -> None:
    """Damaged data take one worker of node 1 down: its clients are served by the shard's leader all the same."""
    node = sharded.nodes[1]
    with node.client() as client:
        kept = [client.produce(queue, "kept", retry=60) for queue in QUEUES]
    assert node.stop(10.0) == 0
    data = Path(node.config["data_dir"]) / "shard-1" / "data.mdb"
    data.write_bytes(b"damaged" * 1000)
    data.parent.with_name("shard-1.damaged-before").mkdir()  # a second time it does not get all anew by itself
    node.start()
    with node.client() as client:
        wait_for(lambda: [row["role"] == "down" for row in client.status()["shards"]] == [False, True, False])
        for queue, msg_id in zip(QUEUES, kept, strict=True):
            assert client.show(msg_id).queue == queue
            assert client.produce(queue, "more", retry=60) % 1024 == QUEUES.index(queue)
        assert {row["leader_node_id"] for row in client.request(Action.LEADER)["shards"]} == set(leaders(sharded))
        assert client.cluster()["shards"][1]["leader_node_id"] != 1


def test_a_consumer_of_queues_that_different_nodes_lead_gets_one_message(sharded: Cluster) -> None:
    got: list[dict[str, Any]] = []

    def wait() -> None:
        with sharded.nodes[1].client(30) as client:
            got.append(client.request(Action.CONSUME, queues=QUEUES, wait=20))

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    time.sleep(0.3)
    with sharded.nodes[2].client() as client:
        sent = {client.produce(queue, queue, retry=60) for queue in QUEUES}
        for thread in waiting:
            thread.join(20)
        assert {reply["msg_id"] for reply in got} == sent
        assert client.request(Action.CONFIRM, msg_ids=sorted(sent))["confirmed"] == len(QUEUES)
        assert sum(row.size for row in client.queue_rows("q*")) == 0


def test_a_node_is_removed_and_added_once_for_all_shards(sharded: Cluster) -> None:
    with Client(nodes=nodes_of(sharded)[1:], timeout=20) as client:
        for number in range(30):
            client.produce(QUEUES[number % SHARDS], number, retry=60)
        client.request(Action.CLUSTER, command="remove", node_id=1)
        wait_for(lambda: [members(row) for row in client.cluster()["shards"]] == [[2, 3]] * SHARDS)
        sharded.nodes[1].kill()
        port = free_port()
        fresh = sharded.make(9, port, [*sharded.listed[1:], {**sharded.listed[0], "node_id": 9}])
        sharded.nodes[1] = fresh
        fresh.start()
        client.request(Action.CLUSTER, command="add", node_id=9, host="127.0.0.1", port=sharded.listed[0]["port"])
        wait_for(lambda: [voters(row) for row in client.cluster()["shards"]] == [[2, 3, 9]] * SHARDS)
        wait_for(lambda: 9 in leaders(sharded))
    with fresh.client() as client:
        assert [row["messages"] for row in client.status()["shards"]] == [10] * SHARDS


def members(row: dict[str, Any]) -> list[int]:
    return [one["node_id"] for one in row.get("members", ())]


def voters(row: dict[str, Any]) -> list[int]:
    return [one["node_id"] for one in row.get("members", ()) if one["role"] == "voter"]


def test_a_node_of_another_number_of_shards_is_refused_and_told_why(sharded: Cluster, tmp_path: Path) -> None:
    node = sharded.nodes[3]
    node.kill()
    folder = tmp_path / "other"
    folder.mkdir()
    other = Node(folder, {**node.config, "data_dir": str(folder / "data"), "shards": 2})
    other.start()
    try:
        wait_for(lambda: "its queues are spread over 3 shards" in other.log)
        wait_for(lambda: "its queues are spread over 2 shards" in sharded.nodes[1].log + sharded.nodes[2].log)
        with sharded.nodes[1].client() as client:
            assert client.produce(QUEUES[0], "still served")
    finally:
        other.kill()


def test_a_worker_that_hangs_takes_its_shard_nowhere(sharded: Cluster) -> None:
    """SIGSTOP of a leading worker: its shard is led by another node, and clients get there from every node."""
    victim = leaders(sharded).index(2)
    with sharded.nodes[2].client() as client:
        pid = next(row["pid"] for row in client.status()["shards"] if row["shard"] == victim)
    os.kill(pid, signal.SIGSTOP)
    try:
        for node in sharded.nodes.values():
            wait_for(partial(produced, node, QUEUES[victim]))
        reply, took_s = wait_for(partial(status_of, sharded.nodes[2]))
        assert took_s < 2, "it does not wait for who hangs"
        assert reply["missing_shards"] == [victim]
        assert "did not answer" in reply["shards"][victim]["fault"]
    finally:
        os.kill(pid, signal.SIGCONT)
    sharded.wait_whole()


def produced(node: Node, queue: str) -> int:
    """By a connection of its own: the system may give it to the worker that hangs."""
    with node.client(1) as client:
        return client.produce(queue, "x", retry=60)


def status_of(node: Node) -> tuple[dict[str, Any], float]:
    with node.client(3) as client:
        begun = time.monotonic()
        return {**client.status()}, time.monotonic() - begun
