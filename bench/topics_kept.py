"""python -m bench.topics_kept: what two million messages of 1 KiB cost that stay in a topic, and their removal.

Told are the anonymous memory of the node's processes before and behind them, a restart, reads from anywhere, and how
long produces take before and while all of it is removed at once. Takes some 5 GB of disk.
"""

import argparse
import os
import random
import statistics
import threading
import time
from pathlib import Path

from bench.node import BenchNode, running_node
from quorate import Client

PORT = 11_341
PARTITIONS = 8
BATCH = 1000
READS = 400
GONE_S = 60.0
"""By then the room of what was removed is to be used again."""

MIB = 1 << 20


def anonymous_mib(node: BenchNode) -> float:
    """What all of its processes have in memory of their own."""
    total = 0
    for pid in (node.supervisor_pid, *node.worker_pids):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:"))
    return total / 1024


def restarted_s(node: BenchNode) -> float:
    """Kill it, and start it again."""
    node.kill()
    begun = time.monotonic()
    node.start()
    return time.monotonic() - begun


def produces_ms(client: Client, until: threading.Event | float) -> list[float]:
    """Produce one message after the other, and take it again; how long each took (ms)."""
    took: list[float] = []
    while not (until.is_set() if isinstance(until, threading.Event) else time.monotonic() > until):
        begun = time.perf_counter()
        client.produce("q", "x")
        took.append((time.perf_counter() - begun) * 1e3)
        if not len(took) % 500:
            client.clear("q")
        time.sleep(0.002)
    return took


def p99(took: list[float]) -> float:
    """Of all that were measured."""
    return sorted(took)[len(took) * 99 // 100]


def main(messages: int) -> None:
    """All of it."""
    with running_node(PORT, queue_log_bytes=256 << 20) as node, Client("127.0.0.1", PORT, timeout=60) as client:
        client.create_topic("t", partitions=PARTITIONS, keep_s=0, keep_bytes=0)
        data = [os.urandom(512).hex() for _ in range(BATCH)]
        client.append_many("t", data, partition=0)
        bare_s = statistics.median([restarted_s(node) for _ in range(3)])
        time.sleep(2)
        before = anonymous_mib(node)
        begun = time.monotonic()
        for at in range(messages // BATCH):
            client.append_many("t", data, partition=at % PARTITIONS)
        took = time.monotonic() - begun
        print(f"{messages:,} messages of 1 KiB appended in {took:.0f} s: {messages / took:,.0f}/s", flush=True)
        time.sleep(15)
        grown = anonymous_mib(node) - before
        full_s = statistics.median([restarted_s(node) for _ in range(3)])
        time.sleep(2)
        again = anonymous_mib(node) - before
        print(f"anonymous memory: {grown:+.0f} MiB, behind a restart {again:+.0f} (wanted: +80)")
        print(f"restart: {full_s:.2f} s, {bare_s:.2f} with nothing (wanted: 1 s more)", flush=True)
        ends = {row.partition: row.next for row in client.topic("t").partitions}
        waited: list[float] = []
        for _ in range(READS):
            partition = random.randrange(PARTITIONS)
            at = random.randrange(ends[partition])
            begun = time.perf_counter()
            assert client.read_part("t", partition, at, count=1).messages[0].offset == at
            waited.append((time.perf_counter() - begun) * 1e3)
        print(f"read from anywhere: {statistics.median(waited):.2f} ms, p99 {p99(waited):.1f} (wanted: 5)", flush=True)
        calm = produces_ms(client, time.monotonic() + 15)
        over = threading.Event()
        meanwhile: list[float] = []

        def produce() -> None:
            with Client("127.0.0.1", PORT, timeout=60) as other:
                meanwhile.extend(produces_ms(other, over))

        thread = threading.Thread(target=produce)
        thread.start()
        begun = time.monotonic()
        client.remove_topic("t")
        answered_s = time.monotonic() - begun
        [file] = (node.folder / "data").rglob("data.mdb")
        held = file.stat().st_size
        time.sleep(max(begun + GONE_S - time.monotonic(), 0))
        over.set()
        thread.join()
        ratio = p99(meanwhile) / p99(calm)
        print(
            f"removed at once: answered in {answered_s:.2f} s; p99 of produces {p99(meanwhile):.2f} ms then, "
            f"{p99(calm):.2f} before: {ratio:.2f} times (wanted: 1.5)"
        )
        client.create_topic("again", partitions=1)
        for _ in range(messages // BATCH // 4):
            client.append_many("again", data, partition=0)
        time.sleep(5)
        more, mib = (file.stat().st_size - held) / MIB, held / MIB
        print(f"a quarter as many appended then: the file has {more:+,.0f} MiB, of {mib:,.0f}: its room is used again")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    main(parser.parse_args().messages)
