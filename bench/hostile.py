"""python -m bench.hostile: what clients that mean harm do to a node alone, to three, and to a client with a token.

Each attack runs for some seconds, in a process of its own, against the node that is asked by the good client (of three
nodes: a follower, so that all of it is forwarded as well). Told of each: workers that ended, changes of leader, the
most memory that a worker took beyond what it had, and the good client's p99 as a multiple of what it is without.
`python -m bench.hostile deep flood` runs only those that are named; `--seconds 20`. What speaks Disque is run against
the one node alone, which listens for it.
"""

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from actors.gateway.access import TokenHash, new_token
from bench.cluster_nodes import running_cluster
from bench.node import BenchNode, Growth, running_node
from net.clients.resting import FIRST_BYTES
from quorate import Client, QuorateError

PORT: Final = 11_420
HELD_BYTES: Final = 128 << 20
LIMITS: Final[dict[str, object]] = {
    "max_held_bytes": HELD_BYTES,
    "max_connections": 300,
    "stalled_timeout_s": 5,
    "max_memory_bytes": 256 << 20,
}
DISQUE: Final = PORT + 1
CROWD: Final = 250
"""Connections that all send at one moment."""

WRITES: Final = 100
"""So many tell which processors serve the disk."""

PAUSE_S: Final = 0.01
CALM_S: Final = 10.0
"""Before each attack, and again behind it: of less the slowest one in a hundred is chance."""

REST_S: Final = 2.0
"""What an attack has begun ends within it."""


ACCESS: Final = """
[principals.good]
tokens = ["{good}"]
allow = ["produce", "consume", "look"]
[principals.mine]
tokens = ["{mine}"]
allow = ["manage:mine*"]
[anonymous]
allow = ["produce:public*", "consume:public*", "look"]
"""


# -- attacks: each goes on until its process is ended ------------------------------------------------------------------


def _dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 5)


def _again(once: Callable[[], None]) -> None:
    """For ever; whatever the node does to the attacker, it comes again."""
    while True:
        with contextlib.suppress(OSError):
            once()
        time.sleep(0.002)


def _sent(port: int, data: bytes) -> None:
    with _dial(port) as sock:
        sock.sendall(data)
        sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            sock.recv(65536)


def deep(port: int, token: str) -> None:
    """Bodies that are deep in a field that stands twice, over TCP and UDP."""
    body = b'{"action":1,"queue":"public","data":' + b"[" * 988 + b"]" * 988 + b',"data":1}'
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def once() -> None:
        datagrams.sendto(body, ("127.0.0.1", port))
        _sent(port, body)

    _again(once)


def doubled(port: int, token: str) -> None:
    """4 MiB of empty objects in a field that stands twice."""
    body = b'{"action":1,"queue":"public","messages":[' + b"{}," * 1_300_000 + b'{}],"messages":[{"data":1}]}'
    _again(lambda: _sent(port, body))


def replies(port: int, token: str) -> None:
    """A consumer that waits, and behind it requests with long replies, which wait for theirs."""
    with Client(port=port) as client, contextlib.suppress(QuorateError):
        client.produce_many("public", ["x" * 100_000] * 40, ttl=3600)
    socks: list[socket.socket] = []

    def once() -> None:
        sock = _dial(port)
        sock.sendall(b'{"action":2,"queue":"public-none","wait":3600}')
        sock.sendall(b'{"action":11,"queue":"public","count":40}' * 100)
        socks.append(sock)
        del socks[:-50]

    _again(once)


def waiting(port: int, token: str) -> None:
    """Consumers that wait, each with a megabyte that no consumer needs."""
    body = b'{"action":2,"queue":"public-none","wait":3600,"data":"' + b"x" * 1_000_000 + b'"}'
    socks: list[socket.socket] = []

    def once() -> None:
        sock = _dial(port)
        sock.settimeout(2)
        socks.append(sock)
        del socks[:-50]
        for _ in range(64):
            sock.sendall(body)

    _again(once)


def flood(port: int, token: str) -> None:
    """Large produces, pipelined over several connections."""
    items = b",".join([b'{"data":"' + b"x" * 900_000 + b'"}'] * 4)
    body = b'{"action":1,"queue":"public","ttl":1,"messages":[' + items + b"]}"

    def stream() -> None:
        def once() -> None:
            with _dial(port) as sock:
                for _ in range(20):
                    sock.sendall(body)
                sock.settimeout(5)
                with contextlib.suppress(TimeoutError):
                    while sock.recv(65536):
                        pass

        _again(once)

    for _ in range(3):
        threading.Thread(target=stream, daemon=True).start()
    stream()


def places(port: int, token: str) -> None:
    """All places taken, by clients that say nothing."""
    socks: list[socket.socket] = []

    def once() -> None:
        socks.append(_dial(port))
        del socks[:-1000]

    _again(once)


def partial(port: int, token: str) -> None:
    """Requests that never become whole."""
    body = b'{"action":1,"queue":"public","data":"' + b"x" * 3_000_000
    socks: list[socket.socket] = []

    def once() -> None:
        sock = _dial(port)
        sock.settimeout(1)
        socks.append(sock)
        del socks[:-200]
        sock.sendall(body)

    _again(once)


