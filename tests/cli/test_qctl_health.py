"""qctl health and client ls: what a monitor and an operator see."""

import json

import pytest

from tests.cli.test_qctl import qctl
from tests.conftest import StartNode
from tests.node import Node, free_port


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def test_health_is_a_line_and_an_exit_code(node: Node) -> None:
    port = ("--port", node.port)
    assert qctl("health", *port) == "OK: node 1, 1 shards, 1 nodes\n"
    with node.client() as client:
        client.configure("q", dead_letter="q.dead")
        client.produce_many("q", [1, 2, 3])
        client.bury(client.consume("q") or 0, "x")
    well = qctl("health", "--queue", "q", "--max-age", "5m", "--max-ready", 2, "--max-dead", 1, *port)
    assert well.startswith("OK: node 1, 1 shards, 1 nodes; q: 2 ready, the oldest for ")
    assert well.endswith(", 1 dead letters\n")
    assert qctl("health", "--queue", "q", "--max-ready", 1, *port, code=2) == "CRITICAL: q: 2 are ready\n"
    assert qctl("health", "--queue", "q", "--max-dead", 0, *port, code=2) == "CRITICAL: q: 1 dead letters\n"
    assert qctl("health", "--queue", "q", "--max-age", "0s", *port, code=2).startswith(
        "CRITICAL: q: a message is ready"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--wrong",), "No such option"),
        (("--max-age", "soon", "--queue", "q"), "no duration"),
        (("--max-ready", 1), "UNKNOWN: --max-age"),
        (("--queue", "typo", "--max-ready", 1), "UNKNOWN: no_such_queue"),
    ],
)
def test_what_can_not_be_known_is_neither_well_nor_ill(node: Node, words: tuple[object, ...], said: str) -> None:
    assert said in qctl("health", *words, "--port", node.port, code=3)


def test_a_node_that_is_not_there_is_critical() -> None:
    assert qctl("health", "--port", free_port(), code=2).startswith("CRITICAL: 127.0.0.1:")


def test_a_node_that_knows_no_leader_is_critical(start_node: StartNode) -> None:
    alone = start_node(cluster_node_list=[{"node_id": n, "host": "127.0.0.1", "port": free_port()} for n in (1, 2, 3)])
    said = qctl("health", "--port", alone.port, code=2)
    assert said.startswith("CRITICAL: shard 0: this node knows no leader")
    qctl("node", "status", "--port", alone.port, code=3)


@pytest.mark.parametrize("shards", [1, 2])
def test_clients_are_listed(start_node: StartNode, shards: int) -> None:
    node = start_node(shards=shards)
    with node.client() as client:
        client.request(24, command="name", consumer="mailer")
        rows = [json.loads(line) for line in qctl("client", "ls", "--json", "--port", node.port).splitlines()]
        assert [row["protocol"] for row in rows if row["name"] == "mailer"] == ["json"]
        assert "\tmailer\t" in qctl("client", "ls", "--port", node.port)


def test_what_a_running_node_has_is_shown(start_node: StartNode) -> None:
    port = ("--port", start_node(flush="interval").port)
    shown = dict(line.split("\t") for line in qctl("config", "show", "--node", *port).splitlines())
    assert shown["flush"] == "interval"
    assert json.loads(qctl("config", "show", "--node", "--json", *port))["flush"] == "interval"
