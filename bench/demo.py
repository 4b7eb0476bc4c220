"""make demo: does the main job before your eyes, and proves it line by line.

Three nodes form a cluster of two shards, each led by another node. Every line of the standard library's own modules
becomes a job with a delay and a priority, in one of two queues, one in each shard. The node that leads one shard is
killed with SIGKILL in the middle of producing to it, and the one that leads the other in the middle of consuming. In
the end every line that was acknowledged must have been delivered, and nothing that was confirmed may have come back.

`make demo LINES=20000` does it with fewer lines, in less time, and `LINES=150000` with all.
"""

import argparse
import random
import sys
import sysconfig
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.cluster_nodes import BenchCluster, running_cluster, wait_for
from quorate import Client, ConnectionFailedError, Message, RefusedError, UnknownOutcomeError
from quorate.shards import shard_of_queue
from quorate_compiled import why_interpreted

PORT = 11_311
SHARDS = 2
SETTINGS: Final[dict[str, Any]] = {"shards": SHARDS, "leader_balance_s": 1.0}
QUEUES = ("library", "modules")
"""One in each shard."""

LINES_MAX = 150_000
UNASKED_MAX = 1
"""A machine that is very busy may cost a leader its lead; more than one such is a defect."""

BATCH = 200
DELAYS_S = (0, 0, 0, 1, 3, 6)
PRIORITIES = (0, 0, 0, 1, 5)


def library_lines(most: int = LINES_MAX) -> list[str]:
    """The first lines of the standard library's own modules, in a fixed order."""
    lines: list[str] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
        if len(lines) > most:
            break
    return lines[:most]


@dataclass
class Ledger:
    """What is known for certain."""

    acknowledged: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    repeated: int = 0