def unread(port: int, token: str) -> None:
    """Replies that nobody reads, just short of what a client may owe."""
    with Client(port=port) as client, contextlib.suppress(QuorateError):
        client.produce_many("public", ["x" * 90_000] * 10, ttl=3600)
    socks: list[socket.socket] = []

    def once() -> None:
        sock = _dial(port)
        sock.sendall(b'{"action":11,"queue":"public","count":9}' * 4)
        socks.append(sock)
        del socks[:-250]

    _again(once)


def audit(port: int, token: str) -> None:
    """Clears of what is not there, by who may manage his own queues."""

    def once() -> None:
        with Client(port=port, token=token) as client, contextlib.suppress(QuorateError):
            for _ in range(1000):
                client.request(6, queue="mine")

    _again(once)


def _crowd(port: int, body: bytes, pause_s: float) -> None:
    """Many connections, each of which sends that at the same moment as all others, again and again."""
    socks = [_dial(port) for _ in range(CROWD)]
    while True:
        for at, sock in enumerate(socks):
            sock.setblocking(False)
            try:
                sock.send(body)
            except BlockingIOError:
                pass
            except OSError:
                sock.close()
                with contextlib.suppress(OSError):
                    socks[at] = _dial(port)
        time.sleep(pause_s)
        for sock in socks:
            with contextlib.suppress(OSError):
                while sock.recv(1 << 20):
                    pass


def tiny(port: int, token: str) -> None:
    """What is no request, two hundred times in 400 bytes."""
    _crowd(port, b"{}" * 200, 0.5)


def commands(port: int, token: str) -> None:
    """Disque's longest answer that needs no right."""
    _crowd(DISQUE, b"COMMAND\r\n" * 100, 0.5)


def batches(port: int, token: str) -> None:
    """A thousand messages in each request, and as many taken again."""
    body = b'{"action":1,"queue":"public","ttl":1,"messages":[' + b",".join([b'{"data":1}'] * 1000) + b"]}"
    _crowd(port, body + b'{"action":2,"queue":"public","count":1000}', 1.0)


