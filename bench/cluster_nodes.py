"""A cluster of our own for a benchmark: its nodes in folders of their own, started and stopped by process id."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.node import BenchNode
from quorate import Client, QuorateError

PATIENCE_S = 60.0


class BenchCluster:
    """Nodes 1 to `size` on the ports behind `port`."""

    def __init__(self, folder: Path, port: int, size: int, **settings: object) -> None:
        self._folder = folder
        self._settings = settings
        shards = int(str(settings.get("shards", 1)))
        first = port + 51
        self.listed = [{"node_id": n + 1, "host": "127.0.0.1", "port": first + n * shards} for n in range(size)]
        self.nodes = {n: self.node(n, port + n, self.listed) for n in range(1, size + 1)}

    def node(self, node_id: int, port: int, listed: list[dict[str, Any]], **settings: object) -> BenchNode:
        """A node that is not started."""
        folder = self._folder / f"node-{node_id}"
        folder.mkdir(exist_ok=True)
        return BenchNode(folder, port, node_id=node_id, cluster_node_list=listed, **{**self._settings, **settings})

    def start(self) -> None:
        """Start all, and wait until all of them vote."""
        for node in self.nodes.values():
            node.start()
        wait_for(lambda: all(voters(node.port) == len(self.nodes) for node in self.nodes.values()))

    def leader(self) -> int:
        """Who leads, as it says itself."""
        return int(wait_for(lambda: next((n for n in self.nodes if role(self.nodes[n].port) == "leader"), 0)))

    def stop(self) -> None:
        """All of them."""
        for node in self.nodes.values():
            node.stop()


def shard(port: int) -> dict[str, Any]:
    """What the node on that port says of its shard; nothing if it is not there."""
    try:
        with Client("127.0.0.1", port, timeout=5) as client:
            return dict(client.status()["shards"][0])
    except QuorateError:
        return {}


def role(port: int) -> str:
    """leader, follower or none."""
    return str(shard(port).get("role", "none"))


def voters(port: int) -> int:
    """How many members vote, as the node knows it."""
    return sum(member["role"] == "voter" for member in shard(port).get("members", ()))


def wait_for(what: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Ask until the answer is true; returns it. Raises TimeoutError."""
    until = time.monotonic() + patience_s
    while not (answer := what()):
        if time.monotonic() > until:
            raise TimeoutError(f"not in {patience_s} s")
        time.sleep(0.02)
    return answer


@contextmanager
def running_cluster(port: int, size: int = 3, **settings: object) -> Iterator[BenchCluster]:
    """A cluster for a block, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        cluster = BenchCluster(Path(folder), port, size, **settings)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
