"""Well-formed nonsense to live nodes: part `fields` of `bench.security`. See `bench.field_cases`.

Every case goes to a node alone, and those of queues also to a follower of three nodes, which forwards them over a link.
A request that ends a worker, or that a node fails at (`internal_error`), is printed with its seed.
"""

import socket
import sys
import time
from collections.abc import Iterator
from random import randrange
from typing import Any, Final

import msgspec

from bench.cluster_nodes import running_cluster
from bench.field_cases import cases
from bench.node import BenchNode, running_node
from quorate import Client
from quorate.action_fields import READS
from quorate.protocol import Action

SECONDS: Final = 600.0
"""For all of it; a shorter time is shared by the actions, and each gets its first cases."""

FAILED: Final = b'"internal_error"'

TOGETHER: Final = 50
"""Requests that are open at a time."""

LEFT_OUT: Final = frozenset({Action.NODE_LEAVE, Action.CLIENT, Action.AUTHENTICATE})
"""What closes connections, or has a node lead nothing."""

OF_NODE_ALONE: Final = frozenset({Action.CLUSTER, Action.NODE_INIT, Action.POSITION, Action.NODE_CONFIG, Action.LOG})
"""What would change the cluster, or is not forwarded."""


def _prepare(client: Client) -> tuple[int, ...]:
    client.configure("b", dead_letter="b.dead")
    first = client.produce("a", 1, key="k", retry=3600)
    ids = [first, client.produce("a", 2, retry=3600), client.produce("b", 3)]
    client.consume("a")
    return tuple(ids)


def _asked(sock: socket.socket, some: list[dict[str, Any]]) -> Iterator[bytes]:
    """Ask for all of these, and give their replies as they come; behind each raw reply's line are its bytes."""
    sock.sendall(b"".join(msgspec.json.encode({**case, "seq": n}) + b"\n" for n, case in enumerate(some)))
    data, missing = b"", len(some)
    while missing:
        got = sock.recv(1 << 16)
        if not got:
            raise ConnectionError("closed")
        data += got
        while b"\n" in data:
            line, data = data.split(b"\n", 1)
            yield line
            missing -= 1


def _feed(node: BenchNode, actions: list[int], seconds: float, seed: int) -> tuple[int, list[str]]:
    """Feed a node; how many cases, and what went wrong."""
    wrong: list[str] = []
    done = 0
    with Client(port=node.port) as client:
        ids = _prepare(client)
    for action in actions:
        until, some = time.monotonic() + seconds / len(actions), []
        sock = socket.create_connection(("127.0.0.1", node.port), 30)
        for case in cases(action, seed, ids):
            if case.get("raw") or "seq" in case:
                continue
            some.append(case)
            if len(some) < TOGETHER:
                continue
            try:
                replies = list(_asked(sock, some))
                wrong += [f"seed {seed}, action {action}: {one.decode()}" for one in replies if FAILED in one]
            except (OSError, ConnectionError) as error:
                wrong.append(f"seed {seed}, action {action}: {error!r} at {some}")
                sock = socket.create_connection(("127.0.0.1", node.port), 30)
            done += len(some)
            some = []
            if time.monotonic() > until:
                break
        sock.close()
    return done, wrong


def fields(seconds: float = SECONDS) -> None:
    """Any combination of fields to a live node, and over a link."""
    seed = randrange(10**6)
    with running_node(11_390) as node:
        before = node.worker_pids
        done, wrong = _feed(node, [action for action in READS if action not in LEFT_OUT], seconds / 2, seed)
        ended = int(before != node.worker_pids)
    print(f"a node alone, seed {seed}: {done} cases, {len(wrong)} failed, {ended} workers ended")
    with running_cluster(11_392) as cluster:
        leader = cluster.leader()
        follower = next(node for node_id, node in cluster.nodes.items() if node_id != leader)
        pids = {n: one.worker_pids for n, one in cluster.nodes.items()}
        actions = [action for action in READS if action not in LEFT_OUT | OF_NODE_ALONE]
        more, linked = _feed(follower, actions, seconds / 2, seed)
        lost = sum(pids[n] != one.worker_pids for n, one in cluster.nodes.items())
        has_moved = cluster.leader() != leader
    print(
        f"over a link, seed {seed}: {more} cases, {len(linked)} failed, {lost} workers ended, leader lost: {has_moved}"
    )
    for one in [*wrong, *linked][:20]:
        print(one)
    if wrong or linked or ended or lost:
        sys.exit(1)
