"""A node with its console: started together, apart in their faults, ended together."""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster import Cluster, wait_for
from tests.conftest import StartNode
from tests.console.conftest import asked, told
from tests.faults.security import access_file
from tests.node import free_port


def consoles(port: int) -> list[int]:
    """Processes of a console that listens there."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, NotADirectoryError):
            continue
        if b"console" in words and any(f'"port": {port}'.encode() in word for word in words):
            found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_a_node_has_its_console_which_ends_alone_and_goes_with_it(start_node: StartNode) -> None:
    port, other = free_port(), free_port()
    listeners = [{"port": port, "serves": ["console"]}, {"port": other, "serves": ["metrics", "health"]}]
    node = start_node(http_listeners=listeners)
    wait_for(lambda: asked(other, "/readyz")[0] == 200, 20)
    assert "Overview" in asked(port, "/")[1]
    assert asked(port, "/metrics")[0] == asked(other, "/")[0] == 404
    assert "quorate_messages" in asked(other, "/metrics")[1]
    [console] = consoles(port)
    os.kill(console, signal.SIGKILL)
    with node.client() as client:
        client.produce("q", 1)
    wait_for(lambda: asked(other, "/readyz")[0] == 200, 20)
    assert consoles(port) != [console]
    node.stop()
    assert consoles(port) == []


@pytest.mark.slow
def test_a_console_does_not_outlive_its_supervisor(start_node: StartNode) -> None:
    port = free_port()
    node = start_node(http_listeners=[{"port": port}])
    wait_for(lambda: asked(port, "/healthz")[0] == 200, 20)
    assert node.process is not None
    os.kill(node.process.pid, signal.SIGKILL)
    wait_for(lambda: consoles(port) == [], 20)


@pytest.mark.slow
def test_a_console_that_can_not_be_does_not_end_its_node(start_node: StartNode) -> None:
    node = start_node(http_listeners=[{"port": free_port(), "cert": "none.pem"}])
    wait_for(lambda: "the console ended with code 1" in node.log, 20)
    with node.client() as client:
        assert client.produce("q", 1)
    begun = time.monotonic()
    node.stop()
    assert time.monotonic() - begun < 5


def numbers(port: int) -> dict[tuple[str, ...], float]:
    """All that its metrics say."""
    status, text = asked(port, "/metrics")
    assert status == 200, text
    families = list(text_string_to_metric_families(text))
    return {told(one): one.value for family in families for one in family.samples}


@pytest.mark.slow
def test_metrics_of_all_nodes_are_what_was_done_over_a_change_of_leader(tmp_path: Path) -> None:
    """Each node counts what its clients asked; of the messages tells who leads, and another begins anew."""
    cluster = Cluster(tmp_path, 3, {})
    ports: dict[int, int] = {}
    for node_id, node in cluster.nodes.items():
        ports[node_id] = free_port()
        node.config["http_listeners"] = [{"port": ports[node_id]}]
    try:
        cluster.start()
        for port in ports.values():
            wait_for(lambda port=port: asked(port, "/readyz")[0] == 200, 20)  # type: ignore[misc]
        first = cluster.leader()
        with first.client() as client:
            for n in range(50):
                client.produce("q", n)
        before = {node_id: numbers(port) for node_id, port in ports.items()}
        [leader] = [node_id for node_id, one in before.items() if ("quorate_messages_produced_total", "0") in one]
        assert cluster.nodes[leader] is first
        assert before[leader]["quorate_messages_produced_total", "0"] == 50
        assert sorted(one for one in before[leader] if one[0] == "quorate_replication_lag_records") == [
            ("quorate_replication_lag_records", str(other), "0") for other in sorted(ports) if other != leader
        ]
        for port in ports.values():
            for path in ("/", "/queues", "/queue?name=q", "/dead"):
                assert asked(port, path)[0] == 200, path
            assert "Followers" in asked(port, "/")[1]
        first.kill()
        second = cluster.leader()
        [other] = [node for node in cluster.nodes.values() if node not in (first, second)]
        with other.client() as client:  # which forwards them
            for n in range(30):
                client.produce("q", n)
        ids = {node: node_id for node_id, node in cluster.nodes.items()}
        # What was summed up is told for a second.
        wait_for(lambda: numbers(ports[ids[second]])["quorate_messages", "0", "ready"] == 80, 5)
        led, followed = numbers(ports[ids[second]]), numbers(ports[ids[other]])
        assert led["quorate_messages_produced_total", "0"] == 30
        assert followed["quorate_requests_total", "produce", "ok", "0"] == 30
        assert ("quorate_requests_total", "produce", "ok", "0") not in led
        assert led["quorate_elections_total", "0"] >= 1
        assert led["quorate_leader", "0"] == followed["quorate_leader", "0"] == ids[second]
    finally:
        cluster.kill()


@pytest.mark.slow
@pytest.mark.parametrize("has_access_file", [True, False])
def test_a_node_without_a_leader_is_not_ready_with_an_access_file_and_without(
    tmp_path: Path, has_access_file: bool
) -> None:
    """With an access file all nodes said ok, so a load balancer sent clients to one that could do nothing."""
    config: dict[str, Any] = {}
    if has_access_file:
        config["access_file"] = str(access_file(tmp_path, worker=["produce"], anonymous=[]))
    cluster = Cluster(tmp_path, 3, config)
    ports: dict[int, int] = {}
    for node_id, node in cluster.nodes.items():
        ports[node_id] = free_port()
        node.config["http_listeners"] = [{"port": ports[node_id], "serves": ["health"]}]
    try:
        for node in cluster.nodes.values():
            node.start()
        for port in ports.values():
            wait_for(lambda port=port: asked(port, "/readyz") == (200, "ok\n"), 20)  # type: ignore[misc]
        wait_for(lambda: "1 voter, 2 voter, 3 voter" in cluster.nodes[1].log, 20)
        cluster.nodes[1].stop()
        shutil.rmtree(Path(str(cluster.nodes[1].config["data_dir"])))
        cluster.nodes[1].start()  # with another disk: the others refuse it
        wait_for(lambda: asked(ports[1], "/healthz")[0] == 200, 20)
        time.sleep(1.0)
        assert asked(ports[1], "/readyz") == (503, "no leader\n")
        wait_for(lambda: asked(ports[2], "/readyz") == (200, "ok\n"), 20)
        cluster.nodes[3].kill()
        wait_for(lambda: asked(ports[2], "/readyz") == (503, "no leader\n"), 20)
        cluster.nodes[3].start()
        wait_for(lambda: asked(ports[2], "/readyz") == (200, "ok\n"), 20)
    finally:
        cluster.kill()
