"""python -m bench.first_second: what clients hear in a new cluster's first second, and over restarts and kills.

`first`: 20 fresh clusters of three, their nodes asked as soon as they are ready: nothing may be unknown, and no
redirect may lack an address. `keyed`: a keyed load of the library's while nodes are restarted one after another and
leaders are killed, 20 times each: no error may be raised for what was done.
"""

import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.cluster_nodes import BenchCluster, running_cluster, voters, wait_for
from quorate import Client, QuorateError, RefusedError

PORT: Final = 11_440
TIMES: Final = 20
REQUESTS: Final = 20


def first() -> None:
    """Requests through each node from the moment at which it is ready."""
    outcomes: Counter[str] = Counter()
    for number in range(TIMES):
        with tempfile.TemporaryDirectory(prefix="quorate-first-", dir=".") as folder:
            cluster = BenchCluster(Path(folder), PORT, 3, forward_request=number % 2)
            try:
                for node in cluster.nodes.values():
                    node.start()
                askers = [threading.Thread(target=_ask, args=(node.port, outcomes)) for node in cluster.nodes.values()]
                for asker in askers:
                    asker.start()
                for asker in askers:
                    asker.join()
            finally:
                cluster.stop()
    print(
        f"{TIMES} fresh clusters of three, {REQUESTS} produces to each node within its first second: {dict(outcomes)}"
    )


def _ask(port: int, outcomes: "Counter[str]") -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        lines = sock.makefile()
        for number in range(REQUESTS):
            sock.sendall(json.dumps({"action": 1, "queue": "q", "data": number}).encode())
            reply = json.loads(lines.readline())
            if reply.get("error") == "redirect":
                outcomes["redirect" if reply["leader_port"] else "redirect WITHOUT AN ADDRESS"] += 1
            else:
                outcomes[reply.get("error", "done")] += 1


class _KeyedLoad:
    """Producers with keys and consumers that confirm at once, so that a key may be gone when a produce is repeated."""

    def __init__(self, ports: list[int]) -> None:
        self.errors: list[str] = []
        self.done = 0
        self.seen: set[str] = set()
        self.produced: set[str] = set()
        self._is_over = False
        self._lock = threading.Lock()
        nodes = [("127.0.0.1", port) for port in ports]
        self._threads = [threading.Thread(target=self._produce, args=(nodes, n)) for n in range(4)]
        self._threads += [threading.Thread(target=self._consume, args=(nodes,)) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _produce(self, nodes: list[tuple[str, int]], number: int) -> None:
        count = 0
        with Client(nodes=nodes, timeout=20) as client:
            while not self._is_over:
                count += 1
                token = f"{number}.{count}"
                try:
                    client.produce("keyed", token, key=token, retry=5)
                except QuorateError as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                    continue
                with self._lock:
                    self.done += 1
                    self.produced.add(token)

    def _consume(self, nodes: list[tuple[str, int]]) -> None:
        with Client(nodes=nodes, timeout=20) as client:
            while not self._is_over:
                try:
                    message = client.consume("keyed", wait=0.2)
                    if message is not None:
                        self.seen.add(message.data)
                        client.confirm(message)
                except RefusedError as error:
                    self.errors.append(f"{type(error).__name__}: {error}")

    def end(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()


def keyed() -> None:
    """Rolling restarts, then kills of the leader."""
    with running_cluster(PORT + 5) as cluster:
        load = _KeyedLoad([node.port for node in cluster.nodes.values()])
        for what in ("rolling restarts", "kills of the leader"):
            begun, before, failed = time.monotonic(), load.done, len(load.errors)
            for _ in range(TIMES):
                if what == "rolling restarts":
                    for node in cluster.nodes.values():
                        node.stop()
                        node.start()
                        wait_for(lambda: all(voters(one.port) == 3 for one in cluster.nodes.values()))
                else:
                    leader = cluster.nodes[cluster.leader()]
                    leader.kill()
                    leader.start()
                    wait_for(lambda: all(voters(one.port) == 3 for one in cluster.nodes.values()))
            took_s = time.monotonic() - begun
            done, errors = load.done - before, len(load.errors) - failed
            print(f"{TIMES} {what} in {took_s:.0f} s: {done} keyed produces, {errors} errors")
        load.end()
        port = cluster.nodes[cluster.leader()].port
        with Client("127.0.0.1", port) as client:
            while messages := client.consume_many("keyed", 1000):
                load.seen.update(message.data for message in messages)
                client.confirm(messages)
        print(f"  never seen of {len(load.produced)} acknowledged: {len(load.produced - load.seen)}; {load.errors[:5]}")


PARTS: Final[dict[str, Callable[[], None]]] = {"first": first, "keyed": keyed}


def main() -> None:
    """Run what is named, or all."""
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
