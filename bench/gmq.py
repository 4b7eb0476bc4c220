"""python -m bench.gmq: gmq's protocol beside JSON, in one run, on nodes whose logs are full.

Push, Pop and Ack of 100 bytes beside produce, consume and confirm, fsynced, with 8 and 64 connections; the same with a
million live ids beside a thousand, and what ids take in memory; how soon a Pop that waits is answered; jobs with delays
over a minute, and how late each is; kill -9 again and again under pushes, pops and acknowledgements; the monitor's
addresses with a thousand topics and a million jobs, and what whoever polls them takes from the others.
`--only work ids wait delays kills monitor`, `--rounds N`, `--count N` (instead of a million).
"""

import argparse
import contextlib
import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench import beside
from bench.go_rpc import Gmq, GmqError
from bench.load import FULL_RECORDS, fill, wait_until_trimmed
from bench.node import BenchNode, resident_bytes, running_node
from quorate import Client, NewMessage

PORT: Final = 11_720
GMQ: Final = PORT + 100
LISTENERS: Final = [{"protocol": "gmq", "host": "127.0.0.1", "port": GMQ}]
FEW: Final = 1000
DELAYED: Final = 10_000
SPAN_S: Final = 60
WORKERS: Final = 4
MONITOR: Final = PORT + 200
TOPICS: Final = 1000
ADDRESSES: Final = (
    "/getReadyQueueStat",
    "/getBucketStat",
    "/getTTRBucketStat",
    "/getJobsByBucketKey?bucketKey=gmq:bucket:0&limit=20",
)


def work(rounds: int, count: int) -> None:
    """The same work by both protocols."""
    with running_node(PORT, queue_log_size=FULL_RECORDS, listeners=LISTENERS) as node:
        beside.work(node, "gmq", (PORT, GMQ), rounds, {8: 0.80, 64: 0.80})


def _fill_in(count: int, prefix: str | None, port: int = PORT) -> None:
    """Messages that live on, with such keys among all, if they are to have some."""
    with Client("127.0.0.1", port, timeout=60) as client:
        for begin in range(0, count, FEW):
            keys = [None if prefix is None else f"{prefix}{n:07}" for n in range(begin, min(begin + FEW, count))]
            scope = None if prefix is None else "all"
            client.produce_many("live", [NewMessage("x" * beside.DATA_BYTES, key=key, scope=scope) for key in keys])


def _cpu_beside(rounds: int, lives: tuple[int, ...]) -> dict[tuple[str, int], float]:
    """CPU a request (us) by protocol and live ids: a node for each, by turns, as the machine changes by the minute."""
    found: dict[tuple[str, int], list[float]] = {}
    with contextlib.ExitStack() as stack:
        nodes: list[tuple[BenchNode, int, int]] = []
        for number, live in enumerate(lives):
            port = PORT + number
            listeners = [{"protocol": "gmq", "host": "127.0.0.1", "port": GMQ + number}]
            node = stack.enter_context(running_node(port, queue_log_size=FULL_RECORDS, listeners=listeners))
            nodes.append((node, live, number))
            _fill_in(live, f"{live}.", port)
            fill(port)
            wait_until_trimmed(port)  # each of them is stored once by that, with ids or without
        for at in range(rounds):
            for node, live, number in nodes if at % 2 == 0 else reversed(nodes):
                for name, port in (("gmq", GMQ + number), ("quorate", PORT + number)):
                    found.setdefault((name, live), []).append(beside.timed(node, name, port, 64, 18_000)[1])
    return {one: statistics.median(times) for one, times in found.items()}


def ids(rounds: int, count: int) -> None:
    """What many live ids cost a request, and take in memory."""
    used: dict[str, float] = {}
    for name in ("no ids", "ids"):
        with running_node(PORT, queue_log_size=FULL_RECORDS, listeners=LISTENERS) as node:
            before = sum(resident_bytes(pid) for pid in node.worker_pids)
            _fill_in(count, "xxxx_id1574300000." if name == "ids" else None)
            used[name] = (sum(resident_bytes(pid) for pid in node.worker_pids) - before) / count
    cpu = _cpu_beside(rounds * 4, (FEW, count))
    for name, protocol, wanted in (("ids", "gmq", " (wanted 1.1)"), ("ids, JSON without beside them", "quorate", "")):
        few, many = cpu[protocol, FEW], cpu[protocol, count]
        print(
            f"{name}: {few:.1f} us of CPU a request with {FEW}, {many:.1f} with {count}: {many / few:.2f}{wanted}",
            flush=True,
        )
    print(f"ids: {used['ids'] - used['no ids']:.0f} bytes a job more than without (wanted 150)", flush=True)


