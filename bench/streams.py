"""python -m bench.streams: topics beside queues: appends, reads, transactions, and queues beside a topic.

Appends and produces are measured alternately in one run, ROUNDS times, and the medians are compared. Reads go through
what was appended, from the disk and from memory as it lies, over one connection that looks only where to go on. A
transaction confirms a job, appends two messages and commits a group's place. Queues beside a topic: their cycle with
eight clients, while a process of its own appends 5,000 messages a second and another follows.
"""

import argparse
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from bench.load import FULL_RECORDS, fill, load
from bench.node import BenchNode, running_node
from quorate import Client

PORT: Final = 11_331
ROUNDS: Final = 5
DATA_BYTES: Final = 100
FIRST_TOPIC: Final = 200
TOPIC: Final = f"bench{FIRST_TOPIC}"
QUEUE: Final = "bench100"
FIRST_QUEUE: Final = 100
BATCH: Final = 1000
WRITER: Final = """
import time
from quorate import Client
with Client("127.0.0.1", %d) as client:
    at = time.monotonic()
    while True:
        client.append_many("bench200", ["x" * 100] * 100)
        at += 0.02
        time.sleep(max(at - time.monotonic(), 0))
"""
FOLLOWER: Final = """
from quorate import Client
with Client("127.0.0.1", %d) as client:
    for message in client.read("bench200", start="latest", follow=True, count=1000):
        pass
"""
NEXT: Final = re.compile(rb'"next":(\d+)')
BYTES: Final = re.compile(rb'"bytes":(\d+)')


def compared(
    node: BenchNode, title: str, connections: int, requests: int, batch: int, *, wanted: float, rounds: int
) -> None:
    """Print how many messages a second are appended, of those that are produced, and what each costs the node."""
    found: dict[str, list[tuple[float, float]]] = {"append": [], "produce": []}
    for _ in range(rounds):
        for protocol, figures in found.items():
            first = FIRST_TOPIC if protocol == "append" else FIRST_QUEUE
            before = node.cpu_s()
            told = load(protocol, PORT, connections, requests, data_bytes=DATA_BYTES, batch=batch, first=first)
            figures.append((told["mps"], (node.cpu_s() - before) / requests / batch * 1e6))
            if protocol == "produce":
                with Client("127.0.0.1", PORT, timeout=60) as client:
                    client.clear(QUEUE)
    medians = {name: [statistics.median(one) for one in zip(*figures, strict=True)] for name, figures in found.items()}
    shown = ", ".join(f"{name} {rate:,.0f}/s at {cpu:.1f} us of CPU" for name, (rate, cpu) in medians.items())
    print(f"{title}: {shown}, ratio {medians['append'][0] / medians['produce'][0]:.2f} (wanted: {wanted})", flush=True)


