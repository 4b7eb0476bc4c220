"""python -m bench.metaq: MetaQ's protocol beside JSON, with leaders and ZooKeeper that are killed.

Puts and JSON's appends are measured alternately in one run, ROUNDS times, and the medians are compared. Gets go through
what was put, 1 MiB at a time. Three nodes: MESSAGES are put while leaders are killed, by a producer that finds its
broker in ZooKeeper, and read by a consumer that does, too. One node: how long a thousand topics take to be registered,
and all of it after ZooKeeper was killed for a while. ZooKeeper is that of PySpark's jars, and needs a Java.
"""

import argparse
import json
import logging
import statistics
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from bench.cluster_nodes import BenchCluster, voters, wait_for
from bench.load import FULL_RECORDS, fill, load
from bench.metaq_wire import Metaq, MetaqError
from bench.node import BenchNode, running_node
from bench.zookeeper import ZooKeeper
from quorate import Client

PORT: Final = 11_341
METAQ_PORT: Final = 11_342
ZOOKEEPER_PORT: Final = 11_343
CLUSTER_PORT: Final = 11_350
FIRST_TOPIC: Final = 200
TOPIC: Final = f"bench{FIRST_TOPIC}"
ROUNDS: Final = 5
KILLS: Final = 10
MESSAGES: Final = 100_000
AWAY_S: Final = 60.0
MIB: Final = 1 << 20
BROKER: Final = "/meta/brokers/ids/0"


def puts(node: BenchNode, rounds: int) -> None:
    """Print how many are put a second, of those that are appended by JSON, and what each costs the node."""
    count = 64_000
    found: dict[str, list[tuple[float, float]]] = {"metaq": [], "append": []}
    for _ in range(rounds):
        for protocol, figures in found.items():
            before = node.cpu_s()
            told = load(
                protocol, METAQ_PORT if protocol == "metaq" else PORT, 64, count, data_bytes=100, first=FIRST_TOPIC
            )
            figures.append((told["rps"], (node.cpu_s() - before) / count * 1e6))
    medians = {name: [statistics.median(one) for one in zip(*figures, strict=True)] for name, figures in found.items()}
    shown = ", ".join(f"{name} {rate:,.0f}/s at {cpu:.1f} us of CPU" for name, (rate, cpu) in medians.items())
    ratio = medians["metaq"][0] / medians["append"][0]
    print(f"put of 100 bytes, fsynced, 64 connections: {shown}, ratio {ratio:.2f} (wanted: 0.9)", flush=True)


def gets(client: Client) -> None:
    """Print how quickly messages of 1 KiB are read, 1 MiB at a time, from blocks as they lie."""
    client.create_topic("large", partitions=1)
    for _ in range(200):
        client.append_many("large", ["x" * 1024] * 1000, partition=0)
    time.sleep(2)
    position = size = 0
    begun = time.perf_counter()
    with Metaq(METAQ_PORT) as metaq:
        while (answer := metaq.ask(f"get large g 0 {position} {MIB}")).code == 0:
            position += len(answer.data) - len(answer.data) % 1044
            size += len(answer.data)
    took = time.perf_counter() - begun
    print(f"get of 1 MiB, messages of 1 KiB: {size / took / 1e6:,.0f} MB/s (wanted: 100)", flush=True)


class Tree:
    """What ZooKeeper says."""

    def __init__(self, server: ZooKeeper) -> None:
        self.client: Any = KazooClient(server.address)
        self.client.start(timeout=30)

    def text(self, path: str) -> str:
        """The data of a node; empty: there is none."""
        with suppress(KazooException):
            return str(self.client.get(path)[0].decode())
        return ""

    @property
    def master(self) -> int:
        """The leader's port; 0: none is registered."""
        return int(self.text(f"{BROKER}/master").rpartition(":")[2] or 0)


def produce(tree: Tree, count: int, acknowledged: set[int], unknown: set[int]) -> None:
    """Put so many messages, each until it is known to be there or may be."""
    number = 0
    while number < count:
        with suppress(OSError), Metaq(tree.master, 5) as client:
            while number < count:
                try:
                    client.put("t", b"%d" % number, number % 2)
                except MetaqError as error:
                    if "unknown_outcome" in str(error):
                        unknown.add(number)
                        number += 1
                    break
                except OSError:
                    unknown.add(number)
                    number += 1
                    break
                acknowledged.add(number)
                number += 1
        time.sleep(0.01)


def consume(tree: Tree, read: Counter[int], done: threading.Event) -> None:
    """Read both partitions, as a consumer that keeps its positions."""
    places = [0, 0]
    while not done.is_set():
        with suppress(OSError, ValueError), Metaq(tree.master, 5) as client:
            while not done.is_set():
                for partition in range(2):
                    try:
                        got = client.get("t", partition, places[partition])
                    except MetaqError:
                        time.sleep(0.002)
                        continue
                    read.update(int(one.payload) for one in got)
                    places[partition] = got[-1].position + 20 + len(got[-1].payload)
        time.sleep(0.01)