def wait(rounds: int, count: int) -> None:
    """How long after the reply to a Push a Pop that waited is answered."""
    late: list[float] = []
    with running_node(PORT, listeners=LISTENERS), Gmq(GMQ) as consumer, Gmq(GMQ) as producer:
        for number in range(200):
            consumer.begin("Pop", ["t"])
            time.sleep(0.005)
            answered: list[float] = []

            def read(answered: list[float] = answered) -> None:
                consumer.reply()
                answered.append(time.monotonic())

            reader = threading.Thread(target=read)
            reader.start()
            producer.push(f"w{number}", "t")
            pushed_at = time.monotonic()
            reader.join()
            late.append(answered[0] - pushed_at)
    print(f"wait: a Pop is answered {max(late) * 1000:.2f} ms after its Push at most (wanted 5)", flush=True)


def delays(rounds: int, count: int) -> None:
    """How late jobs with a delay are given, by a node that has nothing else to do."""
    due: dict[str, float] = {}
    late: list[float] = []
    with running_node(PORT, listeners=LISTENERS), Gmq(GMQ) as client:
        for number in range(DELAYED):
            delay = 5 + number % SPAN_S
            begun = time.time()
            client.push(f"d{number}", f"t{number % 7}", delay=delay)  # taken with its pop: no ack is timed
            due[f"d{number}"] = begun + delay  # a little before the node's: so it may only seem later than it was
        while due:
            try:
                job = client.pop(*(f"t{number}" for number in range(7)))
            except GmqError:
                continue
            late.append(time.time() - due.pop(job["id"]))
    late.sort()
    print(
        f"delays: {DELAYED} jobs over {SPAN_S} s: p99 {late[int(len(late) * 0.99)] * 1000:.1f} ms late, "
        f"{late[-1] * 1000:.1f} at most, {late[0] * 1000:.1f} at least (wanted 50)",
        flush=True,
    )


