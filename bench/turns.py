"""python -m bench.turns: the longest turn of a node's loop while it does what takes long.

Two million messages come, go out, are confirmed in any order, and are cleared, a hundred thousand queues listed and
sorted, fifty thousand consumers wait while the lead goes to another node, or is lost, a log of large messages is
trimmed, and hundreds of clients ask for as much as one may at the same moment. Whoever holds the loop for longer than
the watchdog allows (`QUORATE_WATCHDOG`, 5 ms here) is named in the node's log; the longest are told.
`python -m bench.turns clear list` runs what is named; `--scale 0.1` makes all of it smaller.
"""

import argparse
import json
import math
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from bench.cluster_nodes import role, running_cluster, wait_for
from bench.node import BenchNode, running_node
from quorate import Client

PORT: Final = 11_640
WATCHDOG_MS: Final = 5
WANTED_MS: Final = 20
BATCH: Final = 1000
TURN: Final = re.compile(r"(?:a turn of (\S+) took|the loop was) ([\d.]+) ms")
CROWD: Final = 300
WAITING: Final = 50_000
CONNECTIONS: Final = 400
LIMITS: Final[dict[str, object]] = {"max_waiters": 200_000, "max_open_requests": 200_000, "max_memory_bytes": 8 << 30}


def turns(node: BenchNode) -> list[tuple[float, str]]:
    """What the watchdog has named in the node's log (ms, whose turn)."""
    text = (node.folder / "node.log").read_text()
    return [(float(found[2]), found[1] or "all") for found in TURN.finditer(text)]


def told(what: str, nodes: list[BenchNode], before: list[int], took_s: float, stood_ms: float = math.inf) -> None:
    """Print the longest turns since `before`, which counts those of each node, but for the one that stood still."""
    since = [one for node, count in zip(nodes, before, strict=True) for one in turns(node)[count:]]
    found = sorted((one for one in since if one[0] < stood_ms), reverse=True)
    longest = ", ".join(f"{whose} {ms:.1f}" for ms, whose in found[:3]) or f"none over {WATCHDOG_MS}"
    print(f"{what} ({took_s:.1f} s): longest turns, ms: {longest} (wanted: {WANTED_MS})", flush=True)


def counted(nodes: list[BenchNode]) -> list[int]:
    """How many turns the watchdog has named in each node's log."""
    return [len(turns(node)) for node in nodes]


def clear(scale: float) -> None:
    """Two million small messages."""
    count = int(2_000_000 * scale)
    with running_node(PORT, flush="interval", **LIMITS) as node, Client(port=node.port, timeout=600) as client:
        for _ in range(count // BATCH):
            client.produce_many("full", ["x" * 20] * BATCH, ttl=86_400)
        time.sleep(2)
        before, begun = counted([node]), time.monotonic()
        client.request(6, queue="full")
        told(f"{count} messages cleared", [node], before, time.monotonic() - begun)


def listed(scale: float) -> None:
    """A hundred thousand queues, by name and by pattern, from the first page to the last."""
    count = int(100_000 * scale)
    with running_node(PORT, flush="interval", **LIMITS) as node, Client(port=node.port, timeout=600) as client:
        for first in range(0, count, BATCH):
            for number in range(first, min(first + BATCH, count)):
                client.produce(f"queue-{number * 7919 % count:06}", b"x", ttl=86_400)
        for pattern in (None, "*9*"):
            before, begun, after, pages = counted([node]), time.monotonic(), None, 0
            while True:
                wish = {"pattern": pattern, "after": after, "count": BATCH}
                reply = client.request(7, **{name: value for name, value in wish.items() if value is not None})
                pages += 1
                after = reply.get("next")
                if not after:
                    break
            told(f"{count} queues listed in {pages} pages, pattern {pattern}", [node], before, time.monotonic() - begun)


@contextmanager
def waiting(port: int, each: int) -> Iterator[list[socket.socket]]:
    """So many consumers over each of `CONNECTIONS` connections, in line."""
    body = b"".join(b'{"action":2,"queue":"none%d","wait":600,"seq":%d}' % (n, n) for n in range(each))
    socks = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(CONNECTIONS)]
    for sock in socks:
        sock.sendall(body)
    time.sleep(5)
    yield socks
    for sock in socks:
        sock.close()
    time.sleep(3)


def handed_over(scale: float) -> None:
    """Fifty thousand consumers that wait."""
    each = int(WAITING * scale) // CONNECTIONS
    with running_cluster(PORT + 100, 3, **LIMITS) as cluster:
        nodes, old = list(cluster.nodes.values()), cluster.leader()
        port = cluster.nodes[old].port
        with waiting(port, each):
            before, begun = counted(nodes), time.monotonic()
            with Client(port=port, timeout=60) as client:
                client.request(15, command="transfer")
            wait_for(lambda: cluster.leader() not in (0, old))
            time.sleep(5)
            told(f"{each * CONNECTIONS} consumers at a hand-over", nodes, before, time.monotonic() - begun)


