"""python -m bench.security: what locks cost, and what strangers do to those who have the key. Takes some minutes.

`python -m bench.security access sealed tls strangers fuzz fields` runs only the parts that are named. `tls` needs
trustme; `fields` takes ten minutes.
"""

import contextlib
import multiprocessing
import os
import random
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from actors.gateway.access import TokenHash, new_token
from actors.node.private_files import new_secret, write_secrets
from bench.cluster_nodes import running_cluster
from bench.fields import fields
from bench.load import load
from bench.node import cpu_seconds, running_node
from net.peers.link import LinkTerms, Origin, PeerLink, encoded
from net.peers.messages import (
    PEER_MAJOR,
    Forward,
    ForwardAnswers,
    ForwardedCall,
    Hello,
    PeerMessage,
    Pull,
    Push,
    SnapshotRows,
    Stored,
    Vote,
    VoteRequest,
)
from net.peers.proof import Keyring
from net.protocols.json_session import JsonSession
from net.protocols.session import Fault, RequestLimits
from quorate import Client
from quorate.protocol import Action, Request

PORT: Final = 11_380
ROUNDS: Final = 7
REQUESTS: Final = {8: 30_000, 64: 60_000}
STRANGERS: Final = 1000
DIALS_PER_S: Final = 10
STRANGERS_S: Final = 12.0
FUZZED: Final = 10_000_000


def _worker_pid(port: int, **shown: Any) -> int:
    with Client(port=port, **shown) as client:
        return int(client.status()["pid"])


Server = tuple[Callable[[int], dict[str, float]], list[int]]
"""How it is asked, given so many connections; and its processes."""


def _compare(title: str, servers: dict[str, Server], wanted: float) -> None:
    """Measure two servers alternately, by requests a second and by the CPU time of their processes for each request."""
    for connections, requests in REQUESTS.items():
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
        for n in range(ROUNDS):
            for name, (run, pids) in list(servers.items())[:: -1 if n % 2 else 1]:  # who comes first takes turns
                before = sum(map(cpu_seconds, pids))
                figures = run(connections)
                cpu_us = (sum(map(cpu_seconds, pids)) - before) / requests * 1e6
                found[name].append((figures["rps"], cpu_us, figures["p99_us"]))
        columns = {name: zip(*rows, strict=True) for name, rows in found.items()}
        medians = {name: [statistics.median(one) for one in its] for name, its in columns.items()}
        (plain, locked) = medians.values()
        print(f"{title}, {connections} connections, medians of {ROUNDS} alternating rounds:")
        for name, (rps, cpu_us, p99_us) in medians.items():
            print(f"  {name:16} {rps:8.0f} requests/s  {cpu_us:6.1f} us of CPU each  p99 {p99_us:6.0f} us")
        print(f"  ratio {locked[0] / plain[0]:.3f} (wanted: {wanted}); by CPU time {plain[1] / locked[1]:.3f}")


def access() -> None:
    """A node with an access file, clients with tokens, beside one without."""
    with tempfile.TemporaryDirectory() as folder:
        token, path = new_token("bench"), Path(folder) / "access.toml"
        path.write_text(
            f'[principals.bench]\ntokens = ["{TokenHash.of(token).text}"]\n'
            'allow = ["produce:bench*", "consume:bench*", "look"]\n'
        )
        path.chmod(0o600)
        with running_node(PORT), running_node(PORT + 1, access_file=str(path)):
            _compare(
                "access file and tokens",
                {
                    "without": (lambda n: load("quorate", PORT, n, REQUESTS[n]), [_worker_pid(PORT)]),
                    "with": (
                        lambda n: load("quorate", PORT + 1, n, REQUESTS[n], token=token),
                        [_worker_pid(PORT + 1, token=token)],
                    ),
                },
                0.97,
            )


