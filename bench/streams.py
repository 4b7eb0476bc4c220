"""python -m bench.streams: topics beside queues: appends of produces, and reads a second.

Appends and produces are measured alternately in one run, ROUNDS times, and the medians are compared. Reads go through
what was appended, from the disk and from memory as it lies, over one connection that looks only where to go on.
"""

import argparse
import re
import socket
import statistics
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    main(parser.parse_args().rounds)
