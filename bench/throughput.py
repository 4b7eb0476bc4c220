"""python -m bench.throughput: requests a second, beside beanstalkd and Redis Streams where they are installed.

Everything is measured alternately in one run, ROUNDS times, and the medians are compared, since machines and disks
are noisy. Peers are skipped with a word when they are not on the PATH.
"""

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.load import load
from bench.node import running_node

ROUNDS = 5
PORTS = {"commit": 11_321, "interval": 11_322, "redis": 11_323, "beanstalk-disk": 11_324, "beanstalk": 11_325}


@contextlib.contextmanager
def peer(name: str, command: Callable[[Path], list[str]]) -> Iterator[bool]:
    """A peer's server for a block; False if it is not installed."""
    with tempfile.TemporaryDirectory(prefix=f"quorate-{name}-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        words = command(Path(folder).resolve())
        if shutil.which(words[0]) is None:
            print(f"{name}: {words[0]} is not installed, so it is not compared with")
            yield False
            return
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORTS[name]), timeout=1):
                    break
                time.sleep(0.05)
            yield True
        finally:
            process.terminate()
            process.wait(10)


def compare(title: str, connections: int, requests: int, servers: dict[str, str], bounds: dict[str, float]) -> None:
    """Measure the servers (name to protocol) alternately; print the medians and the first one's ratios."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, protocol in servers.items():
            found[name].append(load(protocol, PORTS[name], connections, requests))
    print(f"{title}, {connections} connections, {requests} requests, medians of {ROUNDS} alternating rounds:")
    medians = {
        name: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for name, runs in found.items()
    }
    first = next(iter(servers))
    for name, figures in medians.items():
        ratio = "" if name == first else f"   ratio {medians[first]['rps'] / figures['rps']:.2f}"
        wanted = f" (wanted: {bounds[name]})" if name in bounds else ""
        print(
            f"  {name:15} {figures['rps']:8.0f} requests/s  avg {figures['avg_us']:6.0f} us  "
            f"p99 {figures['p99_us']:6.0f} us{ratio}{wanted}"
        )


def main() -> None:
    """Run it all."""
    with contextlib.ExitStack() as stack:
        redis = ["redis-server", "--port", str(PORTS["redis"]), "--bind", "127.0.0.1", "--save", ""]
        redis += ["--appendonly", "yes", "--appendfsync", "always"]
        has_redis = stack.enter_context(peer("redis", lambda folder: [*redis, "--dir", str(folder)]))
        disk = ["beanstalkd", "-l", "127.0.0.1", "-p", str(PORTS["beanstalk-disk"]), "-f", "0"]
        has_disk = stack.enter_context(peer("beanstalk-disk", lambda folder: [*disk, "-b", str(folder)]))
        memory = ["beanstalkd", "-l", "127.0.0.1", "-p", str(PORTS["beanstalk"])]
        has_memory = stack.enter_context(peer("beanstalk", lambda folder: memory))
        stack.enter_context(running_node(PORTS["commit"]))
        stack.enter_context(running_node(PORTS["interval"], flush="interval"))
        durable = {"commit": "quorate"} | ({"redis": "redis"} if has_redis else {})
        all_durable = durable | ({"beanstalk-disk": "beanstalk"} if has_disk else {})
        compare("flush=commit", 1, 6_000, durable, {"redis": 1.0})
        compare("flush=commit", 8, 48_000, all_durable, {"redis": 1.2, "beanstalk-disk": 1.5})
        compare("flush=commit", 64, 96_000, durable, {"redis": 1.0})
        quick = {"interval": "quorate"} | ({"beanstalk": "beanstalk"} if has_memory else {})
        compare("flush=interval", 8, 96_000, quick, {"beanstalk": 0.6})
        compare("flush=interval", 64, 96_000, quick, {"beanstalk": 0.9})
        batches = [load("quorate", PORTS["commit"], 8, 3_000, batch=100)["mps"] for _ in range(ROUNDS)]
        print(
            f"flush=commit, 8 connections, batches of 100: {statistics.median(batches):.0f} messages/s "
            "through produce, consume and confirm (wanted: some 150000)"
        )


if __name__ == "__main__":
    main()