def sealed() -> None:
    """Three nodes with a secret beside three without one; all ask the leader."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "secret"
        write_secrets(path, [new_secret()])
        with running_cluster(PORT) as plain, running_cluster(PORT + 100, cluster_secret_file=str(path)) as locked:

            def of(cluster: Any) -> Server:
                port = cluster.nodes[cluster.leader()].port
                pids = [_worker_pid(node.port) for node in cluster.nodes.values()]
                return lambda n: load("quorate", port, n, REQUESTS[n]), pids

            _compare("three nodes, authenticated frames", {"without": of(plain), "with": of(locked)}, 0.95)


def tls() -> None:
    """The clients' port with TLS beside one without; the load is `qctl bench`, which is slower than a node."""
    import trustme  # a tool of the tests

    with tempfile.TemporaryDirectory() as folder:
        authority = trustme.CA()
        ca, certificate = Path(folder) / "ca.pem", Path(folder) / "server.pem"
        authority.cert_pem.write_to_path(str(ca))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
        with running_node(PORT), running_node(PORT + 1, tls=1, tls_cert=str(certificate)):

            def run(port: int, *options: str) -> Callable[[int], dict[str, float]]:
                def bench(connections: int) -> dict[str, float]:
                    words = ["-m", "quorate_server", "bench", "--json", "--port", str(port), "-c", str(connections)]
                    asked = [*words, "-n", str(REQUESTS[connections]), *options]
                    printed = subprocess.run(
                        [sys.executable, "-c", "from cli.main import main; main()", *asked[2:]],
                        capture_output=True, text=True, check=True,
                    ).stdout  # fmt: skip
                    found = msgspec.json.decode(printed)
                    return {"rps": found["requests_per_s"], "p99_us": found["p99_us"]}

                return bench

            pids = [[_worker_pid(PORT)], [_worker_pid(PORT + 1, ca=str(ca))]]
            servers = {"without": (run(PORT), pids[0]), "with": (run(PORT + 1, "--ca", str(ca)), pids[1])}
            _compare("TLS on the clients' port", servers, 0.0)


def strangers() -> None:
    """Clients of a cluster while a thousand strangers, each at an address of its own, dial its leader's nodes' port."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "secret"
        write_secrets(path, [new_secret()])
        with running_cluster(PORT, cluster_secret_file=str(path)) as cluster:
            leader = cluster.leader()
            port = cluster.nodes[leader].port
            nodes_port = cluster.listed[leader - 1]["port"]
            load("quorate", port, 8, 20_000)
            found: dict[str, list[float]] = {"nobody": [], "a port where nobody listens": [], "the nodes' port": []}
            dials = 0
            for _ in range(ROUNDS):
                for name, at in zip(found, (0, PORT + 90, nodes_port), strict=True):
                    counted = multiprocessing.Value("i", 0)
                    crowd = multiprocessing.Process(target=_dial, args=(at, STRANGERS_S, counted), daemon=True)
                    if at:
                        crowd.start()
                    time.sleep(0.5)
                    before, begun = counted.value, time.monotonic()
                    found[name].append(load("quorate", port, 8, 20_000)["p99_us"])
                    if at:
                        dials = int((counted.value - before) / (time.monotonic() - begun))
                        crowd.terminate()
                        crowd.join()
            medians = {name: statistics.median(each) for name, each in found.items()}
            quiet = medians["nobody"]
            print(f"{STRANGERS} strangers on this machine, {dials} dials/s, 8 clients, medians of {ROUNDS} rounds:")
            for name, p99_us in medians.items():
                print(f"  dialling {name:28} p99 {p99_us:6.0f} us, ratio {p99_us / quiet:.2f} (wanted: 1.5 at most)")


def _dial(port: int, seconds: float, counted: Any) -> None:
    """Strangers, each dialling so often a second from an address of its own, and saying something.

    They stand back from the nodes: in earnest they are on machines of their own.
    """
    os.nice(19)
    until = time.monotonic() + seconds
    linger = struct.pack("ii", 1, 0)
    open_ones: list[socket.socket] = []
    begun, done = time.monotonic(), 0
    while time.monotonic() < until:
        due = int((time.monotonic() - begun) * STRANGERS * DIALS_PER_S)
        if done >= due:
            time.sleep(0.001)
            continue
        for _ in range(min(due - done, 50)):
            done += 1
            stranger = done % STRANGERS
            sock = socket.socket()
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sock.bind((f"127.1.{stranger // 250}.{stranger % 250 + 1}", 0))
            sock.connect_ex(("127.0.0.1", port))
            open_ones.append(sock)
            if len(open_ones) > 200:
                oldest = open_ones.pop(0)
                with contextlib.suppress(OSError):  # it was turned away
                    oldest.send(b"GET / HTTP/1.1\r\n")
                oldest.close()
        counted.value = done


def fuzz() -> None:
    """Mutated frames and mutated requests through the sessions, in as many processes as there are cores."""
    for name, run in (("peer frames", _fuzz_frames), ("client requests", _fuzz_requests)):
        begun, cores = time.monotonic(), os.cpu_count() or 1
        with multiprocessing.Pool(cores) as pool:
            found = pool.starmap(run, [(seed, FUZZED // cores) for seed in range(cores)])
        grown = max(after - before for _, before, after in found)
        taken = sum(one[0] for one in found)
        print(
            f"{FUZZED} mutated {name}: 0 crashes, {taken} were still whole, memory grew by {grown / 1024:.1f} MiB "
            f"after the first tenth; {time.monotonic() - begun:.0f} s"
        )


def _mutated(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        kind, at = draw.random(), draw.randrange(len(changed) + 1)
        if kind < 0.5 and at < len(changed):
            changed[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif kind < 0.7:
            del changed[at : at + draw.randrange(1, 9)]
        elif kind < 0.9:
            changed[at:at] = draw.randbytes(draw.randrange(1, 9))
        else:
            changed[at:at] = changed[: draw.randrange(1, 30)]
    return bytes(changed)


def _memory_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Nobody:
    """The ends of a link that nobody listens to."""

    taken = 0

    def write(self, data: bytes) -> None:
        """Nothing."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    close = abort = lambda self: None

    def link_hello(self, link: PeerLink, hello: Hello) -> None:
        """Let in."""
        link.is_open = True

    def link_said(self, link: PeerLink, message: PeerMessage) -> None:
        """Counted."""
        self.taken += 1

    link_renewed = link_said

    def link_receiving(self, link: PeerLink) -> None:
        """Nothing."""

    def link_drained(self, link: PeerLink) -> None:
        """Nothing waits here."""

    def link_closed(self, link: PeerLink, reason: str) -> None:
        """Nothing."""


