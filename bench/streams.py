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

from bench.load import load
from bench.node import running_node
from quorate import Client

PORT: Final = 11_331
ROUNDS: Final = 5
DATA_BYTES: Final = 100
TOPIC: Final = "bench0"
QUEUE: Final = "bench100"
FIRST_QUEUE: Final = 100
NEXT: Final = re.compile(rb'"next":(\d+)')
BYTES: Final = re.compile(rb'"bytes":(\d+)')


def compared(title: str, connections: int, requests: int, batch: int, wanted: float, rounds: int) -> None:
    """Print how many messages a second are appended, of those that are produced."""
    found: dict[str, list[float]] = {"append": [], "produce": []}
    for _ in range(rounds):
        for protocol, figures in found.items():
            first = 0 if protocol == "append" else FIRST_QUEUE
            told = load(protocol, PORT, connections, requests, data_bytes=DATA_BYTES, batch=batch, first=first)
            figures.append(told["mps"])
            if protocol == "produce":
                with Client("127.0.0.1", PORT, timeout=60) as client:
                    client.clear(QUEUE)
    append, produce = (statistics.median(figures) for figures in found.values())
    print(f"{title}: append {append:,.0f}/s, produce {produce:,.0f}/s, ratio {append / produce:.2f} (wanted: {wanted})")


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


def read(title: str, partitions: int, more: str, shown: Callable[[float, float], str]) -> None:
    """Print how quickly all that there is can be read."""
    begun = time.perf_counter()
    messages = size = 0
    for partition in range(partitions):
        for count, part in Reader(partition).parts(more):
            messages += count
            size += part
    took = time.perf_counter() - begun
    print(f"{title}: {messages:,} messages in {took:.2f} s: {shown(messages / took, size / took)}")


def main(rounds: int) -> None:
    """All of it, on one node."""
    with running_node(PORT), Client("127.0.0.1", PORT, timeout=60) as client:
        client.create_topic(TOPIC, partitions=8)
        compared("one at a time, 64 connections", 64, 64_000, 1, 0.95, rounds)
        compared("batches of 100, 8 connections", 8, 4_000, 100, 1.2, rounds)
        time.sleep(1)
        read("read as JSON", 8, ',"count":1000', lambda messages, size: f"{messages:,.0f} messages/s (wanted: 100,000)")
        read("read raw", 8, ',"raw":true', lambda messages, size: f"{size / 1e6:,.0f} MB/s (wanted: 300)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    main(parser.parse_args().rounds)
