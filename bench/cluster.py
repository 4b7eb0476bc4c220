"""python -m bench.cluster: what three nodes on this machine do, load generator included. Takes some minutes.

`python -m bench.cluster compiled` compares compiled and interpreted code, `--profile` says where a request's time goes.
`python -m bench.cluster throughput failover shards catch-up join` runs only the parts that are named.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from bench import metered
from bench.cluster_nodes import role, running_cluster, shard, voters, wait_for
from bench.load import load
from quorate import Client, QuorateError
from quorate.shards import shard_of_queue

PORT: Final = 11_340
ROUNDS: Final = 5
KILLS: Final = 20
SHARDS: Final = 4
SHARD_KILLS: Final = 10
MISSED: Final = 100_000
LIVE: Final = 1_000_000
BATCH: Final = 1000


def throughput() -> None:
    """Requests a second, to the leader and through a follower."""
    with running_cluster(PORT) as cluster:
        leader = cluster.leader()
        follower = next(n for n in cluster.nodes if n != leader)
        ports = {"leader": cluster.nodes[leader].port, "follower": cluster.nodes[follower].port}
        runs: dict[str, list[dict[str, float]]] = {"leader, 8": [], "follower, 8": [], "leader, 64": []}
        load("quorate", ports["leader"], 8, 12_000)
        for _ in range(ROUNDS):
            for name, found in runs.items():
                where, connections = name.split(", ")
                found.append(load("quorate", ports[where], int(connections), 24_000))
        rps = {name: statistics.median(one["rps"] for one in found) for name, found in runs.items()}
        mean = {name: statistics.median(one["avg_us"] for one in found) for name, found in runs.items()}
        print(f"three nodes, produce + consume + confirm, medians of {ROUNDS} alternating rounds:")
        p99 = {name: statistics.median(one["p99_us"] for one in found) for name, found in runs.items()}
        print(
            f"  leader, 8 connections:    {rps['leader, 8']:7.0f}/s, mean {mean['leader, 8']:.0f} us, "
            f"p99 {p99['leader, 8']:.0f} us (wanted: 11000)"
        )
        print(f"  leader, 64 connections:   {rps['leader, 64']:7.0f}/s, p99 {p99['leader, 64']:.0f} us (wanted: 20000)")
        ratio = rps["follower, 8"] / rps["leader, 8"]
        print(f"  follower, 8 connections:  {rps['follower, 8']:7.0f}/s, {ratio:.2f} of the leader's (wanted: 0.60)")


def compiled() -> None:
    """Compiled against interpreted code of this commit: two clusters side by side, measured in turn."""
    before = os.environ.get("QUORATE_COMPILE")
    with contextlib.ExitStack() as stack:
        ports = {}
        for code, name, port in (("1", "compiled", PORT), ("0", "interpreted", PORT + 200)):
            os.environ["QUORATE_COMPILE"] = code
            cluster = stack.enter_context(running_cluster(port))
            ports[name] = cluster.nodes[cluster.leader()].port
            load("quorate", ports[name], 8, 12_000)
        for connections, requests in ((8, 24_000), (64, 48_000)):
            found: dict[str, list[dict[str, float]]] = {name: [] for name in ports}
            for _ in range(ROUNDS):
                for name, port in ports.items():
                    found[name].append(load("quorate", port, connections, requests))
            rps = {name: statistics.median(one["rps"] for one in runs) for name, runs in found.items()}
            p99 = {name: statistics.median(one["p99_us"] for one in runs) for name, runs in found.items()}
            one, other = ports
            print(
                f"three nodes, {connections} connections to the leader, medians of {ROUNDS} alternating rounds: "
                + "; ".join(f"{name} {rps[name]:.0f}/s, p99 {p99[name]:.0f} us" for name in ports)
                + f"; ratio {rps[one] / rps[other]:.2f} (wanted: 1.2)"
            )
    os.environ.pop("QUORATE_COMPILE")
    if before is not None:
        os.environ["QUORATE_COMPILE"] = before


class _Producers:
    """Clients that produce one message after another, and note what was acknowledged when."""

    def __init__(self, ports: list[int], count: int, queue: str = "failover") -> None:
        self.queue = queue
        self.acknowledged: dict[str, float] = {}
        self.is_over = False
        self._ports = ports
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        count = 0
        with Client(nodes=[("127.0.0.1", port) for port in self._ports], timeout=10) as client:
            while not self.is_over:
                count += 1
                token = f"{number}.{count}"
                try:
                    client.produce(self.queue, token, retry=3600, ttl=86_400, key=token)
                except QuorateError:
                    continue
                self.acknowledged[token] = time.monotonic()

    def first_after(self, moment: float) -> float:
        """When the first produce behind `moment` was acknowledged; 0 if none was yet."""
        return min((at for at in list(self.acknowledged.values()) if at > moment), default=0.0)

    def end(self) -> None:
        """No more."""
        self.is_over = True
        for thread in self._threads:
            thread.join()


def failover() -> None:
    """kill -9 of the leader under load: how long until the next produce is acknowledged, and whether any is lost."""
    took: list[float] = []
    with running_cluster(PORT) as cluster:
        producers = _Producers([node.port for node in cluster.nodes.values()], 4)
        for _ in range(KILLS):
            time.sleep(1.0)
            leader = cluster.leader()
            killed_at = time.monotonic()
            cluster.nodes[leader].kill()
            killed = time.monotonic()
            took.append(float(wait_for(partial(producers.first_after, killed))) - killed_at)
            cluster.nodes[leader].start()
            wait_for(lambda: all(role(node.port) != "none" for node in cluster.nodes.values()))
        producers.end()
        seen: set[str] = set()
        with Client("127.0.0.1", cluster.nodes[cluster.leader()].port, timeout=30) as client:
            while messages := client.consume_many("failover", 1000):
                seen.update(message.data for message in messages)
        lost = len(set(producers.acknowledged) - seen)
    took.sort()
    print(f"{KILLS} times kill -9 of the leader under load, from the kill to the next acknowledged produce:")
    print(f"  median {statistics.median(took):.2f} s (wanted: 0.8), worst {took[-1]:.2f} s (wanted: 2)")
    print(f"  {len(producers.acknowledged)} acknowledged, {lost} of them lost (wanted: 0)")


def shards() -> None:
    """kill -9 of a node that leads some of four shards: how long until each of those is led elsewhere."""
    took: list[float] = []
    with running_cluster(PORT, shards=SHARDS, leader_balance_s=1.0) as cluster:
        ports = [node.port for node in cluster.nodes.values()]
        wait_for(lambda: set(_leaders(ports)) == set(cluster.nodes))
        producers = [_Producers(ports, 1, _queue_in(shard)) for shard in range(SHARDS)]
        for kill in range(SHARD_KILLS):
            time.sleep(1.0)
            victim = 1 + kill % len(cluster.nodes)
            led = [shard for shard, node_id in enumerate(_leaders(ports)) if node_id == victim]
            killed_at = time.monotonic()
            cluster.nodes[victim].kill()
            killed = time.monotonic()
            firsts = [float(wait_for(partial(producers[number].first_after, killed))) for number in led]
            took += [first - killed_at for first in firsts]
            cluster.nodes[victim].start()
            wait_for(lambda: set(_leaders(ports)) == set(cluster.nodes))
        for one in producers:
            one.end()
        lost = 0
        with Client(nodes=[("127.0.0.1", port) for port in ports], timeout=30) as client:
            for one in producers:
                seen: set[str] = set()
                while messages := client.consume_many(one.queue, 1000):
                    seen.update(message.data for message in messages)
                lost += len(set(one.acknowledged) - seen)
    took.sort()
    count = sum(len(one.acknowledged) for one in producers)
    print(f"{SHARD_KILLS} times kill -9 of one of three nodes with {SHARDS} shards under load, from the kill to the")
    print(f"next acknowledged produce in each of the {len(took)} shards that it led:")
    print(f"  median {statistics.median(took):.2f} s (wanted: 1), worst {took[-1]:.2f} s")
    print(f"  {count} acknowledged, {lost} of them lost (wanted: 0)")


def _queue_in(shard: int) -> str:
    return next(f"q{n}" for n in range(1000) if shard_of_queue(f"q{n}", SHARDS) == shard)


def _leaders(ports: list[int]) -> list[int]:
    """Who leads each shard; nothing where that can't be told."""
    try:
        with Client(nodes=[("127.0.0.1", port) for port in ports], timeout=5) as client:
            return [int(row.get("leader_node_id", 0)) for row in client.cluster()["shards"]]
    except QuorateError:
        return []