class Killed:
    """Clients that push, pop and acknowledge while a node is killed; what they know for certain."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self.pushed: set[str] = set()
        self.asked: set[str] = set()
        self.acknowledged: set[str] = set()
        self.problems: list[str] = []

    def _work(self, name: str) -> None:
        count = 0
        while not self._stop.is_set():
            try:
                with Gmq(self._port, 3.0) as client:
                    while not self._stop.is_set():
                        count += 1
                        self._step(client, f"{name}.{count}", count)
            except (OSError, GmqError, ValueError):
                time.sleep(0.05)

    def _step(self, client: Gmq, job: str, count: int) -> None:
        if client.push(job, "t", ttr=1) == "success":
            self.pushed.add(job)
            if client.push(job, "other", ttr=1) == "success" and job not in self.asked:
                self.problems.append(f"{job} was taken twice")
        taken = client.pop("t")["id"]
        if taken in self.acknowledged:
            self.problems.append(f"{taken} came back")
        time.sleep(0.005)
        if count % 3:
            self.asked.add(taken)
            if client.acknowledge(taken) is True:
                self.acknowledged.add(taken)

    def run(self, kills: int, kill: Callable[[], None]) -> list[str]:
        """Let them work while it is killed so many times, then take what is left; what was wrong."""
        threads = [threading.Thread(target=self._work, args=(f"w{number}",)) for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        for _ in range(kills):
            time.sleep(1.0)
            kill()
        time.sleep(0.5)
        self._stop.set()
        for thread in threads:
            thread.join()
        left = self.pushed - self.asked  # what became of a job whose answer was lost nobody knows
        until = time.monotonic() + 30
        with Gmq(self._port) as client:
            while left and time.monotonic() < until:
                try:
                    job = client.pop("t")["id"]
                except GmqError:
                    continue
                if job in self.acknowledged:
                    self.problems.append(f"{job} came back")
                client.acknowledge(job)
                left.discard(job)
        return [*self.problems, *(f"{job} is lost" for job in left)]


def kills(rounds: int, count: int) -> None:
    """Nothing that was answered is lost, or comes back, or is taken twice."""
    with running_node(PORT, listeners=LISTENERS, gmq_ttr_grace_s=0.5, gmq_pop_wait_s=0.2) as node:

        def kill() -> None:
            node.kill()
            node.start()

        clients = Killed(GMQ)
        problems = clients.run(20, kill)
        print(
            f"kills: 20, {len(clients.pushed)} pushes and {len(clients.acknowledged)} acknowledgements answered: "
            f"{len(problems)} wrong {problems[:3]}",
            flush=True,
        )


def _jobs_in_all_states(count: int) -> None:
    """Jobs of `TOPICS` topics: seven of ten ready, two delayed, one popped."""
    tenth = count // TOPICS // 10
    with Client("127.0.0.1", PORT, timeout=60) as client:
        for topic in range(TOPICS):
            name = f"topic_{topic:04}"
            for kind, part, delay in (
                ("popped", tenth, None),
                ("delayed", 2 * tenth, 600 + topic),
                ("", 7 * tenth, None),
            ):
                keys = [f"{name}.{kind}{n}" for n in range(part)]
                batch = [NewMessage("x" * beside.DATA_BYTES, key=key, scope="all", delay=delay) for key in keys]
                client.produce_many(name, batch, retry=6000)
                if kind == "popped":
                    assert len(client.consume_many(name, part)) == part


def monitor(rounds: int, count: int) -> None:
    """How soon the addresses answer, and what a poller of all four, every two seconds, takes from 64 connections."""
    served = [{"port": MONITOR, "serves": ["gmq-monitor"]}]
    with running_node(PORT, queue_log_size=FULL_RECORDS, listeners=LISTENERS, http_listeners=served) as node:
        _jobs_in_all_states(count)
        fill(PORT)
        wait_until_trimmed(PORT)
        slowest = {path: max(_get_s(path) for _ in range(20)) for path in ADDRESSES}
        for path, seconds in slowest.items():
            print(f"monitor: {path} {seconds * 1000:.0f} ms at most, of 20 (wanted 200)", flush=True)
        found: dict[str, list[tuple[float, float]]] = {"alone": [], "polled": []}
        with ThreadPoolExecutor(1) as poller:
            for at in range(rounds * 6):
                name = ("alone", "polled", "polled", "alone")[at % 4]
                over = threading.Event()
                polls = poller.submit(_poll, over) if name == "polled" else None
                found[name].append(beside.timed(node, "gmq", GMQ, 64, 180_000))
                over.set()
                if polls is not None:
                    assert polls.result() > 1
        alone, polled = ([statistics.median(one) for one in zip(*rows, strict=True)] for rows in found.values())
        print(
            f"monitor: {alone[0]:.0f}/s {alone[1]:.1f} us of CPU alone, {polled[0]:.0f}/s {polled[1]:.1f} us polled: "
            f"{polled[0] / alone[0]:.3f} (wanted 0.97)",
            flush=True,
        )


def _poll(over: threading.Event) -> int:
    """Ask all addresses every two seconds, as the console's pages renew themselves; how often that was."""
    count = 0
    while not over.is_set():
        for path in ADDRESSES:
            _get_s(path)
        count += 1
        over.wait(2)
    return count


def _get_s(path: str) -> float:
    begun = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{MONITOR}{path}", timeout=10) as answer:
        assert answer.status == 200
        assert json.load(answer)["data"]
    return time.monotonic() - begun


PARTS: Final = {"work": work, "ids": ids, "wait": wait, "delays": delays, "kills": kills, "monitor": monitor}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.gmq")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=[*PARTS])
    arguments = parser.parse_args()
    for name in arguments.only:
        PARTS[name](arguments.rounds, arguments.count)


if __name__ == "__main__":
    main()