def kills(server: ZooKeeper, tree: Tree, folder: Path, count: int) -> None:
    """Print what is missing, or there twice, and how long ZooKeeper takes to show a new leader."""
    cluster = BenchCluster(folder, CLUSTER_PORT, 3)
    for n in cluster.nodes:
        listeners = _listeners(CLUSTER_PORT + 100 + n, server)
        cluster.nodes[n] = cluster.node(n, CLUSTER_PORT + n, cluster.listed, listeners=listeners)
    cluster.start()
    acknowledged: set[int] = set()
    unknown: set[int] = set()
    read: Counter[int] = Counter()
    done = threading.Event()
    late: list[float] = []
    try:
        with Client(nodes=[f"127.0.0.1:{node.port}" for node in cluster.nodes.values()], timeout=20) as client:
            client.create_topic("t", partitions=2)
        wait_for(lambda: tree.text("/meta/brokers/topics/t/0-m"))
        threads = [
            threading.Thread(target=produce, args=(tree, count, acknowledged, unknown)),
            threading.Thread(target=consume, args=(tree, read, done)),
        ]
        for thread in threads:
            thread.start()
        for number in range(KILLS):
            wanted = count * (number + 1) // (KILLS + 2)
            wait_for(lambda wanted=wanted: len(acknowledged) > wanted, 600)  # type: ignore[misc]
            late.append(_kill_a_leader(cluster, tree))
        threads[0].join(600)
        wait_for(lambda: acknowledged <= read.keys(), 60)
        done.set()
        threads[1].join(10)
    finally:
        cluster.stop()
    twice = sum(its > 1 for its in read.values())
    missing, stray = len(acknowledged - read.keys()), len(read.keys() - acknowledged - unknown)
    print(
        f"{count:,} messages, {KILLS} leaders killed: missing {missing}, read twice {twice}, never put {stray}, "
        f"of {len(unknown)} it was unknown; ZooKeeper shows the next leader {max(late):.2f} s "
        f"after it serves at the latest (wanted: 0, 0, 0; 1 s)",
        flush=True,
    )


def _kill_a_leader(cluster: BenchCluster, tree: Tree) -> float:
    """How long behind the moment in which a new leader serves ZooKeeper shows it (s)."""
    leader, before = cluster.leader(), tree.master
    cluster.nodes[leader].kill()
    others = [CLUSTER_PORT + 100 + n for n in cluster.nodes if n != leader]

    def serves() -> bool:
        for port in others:
            with suppress(OSError, MetaqError), Metaq(port, 0.5) as client:
                client.offset("t", 0, 0)
                return True
        return False

    wait_for(serves)
    at = time.perf_counter()
    wait_for(lambda: tree.master not in (0, before))
    took = time.perf_counter() - at
    cluster.nodes[leader].start()
    wait_for(lambda: all(voters(node.port) == 3 for node in cluster.nodes.values()))
    return took


def registered(server: ZooKeeper, tree: Tree, away_s: float) -> None:
    """Print how long a thousand topics take, and all of them after ZooKeeper's return."""
    listeners = _listeners(METAQ_PORT, server, zookeeper_root="/other")
    with running_node(PORT, listeners=listeners), Client("127.0.0.1", PORT, timeout=60) as client:
        for number in range(1000):
            client.create_topic(f"t{number}", partitions=1)
        begun = time.perf_counter()
        wait_for(lambda: tree.text("/other/brokers/topics-sub/t999/0-m"))
        print(f"1,000 topics registered {time.perf_counter() - begun:.2f} s after the last was created (wanted: 5 s)")
        server.kill()
        begun = time.perf_counter()
        puts = 0
        with Metaq(METAQ_PORT) as metaq:
            while time.perf_counter() < begun + away_s:
                metaq.put("t0", b"x", 0)
                puts += 1
        server.start()
        begun = time.perf_counter()
        wait_for(lambda: client.status()["shards"][0]["zookeeper"] == "registered")
        took = time.perf_counter() - begun
        wait_for(lambda: tree.text("/other/brokers/topics-sub/t999/0-m"))
        print(
            f"ZooKeeper killed for {away_s:g} s, {puts:,} puts meanwhile: all is registered {took:.2f} s after its "
            "return (wanted: 5 s)",
            flush=True,
        )


def _listeners(port: int, server: ZooKeeper | None = None, **more: str) -> str:
    found = {"protocol": "metaq", "host": "127.0.0.1", "port": port, **more}
    return json.dumps([found if server is None else {**found, "zookeeper": server.address}])


def main(rounds: int, count: int, away_s: float) -> None:
    """All of it."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # which tells of each try while ZooKeeper is away
    with (
        running_node(PORT, queue_log_size=FULL_RECORDS, listeners=_listeners(METAQ_PORT)) as node,
        Client("127.0.0.1", PORT, timeout=60) as client,
    ):
        fill(PORT)
        client.create_topic(TOPIC, partitions=1)
        puts(node, rounds)
        gets(client)
    with (
        tempfile.TemporaryDirectory(prefix="quorate-bench-") as folder,
        ZooKeeper(Path(folder) / "zookeeper", ZOOKEEPER_PORT) as server,
    ):
        tree = Tree(server)
        kills(server, tree, Path(folder), count)
        registered(server, tree, away_s)
        tree.client.stop()
        tree.client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--away", type=float, default=AWAY_S, help="for how long ZooKeeper is killed (s)")
    asked = parser.parse_args()
    main(asked.rounds, asked.messages, asked.away)
