"""The C load generator (bench/loadgen.c): built when needed, run against a port."""

import os
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final

from quorate import Client


@cache
def generator() -> str:
    """The built program's path."""
    target = Path(tempfile.mkdtemp(prefix="quorate-loadgen-")) / "loadgen"
    source = Path(__file__).with_name("loadgen.c")
    subprocess.run(["gcc", "-O2", "-w", "-o", str(target), str(source)], check=True)
    return str(target)


FULL_RECORDS: Final = 20_000
"""What a log keeps that is to be full soon."""


def fill(port: int) -> None:
    """Let a node whose `queue_log_size` is `FULL_RECORDS` make twice as many: from then on it trims, as for years."""
    load("quorate", port, 64, 2 * FULL_RECORDS)


def wait_until_trimmed(port: int) -> None:
    """The log's head goes behind what is written: what lives on is stored, and a restart reads what stays."""
    with Client("127.0.0.1", port) as client:
        until = time.monotonic() + 120
        while True:
            shard = client.status()["shards"][0]
            if shard["trans_id"] - shard["first_trans_id"] < 1.2 * FULL_RECORDS:
                return
            assert time.monotonic() < until, shard
            time.sleep(0.1)


def load(
    protocol: str,
    port: int,
    connections: int,
    requests: int,
    *,
    queues: int = 1,
    data_bytes: int = 32,
    batch: int = 1,
    first: int = 0,
    token: str | None = None,
    cpus: set[int] | None = None,
    first_id: int = 0,
) -> dict[str, float]:
    """Put `requests` in all on the server, from so many connections; the figures by name (1/s and us).

    The connections take turns at queues `bench0` and on, or from number `first` on. `token`: they show it first.
    `cpus`: the generator runs on those cores alone. `first_id`: of the messages that transactions confirm.
    """
    each = max(requests // connections, 3)
    words = [generator(), protocol, *map(str, (port, connections, each, queues, data_bytes, batch, first))]
    environment = {name: value for name, value in os.environ.items() if name != "QUORATE_TOKEN"}
    if token is not None:
        environment["QUORATE_TOKEN"] = token
    environment["QUORATE_FIRST_ID"] = str(first_id)
    if cpus is not None:
        words = ["taskset", "-c", ",".join(map(str, sorted(cpus))), *words]
    printed = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if printed.returncode:
        raise RuntimeError(printed.stderr)
    parts = printed.stdout.split()
    return {name: float(value) for name, value in zip(parts[::2], parts[1::2], strict=True)}
