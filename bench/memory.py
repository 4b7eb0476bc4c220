"""python -m bench.memory: what a million live messages cost, how long a restart takes, and what an idle node uses."""

import statistics
import time

from bench.load import load
from bench.node import cpu_seconds, resident_bytes, running_node
from quorate import Client

PORT = 11_331
LIVE = 1_000_000
BATCH = 1000
ROUNDS = 5
MIB = 1 << 20


def main() -> None:
    """Run it all."""
    with running_node(PORT) as node, Client("127.0.0.1", PORT, timeout=60) as client:
        worker = int(client.status()["pid"])
        pids = (node.supervisor_pid, worker)
        time.sleep(1)
        before = sum(map(cpu_seconds, pids))
        time.sleep(10)
        used = (sum(map(cpu_seconds, pids)) - before) / 10
        idle = sum(map(resident_bytes, pids)) / MIB
        print(f"idle node, both processes: {idle:.0f} MiB resident, {used * 100:.2f} % of a core (wanted: 60, 1 %)")
        few = [load("quorate", PORT, 8, 48_000)["rps"] for _ in range(ROUNDS)]
        begun = time.monotonic()
        for _ in range(LIVE // BATCH):
            client.produce_many("bench0", ["x" * 100] * BATCH, retry=60, ttl=86_400)
        print(f"{LIVE} messages of 100 bytes produced in {time.monotonic() - begun:.1f} s, in batches of {BATCH}")
        resident = resident_bytes(worker) / MIB
        print(f"with {LIVE} live messages of 100 bytes: {resident:.0f} MiB resident (wanted: under 900)")
        many = [load("quorate", PORT, 8, 48_000)["rps"] for _ in range(ROUNDS)]
        _ratio(f"{LIVE} live messages in the queue against none", many, few)
        took_s = []
        for _ in range(ROUNDS):
            node.kill()
            begun = time.monotonic()
            node.start()
            took_s.append(time.monotonic() - begun)
        client.close()
        resident = resident_bytes(int(client.status()["pid"])) / MIB
        live = client.monitor("bench0")["size"]
        print(
            f"after kill -9: ready in {statistics.median(took_s):.2f} s (the longest of {ROUNDS}: {max(took_s):.2f}) "
            f"with {live} messages, {resident:.0f} MiB (wanted: under 1.5 s)"
        )
    with running_node(PORT) as node, Client("127.0.0.1", PORT, timeout=60) as client:
        one = [load("quorate", PORT, 8, 48_000)["rps"] for _ in range(ROUNDS)]
        for number in range(10_000):
            client.configure(f"bench{number}", default_retry=60)
        spread = [load("quorate", PORT, 8, 48_000, queues=8)["rps"] for _ in range(ROUNDS)]
        _ratio("10000 queues, 8 of them used, against 1", spread, one)


def _ratio(what: str, now: list[float], before: list[float]) -> None:
    first, second = sorted(now)[len(now) // 2], sorted(before)[len(before) // 2]
    print(f"{what}: {first:.0f} against {second:.0f} requests/s, ratio {first / second:.2f} (wanted: 0.85 to 1.15)")


if __name__ == "__main__":
    main()
