"""One seed: a node, clients, faults for a while, then none, and then the checkers.

Safety first, under faults; then the faults stop, and the node must serve everything that is left within a bounded
virtual time (liveness).
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.simulation.clients import QUEUES, History, SimulatedClient
from tests.simulation.cluster import SimulatedNode, Stream
from tests.simulation.world import World

FAULTS_S = 40.0
CALM_S = 400.0


@dataclass
class Outcome:
    """What a seed came to."""

    seed: int
    problems: list[str]
    trace: str
    requests: int
    virtual_s: float
    crashes: int
    torn: int


class Run:
    """One seed's run. `node_class` lets a test plant a bug."""

    def __init__(self, seed: int, node_class: type[SimulatedNode] = SimulatedNode) -> None:
        self.seed = seed
        self.world = World(seed)
        self.history = History()
        self.node = node_class(self.world)
        self.crashes = 0
        self._faults_on = True

    def go(self) -> Outcome:
        """Run it."""
        world, node = self.world, self.node
        assert node.start()
        clients = [SimulatedClient(world, node, self.history, f"c{n}") for n in range(world.random.randint(1, 5))]
        world.later(world.random.random() * 5, self._fault)
        world.run_until(FAULTS_S)
        self._faults_on = False
        node.set_disk_full(False)
        for client in clients:
            client.is_stopped = True
        world.run_until(world.time + 3)
        if not node.is_up:
            assert node.start()
        confirmed_before = set(self.history.confirmed)
        drained = _Drain(self)
        world.run_until(world.time + CALM_S, lambda: drained.is_done)
        self._check(drained, confirmed_before)
        node.end(power_cut=world.random.random() < 0.5)
        return Outcome(
            self.seed,
            self.history.problems,
            world.trace.hexdigest(),
            self.history.done,
            world.time,
            self.crashes,
            node.torn,
        )

    def _fault(self) -> None:
        if not self._faults_on:
            return
        world, node, random = self.world, self.node, self.world.random
        choice = random.random()
        if choice < 0.5:
            if node.runtime is None:
                pass
            elif random.random() < 0.7:
                node.runtime.on_write = self._crash  # the moment at which a crash is worth most
            else:
                self._crash()
        elif choice < 0.65 and node.streams:
            random.choice(node.streams).break_off()
        elif choice < 0.8:
            node.set_disk_full(True)
            world.later(random.random() * 6, lambda: node.set_disk_full(False))
        elif choice < 0.9:
            world.clock_offset += random.choice([0.5, 3.0, 60.0])
        world.later(random.choice([0.05, 0.5, 2.0, 8.0]), self._fault)

    def _crash(self) -> None:
        if self.node.is_up and self._faults_on:
            self.crashes += 1
            self.world.note("crash")
            self.node.end(power_cut=self.world.random.random() < 0.6)
            self.world.later(self.world.random.choice([0.0, 0.5, 3.0]), self._restart)

    def _restart(self) -> None:
        if not self.node.is_up and not self.node.start():
            self.world.later(0.5, self._restart)

    def _check(self, drained: "_Drain", confirmed_before: set[int]) -> None:
        problems = self.history.problems
        if not drained.is_done:
            problems.append("the node did not serve what was left in time")
            return
        for msg_id, sent in self.history.acknowledged.items():
            if msg_id in self.history.delivered or msg_id in drained.seen:
                continue
            if msg_id in self.history.maybe_confirmed or msg_id in self.history.confirmed:
                problems.append(f"message {msg_id} was confirmed without having been delivered")
            if sent.retry == 0 and self.history.maybe_taken:
                continue  # a delivery of it may have been lost with its connection: that is at most once
            problems.append(f"acknowledged message {msg_id} ({sent.token}) is lost")
        for msg_id in drained.seen:
            if msg_id in confirmed_before:
                problems.append(f"message {msg_id} came back after its confirmation")
        state = self.node.state_on_disk()
        if state.messages:
            problems.append(f"{len(state.messages)} messages are on the disk of a drained node")


class _Drain:
    """Takes and confirms everything that is left."""

    def __init__(self, run: Run) -> None:
        self.seen: set[int] = set()
        self.is_done = False
        self._run = run
        self._empty_since: float | None = None
        self._buffer = b""
        self._ids: list[int] = []
        self._stream = Stream(run.world, self._received, lambda: None)
        assert run.node.connect(self._stream)
        self._ask()

    def _ask(self) -> None:
        self._send({"action": 2, "queues": QUEUES, "count": 50, "wait": 1})

    def _send(self, request: dict[str, Any]) -> None:
        self._stream.send(json.dumps(request).encode())

    def _received(self, data: bytes) -> None:
        self._buffer += data
        if not self._buffer.endswith(b"\n"):
            return
        written_at = self._stream.written_at.popleft()
        reply, self._buffer = json.loads(self._buffer), b""
        world, history = self._run.world, self._run.history
        if reply["action"] == 3:
            for msg_id in self._ids:
                history.confirmed[msg_id] = world.time
            self._ask()
            return
        messages = reply.get("messages", ())
        for one in messages:
            wall = world.time + world.clock_offset
            history.saw(one["msg_id"], one["data"], written_at, wall)
            self.seen.add(one["msg_id"])
        self._ids = [one["msg_id"] for one in messages if not one["data"].endswith("r0")]
        if self._ids:
            self._empty_since = None
            self._send({"action": 3, "msg_ids": self._ids})
            return
        if messages:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = world.time
        elif world.time - self._empty_since > 130:  # longer than any retry, delay and jump of the clock
            self.is_done = True
            return
        self._ask()
