"""Another protocol beside JSON: the same work by both, in one run on one node, with the CPU that each request takes."""

import statistics
from typing import Final

from bench.load import fill, load
from bench.node import BenchNode, cpu_seconds

DATA_BYTES: Final = 100
REQUESTS: Final = {8: 6000, 64: 12_000}
"""By the connections, so many at a time: some half a second, as the machine is never the same for long."""

TURNS: Final = 4
"""So often in a round, by turns: each protocol is behind the other as often as before it."""


def cpu_s(node: BenchNode) -> float:
    """What all of a node's processes have used (s)."""
    return sum(cpu_seconds(pid) for pid in (node.supervisor_pid, *node.worker_pids))


def timed(
    node: BenchNode, protocol: str, port: int, connections: int, requests: int, batch: int = 1
) -> tuple[float, float]:
    """Messages, or requests, a second, and CPU each (us)."""
    before = cpu_s(node)
    figures = load(protocol, port, connections, requests, data_bytes=DATA_BYTES, batch=batch)
    rate = figures["mps" if batch > 1 else "rps"]
    return rate, (cpu_s(node) - before) / (requests * (batch if protocol == "addjob" else 1)) * 1e6


def work(node: BenchNode, protocol: str, ports: tuple[int, int], rounds: int, wanted: dict[int, float]) -> None:
    """Produce, consume and confirm by both; `ports`: JSON's and the other's; `wanted`: ratios by connections.

    The node's log is to keep `FULL_RECORDS`: it is filled first.
    """
    fill(ports[0])
    for connections, ratio in wanted.items():
        found: dict[str, list[tuple[float, float]]] = {"quorate": [], protocol: []}
        both = [*zip(found.items(), ports, strict=True)]
        for turn in range(rounds * TURNS):
            for (name, rows), port in both if turn % 2 == 0 else reversed(both):
                rows.append(timed(node, name, port, connections, REQUESTS[connections]))
        json, other = ([statistics.median(one) for one in zip(*rows, strict=True)] for rows in found.values())
        print(
            f"work, {connections} connections: JSON {json[0]:.0f}/s {json[1]:.1f} us, {protocol} {other[0]:.0f}/s "
            f"{other[1]:.1f} us of CPU: {other[0] / json[0]:.2f} (wanted {ratio})",
            flush=True,
        )