class Demo:
    """One run of it, with so many lines at most."""

    def __init__(self, cluster: BenchCluster, lines: int = LINES_MAX) -> None:
        self._cluster = cluster
        nodes = [("127.0.0.1", node.port) for node in cluster.nodes.values()]
        self._client = Client(nodes=nodes, timeout=20)
        self._ledger = Ledger()
        self._lines = library_lines(lines)
        self._random = random.Random(2026)
        self._killer: threading.Timer | None = None
        self._unasked = 0
        self._killed: list[int] = []
        self._killed_shard = 0
        self._killed_at = 0.0

    def run(self) -> bool:
        """Produce, kill, produce on; consume, kill, consume on; prove. Whether all is well."""
        print(
            f"{len(self._lines)} lines of the standard library's modules, as jobs with delays up to {max(DELAYS_S)} s"
        )
        print(f"two shards: {'; '.join(self._who_leads())}")
        self._produce()
        self._consume()
        return self._prove()

    def _leaders(self) -> list[int]:
        return [int(row.get("leader_node_id", 0)) for row in self._client.cluster()["shards"]]

    def _who_leads(self) -> list[str]:
        shards = [shard_of_queue(queue, SHARDS) for queue in QUEUES]
        assert sorted(shards) == list(range(SHARDS)), "a queue in each shard"
        leaders = wait_for(lambda: leaders if len(set(leaders := self._leaders()) - {0}) == SHARDS else [])
        return [f"{queue} in shard {n}, which node {leaders[n]} leads" for queue, n in zip(QUEUES, shards, strict=True)]

    def _kill_leader_soon(self, queue: str) -> None:
        """Kill the node that leads the queue's shard in a moment, while a request is under way."""
        self._killed_shard = shard_of_queue(queue, SHARDS)
        leader = self._leaders()[self._killed_shard]
        self._killed.append(leader)

        def kill() -> None:
            self._killed_at = time.monotonic()
            self._cluster.nodes[leader].kill()

        self._killer = threading.Timer(0.003, kill)
        self._killer.start()

    def _went_on(self, moment: str, queue: str) -> None:
        """A request was answered: if its shard's leader was killed before, another node leads it by now."""
        if self._killer is None or self._killer.is_alive() or shard_of_queue(queue, SHARDS) != self._killed_shard:
            return
        took_s = time.monotonic() - self._killed_at
        self._killer = None
        killed, leader = self._killed[-1], wait_for(lambda: self._leaders()[self._killed_shard])
        print(
            f"  SIGKILL of node {killed}, which led shard {self._killed_shard}, in the middle of {moment}; "
            f"answered again after {took_s:.2f} s, node {leader} leads it",
            flush=True,
        )
        self._cluster.nodes[killed].start()

    def _expected(self, error: ConnectionFailedError | RefusedError) -> None:
        """A request failed: a kill may do that, and a machine so busy that a leader is not heard for a while."""
        if self._killer is not None:
            return
        self._unasked += 1
        if not isinstance(error, UnknownOutcomeError) or self._unasked > UNASKED_MAX:
            raise error
        print(f"  a lead was lost though nobody was killed, so this machine is very busy: {error}", flush=True)

    def _produce(self) -> None:
        begun = told = time.monotonic()
        killed = False
        at = 0
        while at < len(self._lines):
            numbers = range(at, min(at + BATCH, len(self._lines)))
            jobs = [{"n": n, "line": self._lines[n]} for n in numbers]
            options = {"delay": self._random.choice(DELAYS_S) or None, "priority": self._random.choice(PRIORITIES)}
            queue = QUEUES[at // BATCH % SHARDS]
            if not killed and at > len(self._lines) // 2:
                killed = True
                self._kill_leader_soon(queue)
            try:
                self._client.produce_many(queue, jobs, retry=10, ttl=3600, **options)
            except (ConnectionFailedError, RefusedError) as error:
                self._expected(error)
                continue  # the outcome is unknown: once more, and these lines may be there twice
            self._went_on("producing", queue)
            self._ledger.acknowledged.update(numbers)
            at += BATCH
            if time.monotonic() - told > 0.5:
                told = time.monotonic()
                print(f"  produced {at} lines, {at / (told - begun):.0f} a second", flush=True)
        took_s = time.monotonic() - begun
        print(
            f"produced {len(self._lines)} lines in {took_s:.1f} s, each batch in the logs of two nodes before its reply"
        )

    def _consume(self) -> None:
        begun = told = time.monotonic()
        killed = False
        ledger = self._ledger
        left = list(QUEUES)
        while left:
            queue = left[0]
            left = [*left[1:], queue]
            is_other = shard_of_queue(queue, SHARDS) != self._killed_shard
            if not killed and is_other and len(ledger.confirmed) > len(self._lines) // 2:
                killed = True
                self._kill_leader_soon(queue)
            try:
                messages = self._client.consume_many(queue, BATCH, wait=2)
                if not messages:
                    if self._client.monitor(queue)["size"] == 0:
                        left.remove(queue)
                    continue
                self._take(messages)
                self._client.confirm(messages)
            except (ConnectionFailedError, RefusedError) as error:
                self._expected(error)
                continue  # what was delivered and not confirmed comes again after its retry time
            ledger.confirmed.update(message.msg_id for message in messages)
            self._went_on("consuming", queue)
            if time.monotonic() - told > 0.5:
                told = time.monotonic()
                done = len(ledger.confirmed)
                print(f"  consumed and confirmed {done} lines, {done / (told - begun):.0f} a second", flush=True)
        print(f"consumed and confirmed all in {time.monotonic() - begun:.1f} s")

    def _take(self, messages: Sequence[Message]) -> None:
        ledger = self._ledger
        for message in messages:
            number = int(message.data["n"])
            if message.msg_id in ledger.confirmed:
                ledger.wrong.append(f"line {number} came back after it was confirmed")
            if message.data["line"] != self._lines[number]:
                ledger.wrong.append(f"line {number} was changed")
            ledger.repeated += message.deliveries > 1 or number in ledger.delivered
            ledger.delivered.add(number)

    def _prove(self) -> bool:
        ledger = self._ledger
        lost = ledger.acknowledged - ledger.delivered
        unknown = max(len(self._lines) - len(ledger.confirmed), 0)
        acknowledged, delivered = len(ledger.acknowledged), len(ledger.delivered)
        print(f"proof: {acknowledged} lines acknowledged, {delivered} delivered, {len(lost)} lost")
        print(f"       {len(ledger.confirmed)} confirmed, {len(ledger.wrong)} wrong or back after their confirmation")
        print(f"       left open by the kills: {unknown} confirmed without a reply, {ledger.repeated} delivered twice")
        for what in [*ledger.wrong[:5], *(f"line {number} is lost" for number in sorted(lost)[:5])]:
            print(f"  {what}")
        return not lost and not ledger.wrong and len(ledger.delivered) == len(self._lines)


def asked_lines(program: str) -> int:
    """Read from the command line how many lines are wanted."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--lines", type=int, default=LINES_MAX, help=f"at most ({LINES_MAX})")
    lines: int = parser.parse_args().lines
    if lines < 4 * BATCH:
        parser.error(f"--lines: {4 * BATCH} at least, so that nodes are killed in the middle of it")
    return lines


def main() -> int:
    """Run the demo on a cluster of its own."""
    lines = asked_lines("bench.demo")
    begun = time.monotonic()
    with running_cluster(PORT, **SETTINGS) as cluster:
        print(f"three nodes are up after {time.monotonic() - begun:.1f} s")
        is_well = Demo(cluster, lines).run()
    print(f"{'All is well' if is_well else 'SOMETHING IS WRONG'}, after {time.monotonic() - begun:.0f} s")
    why = why_interpreted()
    if why is not None:
        print(f"The nodes ran interpreted: {why}. `make compiled` takes a C compiler and a minute or two; then they do")
        print('1.4 to 2.6 times as many requests a second (docs/benchmarks.md, "Compiled code").')
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
