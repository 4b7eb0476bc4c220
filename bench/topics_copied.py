"""python -m bench.topics_copied: a follower comes back, and a topic has got 2 GB that it has to copy.

Three nodes. One is down until the log's head is far beyond it, by what queues do first, and by what a topic gets then.
Told is when it has the queues that the leader had (it follows and votes from then on), when it has all blocks, and how
long produces took the leader meanwhile. Takes some 9 GB of disk.
"""

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.cluster_nodes import BenchCluster, running_cluster, shard, wait_for
from bench.topics_kept import p99, produces_ms
from quorate import Client

PORT = 11_351
BATCH = 1000
PARTITIONS = 8
SETTLED_S = 10.0
LIVE = 50_000
"""So many messages of a queue are there beside."""


def comes_back(cluster: BenchCluster, what: str, fill: Callable[[], None]) -> None:
    """Have a follower go, and come back behind what is done meanwhile."""
    leader = cluster.leader()
    number = next(n for n in cluster.nodes if n != leader)
    node, leading = cluster.nodes[number], cluster.nodes[leader]
    with Client("127.0.0.1", leading.port, timeout=30) as client:
        calm = produces_ms(client, time.monotonic() + 10)
        node.kill()
        fill()
        at = shard(leading.port)["trans_id"]
        over = threading.Event()
        meanwhile: list[float] = []

        def produce() -> None:
            with Client("127.0.0.1", leading.port, timeout=30) as other:
                meanwhile.extend(produces_ms(other, over))

        thread = threading.Thread(target=produce)
        thread.start()
        begun = time.monotonic()
        node.start()
        wait_for(lambda: shard(node.port).get("committed", 0) >= at, 600)
        follows_s = time.monotonic() - begun
        data = node.folder / "data"
        wait_for(lambda: settled(data), 600)
        whole_s = time.monotonic() - begun - SETTLED_S
        over.set()
        thread.join()
    size = blocks_in(data) / 2048
    print(
        f"{what}: it has the queues after {follows_s:.2f} s, and all of {size:,.0f} MiB after {whole_s:.0f}; "
        f"produces' p99 at the leader {p99(meanwhile):.2f} ms then, {p99(calm):.2f} before: "
        f"{p99(meanwhile) / p99(calm):.2f} times (wanted: 1.5)",
        flush=True,
    )


def settled(data: Path) -> bool:
    """Whether the folder has not grown for ten seconds."""
    before = blocks_in(data)
    time.sleep(SETTLED_S)
    return blocks_in(data) == before


def blocks_in(data: Path) -> int:
    """Count what its LMDB files take on disk, in 512 bytes."""
    return sum(file.stat().st_blocks for file in data.rglob("data.mdb"))


def main(messages: int) -> None:
    """Both."""
    with running_cluster(PORT, queue_log_bytes=128 << 20, queue_log_size=50_000) as cluster:
        nodes = [("127.0.0.1", node.port) for node in cluster.nodes.values()]
        with Client(nodes=nodes, timeout=60) as client:
            for _ in range(LIVE // BATCH):
                client.produce_many("live", ["x" * 100] * BATCH)

            def work() -> None:
                for _ in range(2 * LIVE // BATCH):
                    client.produce_many("gone", ["x" * 100] * BATCH)
                    client.clear("gone")

            def append() -> None:
                begun = time.monotonic()
                for at in range(messages // BATCH):
                    client.append_many("t", ["x" * 1000] * BATCH, partition=at % PARTITIONS)
                print(f"{messages:,} messages of 1 KiB in {time.monotonic() - begun:.0f} s", flush=True)

            comes_back(cluster, "no topic", work)
            client.create_topic("t", partitions=PARTITIONS, keep_s=0, keep_bytes=0)
            comes_back(cluster, "a topic beside", append)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    main(parser.parse_args().messages)
