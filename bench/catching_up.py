"""python -m bench.catching_up: how long consumers wait for who takes the lead when very much has come due meanwhile.

Three nodes with many delayed messages and no other requests. Once all are due, the leader is killed (kill -9): told is
for how long nobody leads, and when the first consumer has the message of the highest priority. Then the same after a
stop of all three nodes, which is over when the messages are due. Beside it, both without any message that is due.
"""

import argparse
import time

from bench.cluster_nodes import BenchCluster, running_cluster
from quorate import Client, QuorateError

PORT = 11_711
BATCH = 1000


def produced(cluster: BenchCluster, count: int, delay_s: float) -> float:
    """Produce so many messages, due then; the last one has the highest priority. When they are due (Unix s)."""
    due_at = time.time() + delay_s
    leader = cluster.nodes[cluster.leader()]
    with Client(port=leader.port, timeout=30) as client:
        for first in range(0, count, BATCH):
            client.produce_many("due", ["x" * 100] * min(BATCH, count - first), delay=due_at, retry=60)
        if count:
            client.produce("due", "first", delay=due_at, retry=60, priority=9)
    if time.time() >= due_at:
        raise SystemExit(f"{count} messages took more than {delay_s:g} s: ask for a longer --delay")
    return due_at


def first_reply(cluster: BenchCluster, begun: float) -> tuple[float, str]:
    """When a consumer was answered (s from `begun`), and with what."""
    nodes = [("127.0.0.1", node.port) for node in cluster.nodes.values()]
    while True:
        try:
            with Client(nodes=nodes, timeout=60) as client:
                message = client.consume("due")
                return time.monotonic() - begun, "nothing" if message is None else str(message.data)
        except QuorateError:
            time.sleep(0.01)


def measure(count: int, delay_s: float, *, restarts: bool) -> None:
    """Once."""
    with running_cluster(PORT) as cluster:
        due_at = produced(cluster, count, delay_s)
        if restarts:
            cluster.stop()
            time.sleep(max(due_at - time.time(), 0.0) + 1.0)
            begun = time.monotonic()
            cluster.start()
        else:
            time.sleep(max(due_at - time.time(), 0.0) + 1.0)
            lost = cluster.leader()
            begun = time.monotonic()
            cluster.nodes.pop(lost).kill()
        took_s, got = first_reply(cluster, begun)
        what = "all three started" if restarts else "leader killed"
        print(f"{what}, {count} messages due meanwhile: first reply after {took_s:.2f} s: {got}", flush=True)
        assert got == ("first" if count else "nothing"), "the highest priority goes first"


def main() -> None:
    """Each of both, without and with messages that are due."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--delay", type=float, default=60.0, help="seconds; all messages are to be there before")
    arguments = parser.parse_args()
    for restarts in (False, True):
        for count in (0, arguments.messages):
            measure(count, arguments.delay if count else 1.0, restarts=restarts)


if __name__ == "__main__":
    main()
