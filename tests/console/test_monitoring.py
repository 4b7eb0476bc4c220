"""The board and the alert rules of docs/monitoring.md: what they ask for is there, and a real Prometheus runs them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quorate import RefusedError
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.console.conftest import asked
from tests.node import Node, free_port

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "docs" / "monitoring"
INSTALLED = ROOT / "build" / "prometheus" / "usr" / "bin"
"""Where .ci/run unpacks it: nothing is started by installing."""

NAME = re.compile(r"quorate_[a-z_]+")
FROM_PROMETHEUS = {"job", "instance"}


def program(name: str) -> str:
    """Prometheus' own, where it is."""
    found = shutil.which(name) or shutil.which(name, path=str(INSTALLED))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def board_queries() -> list[str]:
    board = json.loads((MONITORING / "board.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def alert_queries() -> list[str]:
    return re.findall(r"expr: (.+)", (MONITORING / "alerts.yml").read_text())


def metered_node(start_node: StartNode, tmp_path: Path) -> tuple[Node, int]:
    """A node that has refused something, reached a limit and buried a message, and the port of its metrics."""
    port = free_port()
    node = start_node(http_listeners=[{"port": port, "serves": ["metrics", "health"]}], max_queues=3)
    wait_for(lambda: asked(port, "/readyz")[0] == 200, 20)
    with node.client() as client:
        client.configure("q", dead_letter="q.dead")
        client.produce_many("q", list(range(20)))
        for message in client.consume_many("q", 5):
            message.bury("no use")
        client.confirm(client.consume_many("q", 3))
        client.produce("a", 1)
        with pytest.raises(RefusedError, match="limit_reached"):
            client.produce("b", 1)
    return node, port


def names_and_labels(port: int) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in ("/metrics", "/metrics/queues"):
        for family in text_string_to_metric_families(asked(port, path)[1]):
            found.setdefault(family.name, set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_query_is_of_metrics_and_labels_that_there_are(start_node: StartNode, tmp_path: Path) -> None:
    _, port = metered_node(start_node, tmp_path)
    found = names_and_labels(port)
    found["quorate_replication_lag_records"] = {"shard", "node"}  # a node alone has no followers
    for query in [*board_queries(), *alert_queries()]:
        names = set(NAME.findall(query))
        assert names <= found.keys(), query
        labels = set().union(*(found[name] for name in names)) | FROM_PROMETHEUS
        used = set(re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", query))
        for group in re.findall(r"by \(([^)]*)\)", query):
            used |= {one.strip() for one in group.split(",")}
        assert used <= labels, (query, used - labels)
    documented = (ROOT / "docs" / "monitoring.md").read_text()
    for name in found:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        if not base.startswith(("quorate_queue_", "quorate_messages_")) and base.endswith("_total") | (base in found):
            assert base in documented or f"{base}_total" in documented, base


def test_the_alerts_fire_where_they_should_and_nowhere_else(tmp_path: Path) -> None:
    for path in (MONITORING / "alerts.yml", Path(__file__).parent / "alerts_test.yml"):
        shutil.copy(path, tmp_path)
    done = subprocess.run(
        [program("promtool"), "test", "rules", "alerts_test.yml"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture
def prometheus(tmp_path: Path, start_node: StartNode) -> Iterator[int]:
    """A real one on loopback, which asks a node of ours every second; its port."""
    found = program("prometheus")
    _, port = metered_node(start_node, tmp_path)
    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    jobs = [
        {"job_name": name, "metrics_path": path, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for name, path in (("quorate", "/metrics"), ("quorate-queues", "/metrics/queues"))
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": jobs,
        "rule_files": ["alerts.yml"],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    own = free_port()
    words = [found, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{own}", "--storage.tsdb.path=tsdb"]
    with (tmp_path / "prometheus.log").open("w") as output:
        process = subprocess.Popen(words, cwd=tmp_path, stdout=output, stderr=output, env={**os.environ, "HOME": "/"})
    try:
        wait_for(lambda: is_up(own), 30)
        yield own
    finally:
        process.kill()
        process.wait()


def is_up(port: int) -> bool:
    try:
        return asked(port, "/-/ready")[0] == 200
    except OSError:
        return False


def answer(port: int, query: str) -> list[Any]:
    status, text = asked(port, f"/api/v1/query?query={quote(query)}")
    assert status == 200, (query, text)
    return list(json.loads(text)["data"]["result"])


@pytest.mark.slow
def test_a_real_prometheus_finds_something_for_every_query(prometheus: int) -> None:
    wait_for(lambda: answer(prometheus, 'count_over_time(quorate_queues{job="quorate"}[1m]) > 4') != [], 30)
    for query in board_queries():
        asked_for = query.replace("$__rate_interval", "1m").replace("$job", "quorate")
        if "quorate_replication_lag_records" not in query:  # a node alone has no followers
            assert answer(prometheus, asked_for), asked_for
    assert float(answer(prometheus, 'sum(quorate_messages{state="ready"})')[0]["value"][1]) == 18
    status, text = asked(prometheus, "/api/v1/rules")
    rules = [rule for group in json.loads(text)["data"]["groups"] for rule in group["rules"]]
    assert status == 200
    assert {rule["health"] for rule in rules} == {"ok"}, rules
    assert len(rules) == len(alert_queries())
    firing = {rule["name"] for rule in rules if rule["state"] != "inactive"}
    assert firing <= {"QuorateLimitReached", "QuorateDeadLettersGrow"}, firing
