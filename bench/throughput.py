"""python -m bench.throughput: requests a second, beside beanstalkd and Redis Streams where they are installed.

Everything is measured alternately in one run, ROUNDS times, and the medians are compared, since machines and disks
are noisy. Peers are skipped with a word when they are not on the PATH. With one connection it matters which cores the
client and the server run on, so that is measured in three ways: both on one, each on its own, and as the system likes.

`--compiled` compares the compiled with the interpreted code of this commit instead, `--profile` prints where a
request's time goes, `--rounds N` takes more or fewer rounds.
"""

import argparse
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import metered
from bench.load import load
from bench.node import running_node

ROUNDS = 5
PORTS = {"commit": 11_321, "interval": 11_322, "redis": 11_323, "beanstalk-disk": 11_324, "beanstalk": 11_325}
EVERYWHERE = set(range(os.cpu_count() or 1))
PLACES = {"one core": ({0}, {0}), "a core each": ({0}, {1}), "unpinned": (EVERYWHERE, EVERYWHERE)}
"""The server's cores, and the load generator's."""


@dataclass
class Server:
    """One that is measured; `pin` binds it to cores."""

    protocol: str
    port: int
    pin: Callable[[set[int]], None]


@contextlib.contextmanager
def peer(name: str, protocol: str, command: Callable[[Path], list[str]]) -> Iterator[dict[str, Server]]:
    """A peer's server for a block, by its name; none if it is not installed."""
    with tempfile.TemporaryDirectory(prefix=f"quorate-{name}-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        words = command(Path(folder).resolve())
        if shutil.which(words[0]) is None:
            print(f"{name}: {words[0]} is not installed, so it is not compared with")
            yield {}
            return
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)

        def pin(cpus: set[int]) -> None:
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cpus)

        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORTS[name]), timeout=1):
                    break
                time.sleep(0.05)
            yield {name: Server(protocol, PORTS[name], pin)}
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def node(port: int, code: str | None = None, **settings: object) -> Iterator[Server]:
    """A node of ours for a block. `code`: QUORATE_COMPILE, as it is if None."""
    before = os.environ.get("QUORATE_COMPILE")
    if code is not None:
        os.environ["QUORATE_COMPILE"] = code
    with running_node(port, **settings) as running:
        if code is not None:
            os.environ.pop("QUORATE_COMPILE")
            if before is not None:
                os.environ["QUORATE_COMPILE"] = before
        yield Server("quorate", port, running.pin)


