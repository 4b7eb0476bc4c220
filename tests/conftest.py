"""What all tests share: hypothesis profiles, and real nodes that are stopped by their process id."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

import quorate_compiled
from tests.cluster import Cluster
from tests.examples import examples
from tests.node import Node
from tests.quick_java import start_quickly
from tests.sharing import Sharing

settings.register_profile(
    "default",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

start_quickly()


def pytest_report_header() -> str:
    """Which code is tested."""
    return f"quorate: {quorate_compiled.running()}"


StartNode = Callable[..., Node]


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Start real nodes; all are killed at the end. Settings by name; `data_dir` defaults to one of the test's own."""
    nodes: list[Node] = []

    def start(**config: object) -> Node:
        node = Node(tmp_path, config)
        nodes.append(node)
        node.start()
        return node

    yield start
    for node in nodes:
        node.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that are up."""
    made = Cluster(tmp_path, 3, {})
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Side by side, the longest begin first, so that none of them is left over when the others are done.

    All others are mixed, always in the same way: those of one folder are alike, and where all wait, or all work, a core
    has nothing to do, or too much.
    """

    def place(item: pytest.Item) -> tuple[int, bool, int]:
        slow = list(item.iter_markers("slow"))
        seconds = max((mark.args[0] for mark in slow if mark.args), default=0)
        return -seconds, not slow, crc32(item.nodeid.encode())

    if hasattr(config, "workerinput"):
        items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Share out tests to processes, unless another way is asked for by `--dist`."""
    return Sharing(config, log) if config.getvalue("dist") == "load" else None
