"""A real cluster in its own processes, for tests."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.node import Node, free_port, free_ports

PATIENCE_S = 20.0


def wait_for(what: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Ask until there is an answer that is true; returns it."""
    until = time.monotonic() + patience_s
    while True:
        try:
            answer = what()
        except Exception:
            if time.monotonic() > until:
                raise
            answer = None
        if answer:
            return answer
        assert time.monotonic() < until, f"not in {patience_s} s: {what}"
        time.sleep(0.02)


class Cluster:
    """Nodes that name each other; each has a folder of its own."""

    def __init__(self, folder: Path, size: int, config: dict[str, Any]) -> None:
        self._folder = folder
        self._config = config
        shards = int(config.get("shards", 1))
        self.listed = [{"node_id": n, "host": "127.0.0.1", "port": free_ports(shards)} for n in range(1, size + 1)]
        self.nodes = {n: self.make(n, free_port(), self.listed) for n in range(1, size + 1)}

    def make(self, node_id: int, port: int, listed: list[dict[str, Any]]) -> Node:
        """A node that is not started; clients reach it at `port`."""
        folder = self._folder / f"node-{node_id}"
        folder.mkdir(exist_ok=True)
        return Node(folder, {"node_id": node_id, "port": port, "cluster_node_list": listed, **self._config})

    def node_port(self, node_id: int) -> int:
        """Where other nodes reach it."""
        return next(int(str(one["port"])) for one in self.listed if one["node_id"] == node_id)

    def id_of(self, node: Node) -> int:
        """A node's number."""
        return next(node_id for node_id, one in self.nodes.items() if one is node)

    def start(self) -> None:
        """Start all, and wait until they are members and one leads."""
        for node in self.nodes.values():
            node.start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Wait until all nodes vote and know the leader."""
        wait_for(lambda: all(self._is_whole(node) for node in self.nodes.values()))

    def _is_whole(self, node: Node) -> bool:
        with node.client(2.0) as client:
            return all(self._is_shard_whole(shard) for shard in client.status()["shards"])

    def _is_shard_whole(self, shard: dict[str, Any]) -> bool:
        voters = [member for member in shard.get("members", ()) if member["role"] == "voter"]
        return len(voters) == len(self.nodes) and shard["leader_node_id"] != 0

    @staticmethod
    def shard(node: Node) -> dict[str, Any]:
        """What a node says of its shard."""
        with node.client(2.0) as client:
            return dict(client.status()["shards"][0])

    def leader(self) -> Node:
        """The node that leads, as it says itself."""
        return self.nodes[wait_for(self._leader_id)]

    def _leader_id(self) -> int:
        for node_id, node in self.nodes.items():
            if node.process is not None and self.shard(node)["role"] == "leader":
                return node_id
        return 0

    def followers(self) -> list[Node]:
        """The others."""
        leader = self.leader()
        return [node for node in self.nodes.values() if node is not leader]

    def kill(self) -> None:
        """All of them."""
        for node in self.nodes.values():
            node.kill()
