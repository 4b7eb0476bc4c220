"""python -m bench.disque: Disque's protocol beside JSON, in one run, on nodes whose logs are full.

ADDJOB, GETJOB and ACKJOB of 100 bytes beside produce, consume and confirm, fsynced, with 8 and 64 connections; 16
ADDJOBs pipelined beside one at a time; what a million jobs take in memory, and until they are there again, beside as
many JSON messages; how long a scan of all of them takes; 10,000 connections that wait; a million jobs that expire in
one second.
`--only work pipeline memory scan waiting expiry`, `--rounds N`, `--count N` (instead of a million).
"""

import argparse
import resource
import socket
import statistics
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

from bench import beside
from bench.load import FULL_RECORDS, fill, wait_until_trimmed
from bench.node import BenchNode, resident_bytes, running_node
from bench.resp import Resp
from quorate import Client

PORT: Final = 11_700
DISQUE: Final = PORT + 100
LISTENERS: Final = [{"protocol": "disque", "host": "127.0.0.1", "port": DISQUE}]
CHUNK: Final = 500


def work(rounds: int, count: int) -> None:
    """The same work by both protocols."""
    with running_node(PORT, queue_log_size=FULL_RECORDS, listeners=LISTENERS) as node:
        beside.work(node, "disque", (PORT, DISQUE), rounds, {8: 0.85, 64: 0.80})


def pipeline(rounds: int, count: int) -> None:
    """ADDJOBs one at a time, and 16 of them."""
    with running_node(PORT, queue_log_size=FULL_RECORDS, listeners=LISTENERS) as node:
        fill(PORT)
        found: dict[int, list[float]] = {1: [], 16: []}
        for _ in range(rounds):
            for batch, rates in found.items():
                rates.append(beside.timed(node, "addjob", DISQUE, 8, 6_000 if batch == 1 else 1_600, batch)[0])
                with Resp(DISQUE, 60.0) as client:
                    client.ask("QFLUSH", "bench0")
        one, many = (statistics.median(rates) for rates in found.values())
        print(f"pipeline: {one:.0f} and {many:.0f} ADDJOBs/s, 16 at once: {many / one:.2f} (wanted 2.5)", flush=True)


def _resident(node: BenchNode) -> int:
    return sum(map(resident_bytes, node.worker_pids))


def _add(count: int, options: list[str | int]) -> None:
    with Resp(DISQUE, 60.0) as client:
        for begin in range(0, count, CHUNK):
            for number in range(begin, begin + CHUNK):
                client.send("ADDJOB", "many", f"{number:0100}", 0, *options)
            for _ in range(CHUNK):
                client.read()


def _produce(count: int) -> None:
    with Client("127.0.0.1", PORT, timeout=60) as client:
        for begin in range(0, count, CHUNK):
            client.produce_many("many", [f"{n:0100}" for n in range(begin, begin + CHUNK)], retry=60, ttl=86_400)


def memory(rounds: int, count: int) -> None:
    """What so many take, and a restart, and scans of them."""
    found: dict[str, tuple[float, float]] = {}
    for name in ("JSON", "Disque"):
        with running_node(PORT, listeners=LISTENERS, queue_log_size=FULL_RECORDS) as node:
            before = _resident(node)
            if name == "JSON":
                _produce(count)
            else:
                _add(count, ["RETRY", 60])
            used = _resident(node) - before
            wait_until_trimmed(PORT)
            restarts: list[float] = []
            for _ in range(rounds):
                node.kill()
                begun = time.monotonic()
                node.start()
                restarts.append(time.monotonic() - begun)
            took_s = statistics.median(restarts)
            found[name] = (used, took_s)
            print(f"memory, {name}: {used / count:.0f} bytes each, again there after {took_s:.1f} s", flush=True)
    ratios = [later / first for first, later in zip(found["JSON"], found["Disque"], strict=True)]
    print(f"memory: {ratios[0]:.2f}, restart: {ratios[1]:.2f} of JSON's (wanted 1.15 and 1.15)", flush=True)


def _ask_on(end: Connection) -> None:
    """Ask one thing after another until somebody says something; tells how long each took (s)."""
    took: list[float] = []
    with Resp(DISQUE, 60.0) as client:
        end.send("ready")
        while not end.poll():
            begun = time.monotonic()
            job = client.ask("ADDJOB", "other", "x", 0)
            client.ask("ACKJOB", job)
            took.append((time.monotonic() - begun) / 2)
            time.sleep(0.001)
    end.send(took)


