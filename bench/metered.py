"""A node whose worker measures how long each actor's turns take: where its time goes, compiled code or not.

`measure` runs one under load and prints microseconds a request by stage. It is the real node, but for a runtime that
looks at the thread's clock before and after each turn, which costs some 0.3 us a turn. CPU time alone: the loop's
waiting for the disk is not in it.
"""

import asyncio
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from actors.node import supervisor, worker
from actors.runtime.asyncio_runtime import AsyncioRuntime, Collector
from actors.runtime.contract import Turn
from bench.cluster_nodes import running_cluster
from bench.load import load
from bench.node import BenchNode, running_node

PROGRAM: Final = [sys.executable, "-m", "bench.metered"]
VARIABLE: Final = "BENCH_METER"
TOLD_EACH_S: Final = 0.2

IN_ALL: Final = "in all"
IN_KERNEL: Final = "of it in the kernel"

STAGES: Final = {
    "Listener": "Listener: hand over what was read; encode replies, and give them to the sockets",
    "Router": "Router",
    "QueueOwner": "QueueOwner: decide, apply, make entries, free replies",
    "Replicator": "Replicator: the log, the journal, and writes by the loop",
    "Links": "Links: encode and seal what goes to other nodes",
    "Elector": "Elector",
}


class MeteredRuntime(AsyncioRuntime):
    """Adds up the loop's time by who had the turn, and writes it to the file that BENCH_METER names."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[object, BaseException], None],
        watchdog_s: float = 0.0,
        collector: Collector | None = None,
    ) -> None:
        super().__init__(loop, on_failure, watchdog_s, collector)
        self.seconds: dict[str, float] = defaultdict(float)
        self._told = Path(f"{os.environ[VARIABLE]}-{os.getpid()}")
        loop.call_later(TOLD_EACH_S, self._tell)

    def _take(self, turn: Turn) -> None:
        begun = time.thread_time()
        super()._take(turn)
        self.seconds[type(turn).__name__] += time.thread_time() - begun

    def _tell(self) -> None:
        used, process = resource.getrusage(resource.RUSAGE_THREAD), resource.getrusage(resource.RUSAGE_SELF)
        told = {
            "seconds": dict(self.seconds),
            "loop": used.ru_utime + used.ru_stime,
            "all": process.ru_utime + process.ru_stime,
            "kernel": process.ru_stime,
        }
        unfinished = self._told.with_suffix(".new")
        unfinished.write_text(json.dumps(told))
        unfinished.rename(self._told)
        self._loop.call_later(TOLD_EACH_S, self._tell)


Told = dict[str, dict[str, float] | float]
"""What one worker has told: seconds by actor's class, and of its loop, all its threads, and the kernel."""


@contextlib.contextmanager
def _meter() -> Iterator[Callable[[BenchNode], Told]]:
    """Nodes that are started within tell what they use; asked for what one has told last."""
    with tempfile.TemporaryDirectory(prefix="quorate-meter-") as folder:
        os.environ[VARIABLE] = str(Path(folder) / "told")

        def told(node: BenchNode) -> Told:
            found: Told = json.loads(Path(f"{os.environ[VARIABLE]}-{node.worker_pids[0]}").read_text())
            return found

        yield told


def _rows(before: Told, after: Told, requests: int) -> dict[str, float]:
    """Microseconds a request by stage; the last two are `IN_ALL` and `IN_KERNEL`."""
    us = 1e6 / requests

    def passed(what: str) -> float:
        one, other = before[what], after[what]
        assert isinstance(one, float)
        assert isinstance(other, float)
        return (other - one) * us

    one, other = before["seconds"], after["seconds"]
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    turns = {name: (seconds - one.get(name, 0.0)) * us for name, seconds in other.items()}
    rows = {stage: turns.pop(name, 0.0) for name, stage in STAGES.items()}
    rows["other actors"] = sum(turns.values())
    outside = passed("loop") - sum(rows.values())
    return {
        "sockets, decoding, timers": outside,
        **rows,
        "other threads: disk lanes, LMDB": passed("all") - passed("loop"),
        IN_ALL: passed("all"),
        IN_KERNEL: passed("kernel"),
    }


def measure(port: int, connections: int, requests: int, **settings: object) -> None:
    """Print where a request's time goes in a node with these settings, under load."""
    with _meter() as told, running_node(port, program=PROGRAM, **settings) as node:
        figures, [rows] = _loaded(told, [node], node, connections, requests)
    print(f"{connections} connections, {figures['rps']:.0f} requests/s; microseconds of the worker a request:")
    for stage, spent in rows.items():
        print(f"  {spent:6.1f}  {stage}")


def measure_cluster(port: int, connections: int, requests: int, *, through_follower: bool = False) -> None:
    """Print where a request's time goes in each of three nodes, under load of the leader, or of a follower."""
    with _meter() as told, running_cluster(port, 3, program=PROGRAM) as cluster:
        leader = cluster.nodes[cluster.leader()]
        followers = [node for node in cluster.nodes.values() if node is not leader]
        nodes = [followers[0], leader, followers[1]] if through_follower else [leader, *followers]
        figures, columns = _loaded(told, nodes, nodes[0], connections, requests)
    where = "through a follower" if through_follower else "to the leader"
    print(f"three nodes, {connections} connections {where}, {figures['rps']:.0f} requests/s; microseconds a request:")
    names = ("asked", "leader", "third") if through_follower else ("leader", "follower", "follower")
    print("  " + "".join(f"{name:>9}" for name in names))
    for stage in columns[0]:
        print("  " + "".join(f"{rows[stage]:9.1f}" for rows in columns) + f"  {stage}")
    print(f"  {sum(rows[IN_ALL] for rows in columns):9.1f}  of all nodes together")


def _loaded(
    told: Callable[[BenchNode], Told], nodes: list[BenchNode], asked: BenchNode, connections: int, requests: int
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """The load's figures, and the rows of each node."""
    load("quorate", asked.port, connections, requests // 4)
    time.sleep(3 * TOLD_EACH_S)
    before = [told(node) for node in nodes]
    figures = load("quorate", asked.port, connections, requests)
    time.sleep(3 * TOLD_EACH_S)
    return figures, [_rows(one, told(node), requests) for one, node in zip(before, nodes, strict=True)]


if __name__ == "__main__":
    setattr(worker, "AsyncioRuntime", MeteredRuntime)  # noqa: B010
    supervisor.main()