class Reader:
    """One connection, which reads a partition's messages one part after the other."""

    def __init__(self, partition: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", PORT), 20)
        self._file = self._socket.makefile("rb")
        self._partition = partition

    def parts(self, more: str) -> Iterator[tuple[int, int]]:
        """Give how many messages came, and how many bytes of replies."""
        at = 0
        while True:
            asked = f'{{"action":28,"topic":"{TOPIC}","partition":{self._partition},"offset":{at}{more}}}\n'
            self._socket.sendall(asked.encode())
            line = self._file.readline()
            found = NEXT.search(line[-200:]) or NEXT.search(line)
            assert found is not None, line[:300]
            following, size = int(found[1]), len(line)
            if "raw" in more:
                told = BYTES.search(line)
                assert told is not None
                size += len(self._file.read(int(told[1])))
            if following == at:
                break
            yield following - at, size
            at = following
        self._socket.close()


def read(node: BenchNode, title: str, partitions: int, more: str, shown: Callable[[float, float], str]) -> None:
    """Print how quickly all that there is can be read, and what a message costs the node."""
    begun, before = time.perf_counter(), node.cpu_s()
    messages = size = 0
    for partition in range(partitions):
        for count, part in Reader(partition).parts(more):
            messages += count
            size += part
    took, cpu_s = time.perf_counter() - begun, node.cpu_s() - before
    told = f"{shown(messages / took, size / took)}, {cpu_s / messages * 1e6:.1f} us of CPU a message"
    print(f"{title}: {messages:,} messages in {took:.2f} s: {told}", flush=True)


def jobs(client: Client, count: int) -> int:
    """Produce so many and take them; returns the id of the first. They are 1024 apart."""
    queue = f"{{{TOPIC}}}.jobs"
    ids = [msg_id for _ in range(count // BATCH) for msg_id in client.produce_many(queue, ["x"] * BATCH, retry=36_000)]
    assert ids == [*range(ids[0], ids[0] + 1024 * len(ids), 1024)]
    taken = 0
    while taken < count:
        taken += len(client.consume_many(queue, BATCH))
    return ids[0]


def transactions(node: BenchNode, client: Client, rounds: int) -> None:
    """Print how many are done a second, of single produces."""
    count = 16_000
    found: dict[str, list[tuple[float, float]]] = {"transact": [], "produce": []}
    for _ in range(rounds):
        first_id = jobs(client, count)
        for protocol, figures in found.items():
            first = FIRST_TOPIC if protocol == "transact" else FIRST_QUEUE
            before = node.cpu_s()
            told = load(protocol, PORT, 8, count, data_bytes=DATA_BYTES, first=first, first_id=first_id)
            figures.append((told["rps"], (node.cpu_s() - before) / count * 1e6))
        client.clear(QUEUE)
        client.remove_group(TOPIC, "g")
    medians = {name: [statistics.median(one) for one in zip(*figures, strict=True)] for name, figures in found.items()}
    shown = ", ".join(f"{name} {rate:,.0f}/s at {cpu:.1f} us of CPU" for name, (rate, cpu) in medians.items())
    ratio = medians["transact"][0] / medians["produce"][0]
    print(f"confirm, two appends and a commit, 8 connections: {shown}, ratio {ratio:.2f} (wanted: 0.5)", flush=True)


def beside_a_topic(rounds: int) -> None:
    """Print what a queue's cycle takes while a topic is written and read, of what it takes alone."""
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(rounds):
        alone.append(load("quorate", PORT, 8, 24_000, first=FIRST_QUEUE)["rps"])
        busy = [subprocess.Popen([sys.executable, "-c", program % PORT]) for program in (WRITER, FOLLOWER)]
        time.sleep(2)
        beside.append(load("quorate", PORT, 8, 24_000, first=FIRST_QUEUE)["rps"])
        for process in busy:
            process.kill()
            process.wait()
    one, other = statistics.median(alone), statistics.median(beside)
    print(f"queues' cycle, 8 connections: {one:,.0f}/s alone, {other:,.0f} beside 5,000 messages/s that are followed: "
          f"ratio {other / one:.2f} (wanted: 0.8)", flush=True)  # fmt: skip


def main(rounds: int) -> None:
    """All of it, on one node whose log is full."""
    with running_node(PORT, queue_log_size=FULL_RECORDS) as node, Client("127.0.0.1", PORT, timeout=60) as client:
        fill(PORT)
        client.create_topic(TOPIC, partitions=8)
        compared(node, "one at a time, 64 connections", 64, 64_000, 1, wanted=0.95, rounds=rounds)
        compared(node, "batches of 100, 8 connections", 8, 4_000, 100, wanted=1.2, rounds=rounds)
        time.sleep(1)
        as_json = ',"count":1000'
        read(node, "read as JSON", 8, as_json, lambda messages, size: f"{messages:,.0f} messages/s (wanted: 100,000)")
        read(node, "read raw", 8, ',"raw":true', lambda messages, size: f"{size / 1e6:,.0f} MB/s (wanted: 300)")
        transactions(node, client, rounds)
        beside_a_topic(rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    main(parser.parse_args().rounds)