class _Other:
    """Another client, in a process of its own: in a thread it would wait for who reads the scan. How long each of its
    requests took (s)."""

    def __init__(self) -> None:
        self.took: list[float] = []
        context = get_context("spawn")
        self._end, its_end = context.Pipe()
        self._process = context.Process(target=_ask_on, args=(its_end,))

    def __enter__(self) -> "_Other":
        self._process.start()
        assert self._end.recv() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._end.send("over")
        self.took = self._end.recv()
        self._process.join()

    @property
    def p99_ms(self) -> float:
        """Of a request."""
        return sorted(self.took)[len(self.took) * 99 // 100] * 1000


def _whole(client: Resp, *words: str | int) -> tuple[float, int]:
    """How long a scan takes (s), and how much it finds."""
    begun, cursor, found = time.monotonic(), b"0", 0
    while True:
        cursor, rows = client.ask(words[0], cursor, *words[1:])
        found += len(rows)
        if cursor == b"0":
            return time.monotonic() - begun, found


def scan(rounds: int, count: int) -> None:
    """All jobs, and all queues, scanned while another client works."""
    with running_node(PORT, listeners=LISTENERS, queue_log_size=FULL_RECORDS, max_queues=200_000):
        _add(count, ["RETRY", 60])
        queues = min(count, 100_000)
        with Resp(DISQUE, 60.0) as client:
            for begin in range(0, queues, CHUNK):
                for number in range(begin, begin + CHUNK):
                    client.send("ADDJOB", f"queue-{number}", "x", 0)
                for _ in range(CHUNK):
                    client.read()
            with _Other() as alone:
                time.sleep(3.0)
            with _Other() as beside:
                jobs = _whole(client, "JSCAN", "COUNT", 1000)
                names = _whole(client, "QSCAN", "COUNT", 1000)
        print(
            f"scan: {jobs[1]} jobs in {jobs[0]:.1f} s (wanted 12), {names[1]} queues in {names[0]:.2f} s (wanted 2); "
            f"p99 of another client {alone.p99_ms:.1f} ms, and {beside.p99_ms:.1f} ms (wanted at most doubled)",
            flush=True,
        )


def waiting(rounds: int, count: int) -> None:
    """Many that wait in GETJOB."""
    clients = min(count, 10_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, clients + 1000), hard))
    with running_node(PORT, listeners=LISTENERS, max_connections=clients + 100, max_waiters=2 * clients) as node:
        before = _resident(node)
        waiting_ones = [socket.create_connection(("127.0.0.1", DISQUE)) for _ in range(clients)]
        for one in waiting_ones:
            one.sendall(b"GETJOB FROM turn\r\n")
        with Resp(DISQUE, 60.0) as client:
            while (told := client.ask("QSTAT", "turn")) is None or told[9] < clients:
                time.sleep(0.05)
            each = (_resident(node) - before) / clients
            late: list[float] = []
            for one in waiting_ones[:200]:
                client.ask("ADDJOB", "turn", "x", 0)
                begun = time.monotonic()
                one.recv(1000)
                late.append(time.monotonic() - begun)
        for one in waiting_ones:
            one.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(
        f"waiting: {clients} connections, {each / 1024:.1f} KiB each (wanted 40); a job is there after the "
        f"ADDJOB's reply in {statistics.median(late) * 1000:.2f} ms, {max(late) * 1000:.2f} at most (wanted 5)",
        flush=True,
    )


def expiry(rounds: int, count: int) -> None:
    """Very many that expire at once."""
    with (
        running_node(PORT, listeners=LISTENERS, queue_log_size=FULL_RECORDS),
        Client("127.0.0.1", PORT, timeout=60) as client,
    ):
        begun = time.time()
        at = begun + count / 12_000 + 10
        for begin in range(0, count, CHUNK):
            messages = [f"{n:0100}" for n in range(begin, begin + CHUNK)]
            client.produce_many("many", messages, retry=60, ttl=at + begin / count, expire="bury")
        with _Other() as beside:
            time.sleep(max(0.0, at - time.time()))
            expired_at = time.time()
            while client.monitor("many")["size"]:
                time.sleep(0.1)
            took_s = time.time() - expired_at
        print(
            f"expiry: {count} jobs gone {took_s:.1f} s after the first of them (wanted 10); "
            f"p99 of another client {beside.p99_ms:.1f} ms (wanted 50)",
            flush=True,
        )


PARTS: Final = {one.__name__: one for one in (work, pipeline, memory, scan, waiting, expiry)}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.disque")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    for name in arguments.only:
        PARTS[name](arguments.rounds, arguments.count)


if __name__ == "__main__":
    main()