def compare(
    title: str,
    connections: int,
    requests: int,
    servers: dict[str, Server],
    bounds: dict[str, float],
    *,
    rounds: int = ROUNDS,
    place: str = "unpinned",
) -> None:
    """Measure the servers alternately; print the medians and the first one's ratios to the others."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    at, load_at = PLACES[place]
    for server in servers.values():
        server.pin(at)
    for _ in range(rounds):
        for name, server in servers.items():
            found[name].append(load(server.protocol, server.port, connections, requests, cpus=load_at))
    where = f", {place}" if connections == 1 else ""
    print(f"{title}, {connections} connections{where}, {requests} requests, medians of {rounds} alternating rounds:")
    medians = {
        name: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for name, runs in found.items()
    }
    first = next(iter(servers))
    for name, figures in medians.items():
        ratio = "" if name == first else f"   ratio {medians[first]['rps'] / figures['rps']:.2f}"
        wanted = f" (wanted: {bounds[name]})" if name in bounds else ""
        print(
            f"  {name:15} {figures['rps']:8.0f} requests/s  avg {figures['avg_us']:6.0f} us  "
            f"p50 {figures['p50_us']:6.0f} us  p99 {figures['p99_us']:6.0f} us{ratio}{wanted}",
            flush=True,
        )
    for server in servers.values():
        server.pin(EVERYWHERE)


def beside_peers(rounds: int) -> None:
    """Quorate, Redis Streams and beanstalkd."""
    with contextlib.ExitStack() as stack:
        redis = ["redis-server", "--port", str(PORTS["redis"]), "--bind", "127.0.0.1", "--save", ""]
        redis += ["--appendonly", "yes", "--appendfsync", "always"]
        has_redis = stack.enter_context(peer("redis", "redis", lambda folder: [*redis, "--dir", str(folder)]))
        disk = ["beanstalkd", "-l", "127.0.0.1", "-p", str(PORTS["beanstalk-disk"]), "-f", "0"]
        has_disk = stack.enter_context(peer("beanstalk-disk", "beanstalk", lambda folder: [*disk, "-b", str(folder)]))
        memory = ["beanstalkd", "-l", "127.0.0.1", "-p", str(PORTS["beanstalk"])]
        has_memory = stack.enter_context(peer("beanstalk", "beanstalk", lambda folder: memory))
        durable = {"quorate": stack.enter_context(node(PORTS["commit"]))} | has_redis
        quick = {"quorate": stack.enter_context(node(PORTS["interval"], flush="interval"))} | has_memory
        for place in PLACES:
            compare("flush=commit", 1, 6_000, durable, {"redis": 1.1}, rounds=rounds, place=place)
        wanted = {"redis": 1.7, "beanstalk-disk": 3.0}
        compare("flush=commit", 8, 48_000, durable | has_disk, wanted, rounds=rounds)
        wanted = {"redis": 1.2, "beanstalk-disk": 6.0}
        compare("flush=commit", 64, 96_000, durable | has_disk, wanted, rounds=rounds)
        compare("flush=interval", 8, 96_000, quick, {"beanstalk": 0.65}, rounds=rounds)
        compare("flush=interval", 64, 96_000, quick, {"beanstalk": 0.9}, rounds=rounds)
        batches = [load("quorate", PORTS["commit"], 8, 3_000, batch=100)["mps"] for _ in range(rounds)]
        print(
            f"flush=commit, 8 connections, batches of 100: {statistics.median(batches):.0f} messages/s "
            "through produce, consume and confirm (wanted: 250000)"
        )


def compiled_or_not(rounds: int) -> None:
    """Compiled and interpreted code of this commit."""
    wanted = {
        "interval": {("one core", 1): 1.7, ("unpinned", 8): 1.5, ("unpinned", 64): 1.2},
        "commit": {("one core", 1): 1.25, ("unpinned", 8): 1.35, ("unpinned", 64): 1.1},
    }
    runs = [(place, 1, 9_000) for place in PLACES] + [("unpinned", 8, 60_000), ("unpinned", 64, 120_000)]
    for flush, bounds in wanted.items():
        settings = {} if flush == "commit" else {"flush": flush}
        with node(PORTS["commit"], "1", **settings) as one, node(PORTS["interval"], "0", **settings) as other:
            for place, connections, requests in runs:
                bound = bounds.get((place, connections))
                servers = {"compiled": one, "interpreted": other}
                compare(
                    f"flush={flush}",
                    connections,
                    requests,
                    servers,
                    {} if bound is None else {"interpreted": bound},
                    rounds=rounds,
                    place=place,
                )


def profile() -> None:
    """Where the time goes."""
    for flush in ("commit", "interval"):
        for connections, requests in ((1, 9_000), (8, 60_000), (64, 120_000)):
            print(f"flush={flush}, ", end="")
            metered.measure(PORTS["commit"], connections, requests, **{"flush": flush} if flush != "commit" else {})


def main() -> None:
    """Run it all, or what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.throughput")
    parser.add_argument("--compiled", action="store_true", help="compiled against interpreted code of this commit")
    parser.add_argument("--profile", action="store_true", help="microseconds a request by stage")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    if arguments.profile:
        profile()
    elif arguments.compiled:
        compiled_or_not(arguments.rounds)
    else:
        beside_peers(arguments.rounds)


if __name__ == "__main__":
    main()
