"""python -m bench.tail: how long the slowest requests take, under load for a minute, while LMDB stores and trims.

64 connections against a node that flushes each change and keeps a short log, so that checkpoints and trimming go on all
the time. Prints p50, p99 and the longest of each tenth of the time, and of the whole.
"""

import argparse
import statistics

from bench.load import load
from bench.node import running_node
from quorate import Client

PORT = 11_351
PARTS = 10
LOG_RECORDS = 200_000


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m bench.tail")
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long")
    parser.add_argument("--connections", type=int, default=64)
    arguments = parser.parse_args()
    with running_node(PORT, queue_log_size=LOG_RECORDS) as node:
        rate = load("quorate", node.port, arguments.connections, 60_000)["rps"]
        requests = int(rate * arguments.seconds / PARTS)
        found = []
        for part in range(PARTS):
            found.append(figures := load("quorate", node.port, arguments.connections, requests))
            print(
                f"{part + 1:2}: {figures['rps']:8.0f} requests/s  p50 {figures['p50_us'] / 1000:5.2f} ms  "
                f"p99 {figures['p99_us'] / 1000:5.2f} ms  longest {figures['max_us'] / 1000:6.1f} ms",
                flush=True,
            )
        with Client("127.0.0.1", PORT) as client:
            shard = client.status()["shards"][0]
        print(f"the log keeps {shard['trans_id'] - shard['first_trans_id'] + 1} records (asked for: {LOG_RECORDS})")
    p50 = statistics.median(one["p50_us"] for one in found) / 1000
    p99s = [one["p99_us"] / 1000 for one in found]
    p99 = statistics.median(p99s)
    print(
        f"{arguments.connections} connections, flush=commit, {PARTS} times {requests} requests: p50 {p50:.2f} ms, "
        f"p99 {p99:.2f} ms (worst tenth {max(p99s):.2f}), {p99 / p50:.1f} times p50 (wanted: under 5 ms, under 3 times)"
    )


if __name__ == "__main__":
    main()
