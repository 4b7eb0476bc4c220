"""python -m bench.steady: requests a second and CPU a request when the log is full, beside one that is not.

A log that is full is trimmed as quickly as it grows: that is how a node runs for years, and a benchmark that ends
before says nothing of it. Nodes of the same code are loaded alternately in one run, some half a second each: one
whose log stays below its size, one whose log is full. Every other round begins with the last: what one leaves to be
done slows down the next, and the machine is never the same for long. CPU is that of all processes of a node, or of
all nodes, in microseconds a request.

`--beside FOLDER...` takes other checkouts' code into the run, compiled there. `--logs full` or `--logs not-full`
measures one condition alone. `--virtual` configures one virtual queue, as the original's own configuration does.
`--rounds N`, `--only interval-64 three-8`.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from actors.node.launch import SUPERVISOR
from bench.cluster_nodes import BenchCluster, running_cluster
from bench.load import load
from bench.node import BenchNode, running_node

PORT: Final = 11_480
FULL_RECORDS: Final = 60_000
"""What the log that is to be full keeps; the other keeps `ROOMY_RECORDS`."""

ROOMY_RECORDS: Final = 100_000_000
LOGS: Final = {"not-full": ROOMY_RECORDS, "full": FULL_RECORDS}
VIRTUAL: Final = {"virtual_queue_list": {"copied": ["one", "other"]}}
KINDS: Final = {"interval": {"flush": "interval"}, "commit": {}, "three": {}}
REQUESTS: Final = {8: 16_000, 64: 32_000}
THREE: Final = 0.4
"""So much of the requests for a cluster, whose nodes share the cores."""


@dataclass
class Contender:
    """Nodes that are measured, of which `asked` is loaded; `found` are requests/s and CPU microseconds a request."""

    name: str
    nodes: list[BenchNode]
    asked: BenchNode
    found: list[tuple[float, float]] = field(default_factory=list)

    def cpu_s(self) -> float:
        """What all its processes have used (s)."""
        return sum(node.cpu_s() for node in self.nodes)

    def load(self, connections: int, requests: int) -> tuple[float, float]:
        """Requests a second, and CPU a request (us)."""
        before = self.cpu_s()
        figures = load("quorate", self.asked.port, connections, requests)
        return figures["rps"], (self.cpu_s() - before) / requests * 1e6


def _leader_of(cluster: BenchCluster) -> BenchNode:
    return cluster.nodes[cluster.leader()]


def program_of(folder: str) -> list[str]:
    """Start the code of another checkout: its folder comes first on the path, whatever is installed."""
    return ["env", f"PYTHONPATH={folder}", sys.executable, "-P", "-m", "quorate_server", "supervisor"]


@contextlib.contextmanager
def contender(
    name: str, kind: str, port: int, records: int, program: list[str], more: Mapping[str, object] | None = None
) -> Iterator[Contender]:
    """Start nodes of a kind whose logs keep so many records; their ports begin at `port`. `more`: settings."""
    settings: dict[str, object] = {**KINDS[kind], **(more or {}), "queue_log_size": records}
    if kind == "three":
        with running_cluster(port, 3, program=list(program), **settings) as cluster:
            yield Contender(name, list(cluster.nodes.values()), _leader_of(cluster))
    else:
        with running_node(port, program=list(program), **settings) as node:
            yield Contender(name, [node], node)


def measure(kind: str, connections: int, asked: argparse.Namespace) -> None:
    """Print one row for each contender."""
    requests = int(REQUESTS[connections] * (THREE if kind == "three" else 1.0))
    rounds: int = asked.rounds
    with contextlib.ExitStack() as stack:
        programs = [("here", SUPERVISOR), *((folder, program_of(folder)) for folder in asked.beside)]
        wanted = [(f"{log}, {name}", LOGS[log], program) for log in asked.logs for name, program in programs]
        more = VIRTUAL if asked.virtual else None
        contenders = [
            stack.enter_context(contender(name, kind, PORT + 200 * index, records, program, more))
            for index, (name, records, program) in enumerate(wanted)
        ]
        for one in contenders:
            one.load(connections, FULL_RECORDS * 5 // 4)
        for number in range(rounds):
            for one in contenders if number % 2 == 0 else reversed(contenders):
                one.found.append(one.load(connections, requests))
    print(f"{kind}, {connections} connections, {requests} requests, medians of {rounds} alternating rounds:")
    base: tuple[float, float] | None = None
    for one in contenders:
        rps, cpu = (statistics.median(values) for values in zip(*one.found, strict=True))
        ratio = "" if base is None else f"   {rps / base[0]:.3f} and {cpu / base[1]:.3f} of the first"
        base = base or (rps, cpu)
        print(f"  {one.name:24} {rps:8.0f} requests/s  {cpu:6.1f} us of CPU{ratio}", flush=True)


def main() -> None:
    """Measure what is asked for."""
    names = [f"{kind}-{connections}" for kind in KINDS for connections in REQUESTS]
    parser = argparse.ArgumentParser(prog="python -m bench.steady")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--beside", nargs="*", default=[], help="other checkouts' folders")
    parser.add_argument("--logs", nargs="*", choices=list(LOGS), default=list(LOGS))
    parser.add_argument("--virtual", action="store_true", help="configure a virtual queue")
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    arguments = parser.parse_args()
    for name in arguments.only:
        kind, _, connections = name.partition("-")
        measure(kind, int(connections), arguments)


if __name__ == "__main__":
    main()