def _fuzz_frames(seed: int, count: int) -> tuple[int, int, int]:
    draw, nobody = random.Random(seed), _Nobody()
    request = Request(Action.PRODUCE, queue="q", data=msgspec.Raw(b"1"))
    said: list[PeerMessage] = [
        VoteRequest(5, False, True, 4, 100),
        Vote(5, False, True),
        Push(5, 10, 4, [b"entry" * 10], 9, 1.5),
        Stored(5, 11, 1.5),
        Pull(5, 10, 4, 100),
        SnapshotRows(5, 1, 1, b"m", [(b"k", b"v")], b"c", False, b"a"),
        Forward(1, [ForwardedCall(1, 1, 1000, request, [b"1"])]),
        ForwardAnswers([(1, (0, b"\x80", []))], 1),
    ]
    hello = encoded(Hello(PEER_MAJOR, 0, 1, 2, 1, 9, 22, "h", 1))
    frames = [encoded(one) for one in said]
    opening = Keyring().opening() + len(hello).to_bytes(4, "big") + hello
    terms, origin = LinkTerms(), Origin(is_trusted=True)
    before = 0
    link: PeerLink | None = None
    for n in range(count):
        if n == count // 10:
            before = _memory_kib()
        if link is None or link.is_closed:
            link = PeerLink(nobody, nobody, terms, is_dialler=False, origin=origin)
            link.receive(opening)
        frame = _mutated(frames[n % len(frames)], draw)
        link.receive(len(frame).to_bytes(4, "big") + frame)
    return nobody.taken, before, _memory_kib()


def _fuzz_requests(seed: int, count: int) -> tuple[int, int, int]:
    draw, taken, before = random.Random(seed), 0, 0
    requests = [
        b'{"action":1,"queue":"mail","data":{"a":[1,2,"x"]},"delay":5,"ttl":60,"retry":5,"key":"k"}',
        b'{"action":1,"queue":"q","messages":[{"data":1,"priority":3},{"data":"eA==","encoding":"base64"}]}',
        b'{"action":2,"queues":["a","b"],"wait":1,"count":5,"consumer":"me","seq":"7"}',
        b'{"action":3,"msg_ids":[1024,2048],"queue":"q"}',
        b'{"action":16,"token":"worker.abcdefgh"}',
        b'{"action":5,"queue":"q","dead_letter":"d","max_size":5,"paused":true}',
    ]
    limits = RequestLimits(request_bytes_max=4096)
    session = JsonSession(limits)
    for n in range(count):
        if n == count // 10:
            before = _memory_kib()
        found = session.receive(_mutated(requests[n % len(requests)], draw) + b"\n")
        for one in found:
            if isinstance(one, Request):
                taken += 1
            elif isinstance(one, Fault):
                session.answered(None, session.fault_reply(one))
                if one.is_fatal:
                    session = JsonSession(limits)
    return taken, before, _memory_kib()


PARTS: Final = {
    "access": access,
    "sealed": sealed,
    "tls": tls,
    "strangers": strangers,
    "fuzz": fuzz,
    "fields": fields,
}


def main() -> None:
    """Run what is named, or all."""
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