def lost(scale: float) -> None:
    """As many wait, and many produces come in, at a leader that stands still for too long."""
    each, produces = int(WAITING * scale) // CONNECTIONS, int(40 * scale) or 1
    with running_cluster(PORT + 200, 3, **LIMITS) as cluster:
        nodes, old = list(cluster.nodes.values()), cluster.leader()
        others = [node.port for number, node in cluster.nodes.items() if number != old]
        with waiting(cluster.nodes[old].port, each) as socks:
            before, begun = counted(nodes), time.monotonic()
            for sock in socks:
                sock.sendall(b'{"action":1,"queue":"q","data":1,"seq":1}' * produces)
            time.sleep(0.05)
            stopped = time.monotonic()
            for pid in cluster.nodes[old].worker_pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                wait_for(lambda: any(role(port) == "leader" for port in others))
            finally:
                for pid in cluster.nodes[old].worker_pids:
                    os.kill(pid, signal.SIGCONT)
            stood_ms = (time.monotonic() - stopped) * 900  # nine tenths of it: it may have stopped a little later
            time.sleep(5)
            what = f"{each * CONNECTIONS} consumers and {produces * CONNECTIONS} produces at a lost lead"
            told(what, nodes, before, time.monotonic() - begun, stood_ms)


def trimmed(scale: float) -> None:
    """A thousand messages of 200 kB, whose records leave the log while they live."""
    count = int(1000 * scale)
    with running_node(PORT, queue_log_size=200, **LIMITS) as node, Client(port=node.port, timeout=600) as client:
        before, begun = counted([node]), time.monotonic()
        for _ in range(count):
            client.produce("large", "x" * 200_000, ttl=86_400)
        for _ in range(2000):
            client.produce("small", "x", ttl=86_400)
        time.sleep(2)
        told(f"{count} messages of 200 kB trimmed", [node], before, time.monotonic() - begun)


def crowded(scale: float) -> None:
    """Three hundred connections, each with one request of a thousand messages or rows, all at the same moment."""
    count = int(CROWD * scale)
    items = b",".join([b'{"data":1}'] * BATCH)
    with running_node(PORT, **LIMITS) as node, Client(port=node.port, timeout=60) as client:
        socks = [socket.create_connection(("127.0.0.1", node.port), 5) for _ in range(count)]

        def ask(what: str, bodies: list[bytes]) -> list[bytes]:
            time.sleep(1.0)
            before, begun = counted([node]), time.monotonic()
            for sock, body in zip(socks, bodies, strict=True):
                sock.sendall(body)
            replies = [b""] * count
            for at, sock in enumerate(socks):
                sock.settimeout(60)
                while not replies[at].endswith(b"\n"):
                    replies[at] += sock.recv(1 << 20)
            told(f"{what}, {count} at once", [node], before, time.monotonic() - begun)
            return replies

        ask("produce of 1,000", [b'{"action":1,"queue":"q","ttl":999,"retry":99,"messages":[' + items + b"]}"] * count)
        ask("peek of 1,000", [b'{"action":11,"queue":"q","count":1000}'] * count)
        taken = ask("consume of 1,000", [b'{"action":2,"queue":"q","count":1000}'] * count)
        ids = [[message["msg_id"] for message in json.loads(reply)["messages"]] for reply in taken]
        ask("confirm of 1,000", [json.dumps({"action": 3, "msg_ids": some}).encode() for some in ids])
        for first in range(int(20_000 * scale)):
            client.produce(f"queue-{first:06}", b"x", ttl=86_400)
        ask("list of 1,000, full", [b'{"action":7,"count":1000,"full":1}'] * count)
        ask("status", [b'{"action":108}'] * count)
        ask("two hundred that are none", [b"{}" * 199 + b'{"action":8}'] * count)


def grown(scale: float) -> None:
    """As many messages as are cleared come, go out, and are confirmed in any order, and half as many of other kinds."""
    count = int(2_000_000 * scale) // BATCH
    random = Random(5)
    with running_node(PORT, flush="interval", **LIMITS) as node, Client(port=node.port, timeout=60) as client:

        def ask(what: str, times: int, once: Callable[[int], object]) -> None:
            time.sleep(1.0)
            before, begun = counted([node]), time.monotonic()
            for number in range(times):
                once(number)
            told(f"{times * BATCH} {what}", [node], before, time.monotonic() - begun)

        ids: list[int] = []

        def consume(number: int) -> None:
            found = client.request(2, queue="q", count=BATCH)
            ids.extend(one["msg_id"] for one in found["messages"])

        def produce(queue: str, of: Callable[[int], dict[str, object]]) -> Callable[[int], object]:
            def once(number: int) -> object:
                items = [{"data": 1, **of(number * BATCH + at)} for at in range(BATCH)]
                return client.request(1, queue=queue, messages=items, ttl=86_400)

            return once

        ask("come", count, lambda number: client.produce_many("q", ["x"] * BATCH, ttl=86_400, retry=3600))
        ask("are consumed", count, consume)
        random.shuffle(ids)
        ask(
            "are confirmed in any order",
            count,
            lambda number: client.request(3, msg_ids=ids[number * BATCH : (number + 1) * BATCH]),
        )
        half = count // 2
        ask("with a key each come", half, produce("keys", lambda number: {"key": f"key-{number}"}))
        ask("of any delay come", half, produce("late", lambda number: {"delay": 3600 + 3600 * random.random()}))
        ask("of any priority come", half, produce("ranks", lambda number: {"priority": random.randrange(-1000, 1000)}))
        ask("of any priority are consumed", half, lambda number: client.request(2, queue="ranks", count=BATCH))


PARTS: Final[dict[str, Callable[[float], None]]] = {
    "grow": grown,
    "clear": clear,
    "list": listed,
    "hand-over": handed_over,
    "lost": lost,
    "trim": trimmed,
    "crowd": crowded,
}


def main() -> None:
    """Run what is named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    os.environ["QUORATE_WATCHDOG"] = str(WATCHDOG_MS)
    os.environ.setdefault("BENCH_DIR", str(Path.cwd()))
    for name in arguments.parts or PARTS:
        PARTS[name](arguments.scale)


if __name__ == "__main__":
    main()
