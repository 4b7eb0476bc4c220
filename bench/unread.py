"""python -m bench.unread: what a worker takes whose clients each leave 16 MB of replies unread, beside what is set.

Hundreds of clients, none of them a stranger, peek at 4 MB four times and read nothing: of a node alone, and of a
follower of three, where each reply comes in one piece from the leader. Told behind each round: the most that the worker
took more than to begin with (MiB), and what it still takes when all of them are gone.
"""

import argparse
import contextlib
import socket
import time

from bench.cluster_nodes import running_cluster
from bench.node import BenchNode, Growth, resident_bytes, running_node
from quorate import Client

PORT = 11_560
PEEKS = b'{"action":11,"queue":"unread","count":40}' * 4
ROUND_S = 4.0


def _measure(what: str, node: BenchNode, clients: int, rounds: int) -> None:
    with Client(port=node.port, timeout=20) as client:
        client.produce_many("unread", ["x" * 100_000] * 40, ttl=3600)
    (pid,) = node.worker_pids
    before, growth = resident_bytes(pid), Growth([pid])
    for number in range(1, rounds + 1):
        socks: list[socket.socket] = []
        for _ in range(clients):
            with contextlib.suppress(OSError):  # who holds most is cut off
                socks.append(socket.create_connection(("127.0.0.1", node.port), 5))
                socks[-1].sendall(PEEKS)
        time.sleep(ROUND_S)
        for sock in socks:
            sock.close()
        time.sleep(1.0)
        left = resident_bytes(pid) - before
        print(f"{what}, round {number}: {growth.bytes >> 20} MiB at most, {left >> 20} afterwards", flush=True)
    growth.end()


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--held", type=int, default=128, help="max_held_bytes, in MiB")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    settings = {"max_held_bytes": arguments.held << 20, "max_connections": arguments.clients + 100}
    with running_node(PORT, **settings) as node:
        _measure("one node", node, arguments.clients, arguments.rounds)
    with running_cluster(PORT + 10, 3, **settings) as cluster:
        leader = cluster.leader()
        follower = next(node for number, node in cluster.nodes.items() if number != leader)
        _measure("through a follower", follower, arguments.clients, arguments.rounds)


if __name__ == "__main__":
    main()