def cancels(port: int, token: str) -> None:
    """Consumers that wait, and cancels of some that do not."""
    waits = [
        b"".join(b'{"action":2,"queue":"public-none","wait":3600,"seq":%d}' % seq for seq in range(120))
        for _ in range(CROWD // 2)
    ]
    socks = [_dial(port) for _ in waits]
    for sock, body in zip(socks, waits, strict=True):
        sock.sendall(body)
    body = b"".join(b'{"action":19,"seq":"x%d"}' % seq for seq in range(400))

    def once() -> None:
        with _dial(port) as sock:
            sock.sendall(body)
            sock.settimeout(5)
            left = 400
            while left > 0 and (data := sock.recv(65536)):
                left -= data.count(b"\n")

    _again(once)


def leaving(port: int, token: str) -> None:
    """Consumers that wait, all of whose connections are reset at one moment, again and again."""
    body = b"".join(b'{"action":2,"queue":"public-none","wait":3600,"seq":%d}' % seq for seq in range(120))

    def once() -> None:
        socks = [_dial(port) for _ in range(CROWD)]
        for sock in socks:
            sock.sendall(body)
        time.sleep(0.5)
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()

    _again(once)


def newcomers(port: int, token: str) -> None:
    """As many connections as come in, each with what is no request, as much of it as a token may have."""
    socks: list[socket.socket] = []
    body = b"{}" * (FIRST_BYTES // 2)

    def once() -> None:
        for _ in range(50):
            sock = _dial(port)
            sock.sendall(body)
            socks.append(sock)
        del socks[:-250]

    _again(once)


ALONE: Final = frozenset({"commands"})
ATTACKS: Final = {
    one.__name__: one
    for one in (
        deep, doubled, replies, waiting, flood, places, partial, unread, audit,
        tiny, commands, batches, cancels, leaving, newcomers,
    )
}  # fmt: skip


def _beside(name: str, port: int, token: str, cpus: set[int]) -> None:
    """Attack with what is left of the processors: an attacker's own work is done on other machines than the node's.

    `cpus`: where it may run. What it sends holds up the interrupts of the processor that it is sent from.
    """
    os.nice(19)
    os.sched_setaffinity(0, cpus)
    ATTACKS[name](port, token)


def _interrupts() -> list[int]:
    """Count the interrupts that devices have had of each processor."""
    with open("/proc/interrupts", encoding="ascii", errors="replace") as file:
        cpus = len(file.readline().split())
        rows = [line.split()[1 : cpus + 1] for line in file if line.split()[0].rstrip(":").isdigit()]
    return [sum(map(int, column)) for column in zip(*rows, strict=True)]


@functools.cache
def _without_disk() -> set[int]:
    """Find the processors that do not serve the disk's interrupts, if there are such: one of two, often.

    A write that is done is told of behind what that processor does for the system, and to send megabytes to a process
    of the same machine is milliseconds of that. Over a network it is not.
    """
    cpus = os.sched_getaffinity(0)
    try:
        before = _interrupts()
        with tempfile.TemporaryFile(dir=os.environ.get("BENCH_DIR", ".")) as file:
            for _ in range(WRITES):
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
        grown = [after - was for was, after in zip(before, _interrupts(), strict=True)]
    except (OSError, ValueError, IndexError):
        return cpus
    return {cpu for cpu, count in enumerate(grown) if cpu in cpus and count < WRITES / 2} or cpus


# -- the good client --------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """The good client's latencies (s), and its requests that failed."""

    latencies: list[float]
    failed: list[str]

    @property
    def p99(self) -> float:
        """Seconds."""
        return statistics.quantiles(self.latencies, n=100)[98] if len(self.latencies) > 100 else float("inf")


def _good(port: int, token: str, seconds: float) -> Seen:
    """Produce, consume and confirm, one after the other, at no great rate."""
    seen = Seen([], [])
    until = time.monotonic() + seconds
    with Client(port=port, token=token, timeout=10) as client:
        while time.monotonic() < until:
            begun = time.monotonic()
            try:
                client.produce("good", b"x" * 100, retry=60)
                message = client.consume("good")
                if message is not None:
                    client.confirm(message)
            except QuorateError as error:
                seen.failed.append(repr(error)[:120])
            seen.latencies.append(time.monotonic() - begun)
            time.sleep(PAUSE_S)
    return seen


class _Watched:
    """The nodes under attack."""

    def __init__(self, nodes: list[BenchNode], token: str) -> None:
        self._nodes = nodes
        self._token = token
        self.pids = {pid for node in nodes for pid in node.worker_pids}
        self.vote_id = self._vote_id()
        self.growth = Growth(self.pids)

    def _vote_id(self) -> int:
        with Client(port=self._nodes[0].port, token=self._token, timeout=20) as client:
            return int(client.request(8).get("vote_id", 0))

    def end(self) -> tuple[int, int]:
        """Workers that ended, changes of leader."""
        self.growth.end()
        ended = len(self.pids - {pid for node in self._nodes for pid in node.worker_pids})
        return ended, self._vote_id() - self.vote_id


def _attack(
    name: str, nodes: list[BenchNode], asked: BenchNode, tokens: dict[str, str], seconds: float
) -> dict[str, Any]:
    before = _good(asked.port, tokens["good"], CALM_S)
    watched = _Watched(nodes, tokens["good"])
    process = multiprocessing.get_context("spawn").Process(
        target=_beside, args=(name, asked.port, tokens["mine"], _without_disk()), daemon=True
    )
    process.start()
    try:
        time.sleep(1.0)
        seen = _good(asked.port, tokens["good"], seconds)
    finally:
        process.kill()
        process.join()
    ended, changes = watched.end()
    time.sleep(REST_S)
    after = _good(asked.port, tokens["good"], CALM_S)
    calm = Seen(before.latencies + after.latencies, before.failed + after.failed)
    return {
        "attack": name, "nodes": len(nodes), "workers ended": ended, "changes of leader": changes,
        "memory MiB": watched.growth.bytes >> 20, "good requests": len(seen.latencies), "failed": len(seen.failed),
        "p99 ms without": round(calm.p99 * 1e3, 1), "p99 ms": round(seen.p99 * 1e3, 1),
        "times": round(seen.p99 / calm.p99, 1), "why": seen.failed[:1],
    }  # fmt: skip


@contextlib.contextmanager
def _access() -> Iterator[tuple[str, dict[str, str]]]:
    tokens = {name: new_token(name) for name in ("good", "mine")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "access.toml"
        path.write_text(ACCESS.format(**{name: TokenHash.of(token).text for name, token in tokens.items()}))
        path.chmod(0o600)
        yield str(path), tokens


def main() -> None:
    """Run what is named, against one node and against three."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attacks", nargs="*", choices=[*ATTACKS, []])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    names = arguments.attacks or list(ATTACKS)
    with _access() as (path, tokens):
        settings = {**LIMITS, "access_file": path}
        for size in (1, 3):
            with contextlib.ExitStack() as stack:
                if size == 1:
                    listeners = [{"protocol": "disque", "host": "127.0.0.1", "port": DISQUE}]
                    nodes = [stack.enter_context(running_node(PORT, listeners=listeners, **settings))]
                    asked = nodes[0]
                else:
                    cluster = stack.enter_context(running_cluster(PORT + 10, size, **settings))
                    nodes = list(cluster.nodes.values())
                    with Client(port=nodes[0].port, token=tokens["good"], timeout=20) as client:
                        leader = int(client.request(8)["leader_node_id"])
                    asked = next(node for node_id, node in cluster.nodes.items() if node_id != leader)
                for name in names:
                    if size > 1 and name in ALONE:
                        continue
                    row = _attack(name, nodes, asked, tokens, arguments.seconds)
                    print(
                        json.dumps(row) if arguments.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True
                    )


if __name__ == "__main__":
    main()