def catch_up() -> None:
    """A follower that missed records comes back."""
    with running_cluster(PORT, queue_sync_rate=10_000_000) as cluster:
        leader = cluster.leader()
        follower = next(n for n in cluster.nodes if n != leader)
        port = cluster.nodes[leader].port
        with Client("127.0.0.1", port, timeout=30) as client:
            client.produce("warm", 1)
            cluster.nodes[follower].stop()
            for _ in range(MISSED // BATCH):
                client.produce_many("missed", ["x" * 100] * BATCH, retry=60, ttl=86_400)
        end = shard(port)["committed"]
        begun = time.monotonic()
        cluster.nodes[follower].start()
        ready_s = time.monotonic() - begun
        had = shard(cluster.nodes[follower].port)["committed"]
        wait_for(lambda: shard(cluster.nodes[follower].port).get("committed", 0) >= end)
        took_s = time.monotonic() - begun
    print(
        f"a follower that missed {MISSED} records: caught up {took_s:.2f} s after its start (wanted: 5), of which "
        f"{ready_s:.2f} s until it was ready; it had {had} of {end} then, and pulled the rest"
    )


def join() -> None:
    """An empty node joins, with many messages alive, while clients go on."""
    with running_cluster(PORT, queue_log_size=200_000, queue_sync_rate=100_000) as cluster:
        leader = cluster.leader()
        port = cluster.nodes[leader].port
        with Client("127.0.0.1", port, timeout=60) as client:
            for _ in range(LIVE // BATCH):
                client.produce_many("many", ["x" * 100] * BATCH, retry=60, ttl=86_400)
            wait_for(lambda: shard(port)["first_trans_id"] > LIVE // 2)
            before = [load("quorate", port, 8, 12_000, queues=2)["p99_us"] for _ in range(ROUNDS)]
            own = {"node_id": 4, "host": "127.0.0.1", "port": PORT + 54}
            new = cluster.nodes[4] = cluster.node(4, PORT + 4, [*cluster.listed, own])
            new.start()
            begun = time.monotonic()
            client.request(15, command="add", **own)
            queue: multiprocessing.Queue[float] = multiprocessing.Queue()
            process = multiprocessing.Process(target=_measure, args=(port, queue))
            process.start()
            wait_for(lambda: voters(port) == 4 and shard(PORT + 4).get("messages", 0) >= LIVE, 180)
            took_s = time.monotonic() - begun
            process.terminate()
            process.join()
            during: list[float] = []
            while not queue.empty():
                during.append(queue.get())
    p99, p99_before = statistics.median(during), statistics.median(before)
    print(
        f"an empty node joined with {LIVE} live messages, and had them all and a vote, after {took_s:.1f} s (wanted: "
        f"60); p99 of 8 clients meanwhile {p99:.0f} us, before {p99_before:.0f} us, ratio {p99 / p99_before:.2f} "
        f"(wanted: 3), the worst of {len(during)} measurements {max(during) / p99_before:.2f}"
    )


def _measure(port: int, queue: "multiprocessing.Queue[float]") -> None:
    while True:
        queue.put(load("quorate", port, 8, 6_000, queues=2)["p99_us"])


PARTS: Final[dict[str, Callable[[], None]]] = {
    "throughput": throughput,
    "failover": failover,
    "shards": shards,
    "catch-up": catch_up,
    "join": join,
}


def profile() -> None:
    """Print where a request's time goes in each of three nodes."""
    metered.measure_cluster(PORT, 8, 24_000)
    metered.measure_cluster(PORT, 64, 48_000)
    metered.measure_cluster(PORT, 8, 24_000, through_follower=True)


def main() -> None:
    """Run what is named, or all but `compiled`."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}, or compiled")
    parser.add_argument("--profile", action="store_true", help="microseconds a request by node and stage, and no more")
    arguments = parser.parse_args()
    parts = arguments.parts
    if arguments.profile:
        profile()
        return
    for name in parts:
        if name not in PARTS and name != "compiled":
            parser.error(f"there is no part {name!r}")
    for name in parts or PARTS:
        compiled() if name == "compiled" else PARTS[name]()


if __name__ == "__main__":
    main()
