"""python -m bench.shards: what several shards of one node bring and cost. Takes some three minutes.

Nodes run with flush = interval. CPU time is that of the node's workers, without the load generator. Rounds alternate.
"""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench.load import load
from bench.node import BenchNode, cpu_seconds, resident_bytes, running_node
from quorate import Client, QuorateError
from quorate.shards import shard_of_queue

PORT: Final = 11_460
ROUNDS: Final = 5
REQUESTS: Final = 60_000
WAITING: Final = 1000
SOME: Final = 4


def _workers(node: BenchNode) -> list[int]:
    said = subprocess.run(["pgrep", "-P", str(node.supervisor_pid)], capture_output=True, text=True, check=True)
    return [int(pid) for pid in said.stdout.split()]


def _cpu_s(node: BenchNode) -> float:
    return sum(map(cpu_seconds, _workers(node)))


def _queues_in(shard: int) -> int:
    """The first number of `SOME` queues of the load generator's in a row that are in that shard of two."""
    return next(n for n in range(1000) if all(shard_of_queue(f"bench{n + step}", 2) == shard for step in range(SOME)))


def _anywhere(port: int, connections: int) -> float:
    """Requests a second, of clients that ask any worker for queues of all shards."""
    return load("quorate", port, connections, REQUESTS, queues=2 * SOME)["rps"]


class _Both:
    """Two load generators at once, each on one shard's own port: what clients do that know the map."""

    def __init__(self, port: int) -> None:
        with Client(port=port) as client:
            self._ports = {row["shard"]: row["port"] for row in client.request(8)["shards"]}

    def run(self, connections: int, requests: int) -> float:
        """Requests a second, of both together."""
        rates: dict[int, float] = {}

        def one(shard: int) -> None:
            first, port = _queues_in(shard), self._ports[shard]
            found = load("quorate", port, connections // 2, requests // 2, queues=SOME, first=first)
            rates[shard] = found["rps"]

        threads = [threading.Thread(target=one, args=(shard,)) for shard in self._ports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(rates.values())


def throughput() -> None:
    """One shard against two, for clients that know the map and for those that know nothing."""
    with ExitStack() as stack:
        one = stack.enter_context(running_node(PORT, flush="interval"))
        two = stack.enter_context(running_node(PORT + 1, flush="interval", shards=2))
        both = _Both(PORT + 1)
        for connections in (8, 64):
            kinds: dict[str, tuple[BenchNode, Callable[[], float]]] = {
                "1 shard": (one, partial(_anywhere, PORT, connections)),
                "2 shards, known": (two, partial(both.run, connections, REQUESTS)),
                "2 shards, unknown": (two, partial(_anywhere, PORT + 1, connections)),
            }
            rates: dict[str, list[float]] = {name: [] for name in kinds}
            cpu: dict[str, list[float]] = {name: [] for name in kinds}
            for _ in range(ROUNDS):
                for name, (node, run) in kinds.items():
                    before = _cpu_s(node)
                    rates[name].append(run())
                    cpu[name].append((_cpu_s(node) - before) / REQUESTS * 1e6)
            base, base_cpu = statistics.median(rates["1 shard"]), statistics.median(cpu["1 shard"])
            for name in kinds:
                rate, us = statistics.median(rates[name]), statistics.median(cpu[name])
                print(f"{connections} connections, {name}: {rate:,.0f} requests/s ({rate / base:.2f}), "
                      f"{us:.1f} us of CPU a request ({us / base_cpu:.2f})", flush=True)  # fmt: skip


def waiting() -> None:
    """Consumers that wait for 4 queues of 2 shards: how soon one of them has a message, and what they cost."""
    with running_node(PORT + 2, shards=2) as node:
        queues = [f"bench{_queues_in(shard) + step}" for shard in range(2) for step in (0, 1)]
        clients = [Client(port=PORT + 2, timeout=30) for _ in range(WAITING)]
        woken: list[float] = []
        produced: dict[int, float] = {}

        def consume(client: Client) -> None:
            message = client.consume(queues, wait=60)
            if message is not None:
                woken.append(time.perf_counter() - produced[int(message.data)])

        threading.stack_size(256 << 10)
        threads = [threading.Thread(target=consume, args=(client,), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(3.0)
        cpu, begun = _cpu_s(node), time.monotonic()
        time.sleep(5.0)
        idle = (_cpu_s(node) - cpu) / (time.monotonic() - begun)
        with Client(port=PORT + 2) as client:
            for number in range(100):
                produced[number] = time.perf_counter()
                client.produce(queues[number % 4], number, retry=60)
                time.sleep(0.02)
        time.sleep(0.5)
        woken.sort()
        print(f"{WAITING} consumers of 4 queues in 2 shards: {idle:.2%} of a core while nothing comes (wanted: 1 %); "
              f"{len(woken)} of 100 served, woken after {statistics.median(woken) * 1000:.1f} ms, p99 "
              f"{woken[-2] * 1000:.1f} ms, this process's threads included (wanted: 5 ms)", flush=True)  # fmt: skip


def idle() -> None:
    """Eight shards with nothing to do."""
    with running_node(PORT + 3, shards=8) as node:
        time.sleep(3.0)
        before, begun = _cpu_s(node), time.monotonic()
        time.sleep(10.0)
        used = (_cpu_s(node) - before) / (time.monotonic() - begun)
        total = sum(resident_bytes(pid) for pid in [node.supervisor_pid, *_workers(node)])
        own = sum(_own_bytes(pid) for pid in [node.supervisor_pid, *_workers(node)])
        print(f"8 shards, idle: {total / 1e6:.0f} MB resident, {own / 1e6:.0f} MB with shared pages counted once "
              f"(wanted: 350), {used:.2%} of a core (wanted: 2 %)", flush=True)  # fmt: skip


def _own_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def killed() -> None:
    """One worker of two is killed, with 100,000 live messages in its shard."""
    with running_node(PORT + 4, shards=2), Client(port=PORT + 4, timeout=30) as client:
        queues = [f"bench{_queues_in(shard)}" for shard in range(2)]
        for _ in range(100):
            client.produce_many(queues[1], ["x" * 100] * 1000, retry=3600)
        ports = {row["shard"]: row["port"] for row in client.request(8)["shards"]}
        failures: list[str] = []
        done = [0]
        stop = threading.Event()

        def others() -> None:
            with Client(port=ports[0]) as other:
                while not stop.is_set():
                    try:
                        other.produce(queues[0], "x")
                        done[0] += 1
                    except QuorateError as error:
                        failures.append(str(error))

        thread = threading.Thread(target=others)
        thread.start()
        time.sleep(0.5)
        os.kill(client.status()["shards"][1]["pid"], signal.SIGKILL)
        begun = time.monotonic()
        while True:
            try:
                if client.monitor(queues[1])["size"] == 100_000:
                    break
            except QuorateError:
                pass
        took_s = time.monotonic() - begun
        stop.set()
        thread.join()
        print(f"a worker with 100,000 messages killed: it serves again after {took_s:.1f} s (wanted: 3); the other "
              f"shard did {done[0]} requests meanwhile, {len(failures)} failed (wanted: 0)", flush=True)  # fmt: skip


PARTS: Final = (throughput, waiting, idle, killed)


def main() -> int:
    """Run the parts that are named, or all."""
    named = sys.argv[1:] or [part.__name__ for part in PARTS]
    for part in PARTS:
        if part.__name__ in named:
            part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
