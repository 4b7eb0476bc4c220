"""python -m bench.connections: what a client costs that connects for each of its requests, as PHP's do.

One after the other connects, sends one request, reads the reply, and closes: CPU microseconds of the node's processes,
and wall time, beside a client that asks the same on one connection. Nodes are asked by turns. `--beside FOLDER` takes
another checkout's code into the run, compiled there. `--rounds N`. The requests make no record; logs are full all the
same.
"""

import argparse
import contextlib
import socket
import statistics
import time
from typing import Final

from actors.node.launch import SUPERVISOR
from bench.steady import FULL_RECORDS, PORT, Contender, contender, program_of

REQUEST: Final = b'{"action":8}'
CLIENTS: Final = 600
"""In each round."""


def connect_for_each(port: int) -> None:
    """Connect for each request."""
    for _ in range(CLIENTS):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(REQUEST)
            sock.recv(4096)


def stay(port: int) -> None:
    """Send all on one connection."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(CLIENTS):
            sock.sendall(REQUEST)
            sock.recv(4096)


WAYS: Final = {"connects for each": connect_for_each, "stays": stay}


def measure(one: Contender, way: str) -> tuple[float, float]:
    """CPU and wall time of each request (us)."""
    before, begun = one.cpu_s(), time.monotonic()
    WAYS[way](one.asked.port)
    took_s = time.monotonic() - begun
    return (one.cpu_s() - before) / CLIENTS * 1e6, took_s / CLIENTS * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.connections")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--beside", help="another checkout's folder")
    arguments = parser.parse_args()
    wanted = [("here", SUPERVISOR)]
    if arguments.beside is not None:
        wanted.append((arguments.beside, program_of(arguments.beside)))
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(contender(name, "interval", PORT + 200 * index, FULL_RECORDS, program))
            for index, (name, program) in enumerate(wanted)
        ]
        for one in nodes:
            one.load(8, FULL_RECORDS * 5 // 4)
        for way in WAYS:
            found: dict[str, list[tuple[float, float]]] = {one.name: [] for one in nodes}
            for number in range(arguments.rounds):
                for one in nodes if number % 2 == 0 else reversed(nodes):
                    found[one.name].append(measure(one, way))
            for name, rows in found.items():
                cpu, wall = (statistics.median(values) for values in zip(*rows, strict=True))
                print(f"{way:18} {name:12} {cpu:6.0f} us of CPU, {wall:6.0f} us each", flush=True)


if __name__ == "__main__":
    main()
