"""python -m bench.library: the library beside the C load generator, on one fsynced node with a full log, alternately.

What each does is produce, consume and confirm, over and over. `sync`: one connection, as one thread of an application
has, and beside it what a bare socket in Python does; `async`: one process with so many requests in flight; `worker`: a
`Worker` with so many hands, messages that were produced before. CPU is the client's own, microseconds a request.
`imports`: what an interpreter takes to read it (ms), and what that brings beside the standard library.

`--rounds N`, `--only sync async worker imports`.
"""

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import uvloop

from bench.load import FULL_RECORDS, fill, load
from bench.node import running_node
from quorate import AsyncClient, Client, Worker

Measure = Callable[[int], tuple[float, float]]

PORT: Final = 11_560
SYNC: Final = 9_000
ASYNC: Final = 60_000
IN_FLIGHT: Final = 64
TASKS: Final = 20_000
OWN: Final = (
    "import sys, time; begun = time.perf_counter(); {code}; took = time.perf_counter() - begun;"
    "own = {{name.partition('.')[0] for name in sys.modules}} - set(sys.stdlib_module_names);"
    "print(took * 1e3, *sorted(name for name in own if not name.startswith('_')))"
)


def sync_rate(port: int) -> tuple[float, float]:
    """Requests/s and CPU a request (us), by one thread."""
    with Client("127.0.0.1", port) as client:
        client.produce("warm", 1)
        cpu, begun = time.process_time(), time.perf_counter()
        for n in range(SYNC // 3):
            client.produce("sync", n)
            message = client.consume("sync")
            assert message is not None
            client.confirm(message)
        return SYNC / (time.perf_counter() - begun), (time.process_time() - cpu) / SYNC * 1e6


def bare_rate(port: int) -> tuple[float, float]:
    """The same by a socket and msgspec, and nothing else: what there is to be had in Python."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask(**fields: object) -> Any:
            sock.sendall(msgspec.json.encode(fields) + b"\n")
            return msgspec.json.decode(sock.recv(65536))

        cpu, begun = time.process_time(), time.perf_counter()
        for n in range(SYNC // 3):
            ask(action=1, queue="bare", data=n, retry=60.0)
            ask(action=3, msg_id=ask(action=2, queue="bare")["msg_id"])
        return SYNC / (time.perf_counter() - begun), (time.process_time() - cpu) / SYNC * 1e6


async def async_rate(port: int) -> tuple[float, float]:
    """Requests/s and CPU a request (us), with so many in flight."""
    async with AsyncClient("127.0.0.1", port, max_in_flight=IN_FLIGHT) as client:
        await client.produce("warm", 1)

        async def work() -> None:
            for n in range(ASYNC // 3 // IN_FLIGHT):
                await client.produce("async", n)
                message = await client.consume("async")
                if message is not None:
                    await client.confirm(message)

        cpu, begun = time.process_time(), time.perf_counter()
        await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
        return ASYNC / (time.perf_counter() - begun), (time.process_time() - cpu) / ASYNC * 1e6


def worker_rate(port: int) -> tuple[float, float]:
    """Tasks/s and CPU a task (us)."""
    with Client("127.0.0.1", port) as client:
        for _ in range(TASKS // 1000):
            client.produce_many("tasks", list(range(1000)))
        done = 0
        lock = threading.Lock()

        def handle(message: object) -> None:
            nonlocal done
            with lock:
                done += 1
                if done == TASKS:
                    worker.stop()

        worker = Worker(client, "tasks", handle, concurrency=IN_FLIGHT)
        cpu, begun = time.process_time(), time.perf_counter()
        worker.run()
        return TASKS / (time.perf_counter() - begun), (time.process_time() - cpu) / TASKS * 1e6


def c_rate(port: int, connections: int, requests: int) -> tuple[float, float]:
    """Requests/s of the C load generator."""
    return load("quorate", port, connections, requests)["rps"], 0.0


def on_uvloop(port: int) -> tuple[float, float]:
    """As `async_rate`, on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(async_rate(port))


def report(title: str, port: int, rounds: int, measured: dict[str, Measure]) -> None:
    """Each in turn, as often as asked; medians, and what part of the first's they are."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, measure in measured.items():
            found[name].append(measure(port))
    first = statistics.median(rate for rate, _ in next(iter(found.values())))
    for name, figures in found.items():
        rate = statistics.median(rate for rate, _ in figures)
        cpu = statistics.median(cpu for _, cpu in figures)
        print(f"{title:8} {name:28} {rate:10,.0f}/s  {rate / first:5.2f}  client's CPU {cpu:6.1f} us", flush=True)


def imports() -> None:
    """What reading it takes."""
    for code in (
        "import quorate",
        "from quorate import AsyncClient, Worker",
        "import asyncio, logging, ssl, msgspec.json",
    ):
        printed = [
            subprocess.run([sys.executable, "-c", OWN.format(code=code)], capture_output=True, text=True, check=True)
            for _ in range(7)
        ]
        words = printed[0].stdout.split()[1:]
        took = statistics.median(float(one.stdout.split()[0]) for one in printed)
        print(f"imports  {code:45} {took:6.1f} ms  {' '.join(words)}")


def main() -> None:
    """As said above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=["sync", "async", "worker", "imports"])
    asked = parser.parse_args()
    with running_node(PORT, queue_log_size=FULL_RECORDS) as node:
        fill(node.port)
        if "sync" in asked.only:
            one: dict[str, Measure] = {
                "C, one connection": lambda port: c_rate(port, 1, SYNC),
                "Client": sync_rate,
                "a bare socket": bare_rate,
            }
            report("sync", node.port, asked.rounds, one)
        if "async" in asked.only:
            many: dict[str, Measure] = {
                "C, 64 connections": lambda port: c_rate(port, IN_FLIGHT, ASYNC),
                "AsyncClient, asyncio": lambda port: asyncio.run(async_rate(port)),
                "AsyncClient, uvloop": on_uvloop,
            }
            report("async", node.port, asked.rounds, many)
        if "worker" in asked.only:
            report("worker", node.port, asked.rounds, {"Worker, 64 hands": worker_rate})
    if "imports" in asked.only:
        imports()


if __name__ == "__main__":
    main()
