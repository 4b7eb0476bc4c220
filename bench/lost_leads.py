"""python -m bench.lost_leads: what a lost lead costs, with many live messages: memory, and how long nobody serves.

Three nodes under load. The leader's worker is stopped (SIGSTOP) until another leads and serves, and goes on then: what
it had applied and nobody committed is dropped. Memory is that of the workers, highest against before the first.
"""

import argparse
import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.cluster_nodes import BenchCluster, running_cluster, shard, wait_for
from quorate import Client, QuorateError

PORT = 11_411
BATCH = 1000


@contextmanager
def loaded(cluster: BenchCluster, clients: int = 6) -> Iterator[list[int]]:
    """Clients that produce and consume meanwhile; how many requests were done, and how many failed."""
    done, is_over = [0, 0], threading.Event()
    nodes = [("127.0.0.1", node.port) for node in cluster.nodes.values()]

    def work(number: int) -> None:
        with Client(nodes=nodes, timeout=20) as client:
            while not is_over.is_set():
                try:
                    client.produce(f"work{number}", "x" * 100, retry=60)
                    message = client.consume(f"work{number}")
                    if message is not None:
                        client.confirm(message)
                    done[0] += 3
                except QuorateError:
                    done[1] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def memory(cluster: BenchCluster) -> dict[int, float]:
    """What each node's worker has of its own (MiB).

    Without LMDB's pages: they are the file's, which the system takes back when it wants to.
    """
    status = {n: Path(f"/proc/{node.worker_pids[0]}/status").read_text() for n, node in cluster.nodes.items()}
    return {n: int(text.split("RssAnon:")[1].split()[0]) / 1024 for n, text in status.items()}


def takes_part(port: int) -> bool:
    """Whether the node leads or follows."""
    return shard(port).get("role") in ("leader", "follower")


def lose_the_lead(cluster: BenchCluster) -> tuple[int, float]:
    """Once; which node lost it, and for how long nobody led (s)."""
    lost = cluster.leader()
    pid = cluster.nodes[lost].worker_pids[0]
    others = [node.port for n, node in cluster.nodes.items() if n != lost]
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    try:
        wait_for(lambda: any(shard(port).get("role") == "leader" for port in others))
        gap_s = time.monotonic() - begun
        time.sleep(0.3)
    finally:
        os.kill(pid, signal.SIGCONT)

    def is_level() -> bool:
        rows = [shard(node.port) for node in cluster.nodes.values()]
        return all(rows) and max(row["committed"] for row in rows) - min(row["committed"] for row in rows) < 5000

    wait_for(is_level)
    return lost, gap_s


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.lost_leads")
    parser.add_argument("--leads", type=int, default=50, help="how many are lost")
    parser.add_argument("--messages", type=int, default=1_000_000, help="that live all the while")
    arguments = parser.parse_args()
    with running_cluster(PORT) as cluster:
        with Client("127.0.0.1", cluster.nodes[cluster.leader()].port, timeout=60) as client:
            for _ in range(arguments.messages // BATCH):
                client.produce_many("stock", ["x" * 100] * BATCH, retry=60, ttl=86_400)
        time.sleep(3)
        grown = memory(cluster)
        for number in sorted(cluster.nodes, key=lambda n: n == cluster.leader()):  # as after any restart
            cluster.nodes[number].stop()
            cluster.nodes[number].start()
            wait_for(partial(takes_part, cluster.nodes[number].port))
        with loaded(cluster) as done:
            time.sleep(5)
            before = memory(cluster)
            print(f"{arguments.messages} live messages; MiB as they came {told(grown)}; after a restart {told(before)}")
            highest, gaps = dict(before), []
            for turn in range(1, arguments.leads + 1):
                lost, gap_s = lose_the_lead(cluster)
                gaps.append(gap_s)
                time.sleep(2)
                now = memory(cluster)
                highest = {n: max(highest[n], now[n]) for n in now}
                if turn in (1, 2, 5) or turn % 10 == 0:
                    print(
                        f"{turn} lost, the last by node {lost}: MiB {told(now)}; {done[0]} requests, {done[1]} failed"
                    )
        worst = max(highest[n] / max(before[n], 1) for n in before)
        print(f"memory, highest against before: {worst:.2f} (wanted: 1.1); at the end {told(now)}")
        print(f"nobody led for {statistics.median(gaps):.2f} s, at most {max(gaps):.2f} s; {done[1]} requests failed")


def told(memory_of: dict[int, float]) -> str:
    """In short."""
    return " ".join(f"{n}: {one:.0f}" for n, one in memory_of.items())


if __name__ == "__main__":
    main()
