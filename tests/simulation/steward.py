"""A simulated steward: sets, clears and buries, and looks through any node whether what was acknowledged is there.

It does one thing after another, so it knows what may be found: a setting is at least the last that was acknowledged, a
queue from which nobody takes has at least as many messages. Others look for that, each at a node of its own. A leader
that answers though another leads, and requests that are done late, are found so. Its queues are its own, and its random
numbers: what a seed is without it stays.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.simulation.clients import TTL, History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.world import World

SET = "{s}"
DEAD = "{s}.dead"
CLEARED = "{s}.cleared"
KEPT = "{s}.kept"
QUEUES = [SET, DEAD, CLEARED, KEPT]
LOOKED = "looks that found what was acknowledged"
PACE = 0.2
"""So much of a client's time between two requests."""

LOOKERS_PACE = 5.0
"""They are many, and a seed is to cost little."""

NOTICED_S = 1.5
"""A node has noticed by then that a client has gone (`Stream.break_off`), and said so to whom it forwards.

Until then it may still do what that asked last, and what the client asks another node meanwhile may be done before it.
"""

SIZE = 1000
"""The least limit that it sets: never reached."""


class Steward(SimulatedSession):
    """Does so until it is stopped. `limit` and `kept`: what was acknowledged of the limit of `SET`, and for `KEPT`."""

    patience_s = 3.0

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], history: History) -> None:
        self._draw = Random(world.seed ^ 0x57E3A4D)
        self._count = 0
        self.limit = 0
        self.kept = 0
        self._held: list[int] = []
        self._in_doubt_until = 0.0
        super().__init__(world, nodes, history)

    def _soon(self, delay_s: float) -> None:
        super()._soon(delay_s * PACE)

    def _next(self) -> None:
        draw = self._draw
        if draw.random() < 0.3 and self._stream is not None:
            self._stream.break_off()  # and ask another node
            return
        steps = [self._configure, self._produce, self._consume, self._clear]
        draw.choices(steps, weights=[4, 4, 2, 1])[0]()

    def _configure(self) -> None:
        if self._world.time < self._in_doubt_until:
            self._produce()
            return
        self._count += 1
        limit = self._count

        def done(reply: dict[str, Any]) -> None:
            if reply["code"] == 0:
                self.limit = limit

        settings = {"max_size": SIZE + limit, "max_deliveries": 2, "dead_letter": DEAD}
        self._request({"action": 5, "queue": SET, **settings}, done, self._doubt)

    def _doubt(self) -> None:
        """What was set last may be so, or not, or soon."""
        self._in_doubt_until = self._world.time + NOTICED_S

    def _produce(self) -> None:
        self._count += 1
        queue = self._draw.choice([SET, CLEARED, KEPT])
        token = f"steward.{self._count}@0.000000r1"
        asked_at = self._world.time

        def done(reply: dict[str, Any]) -> None:
            if reply["code"] != 0:
                return
            for msg_id in reply["msg_ids"]:
                self._history.acknowledge(msg_id, token, 1.0, self._world.time, queue, asked_at)
                self.kept += queue == KEPT
                (self._held if queue == CLEARED else self._history.left).append(msg_id)

        messages = [{"data": token}] * self._draw.choice([1, 2, 3])
        self._request({"action": 1, "queue": queue, "messages": messages, "retry": 1, "ttl": TTL}, done)

    def _consume(self) -> None:
        """And leave it: at the third time it is buried."""

        def done(reply: dict[str, Any]) -> None:
            if reply["code"] == 0 and "msg_id" in reply:
                self._history.saw(reply, self._world.latest_wall)

        self._request({"action": 2, "queues": [SET, DEAD]}, done)

    def _clear(self) -> None:
        ids, history = [*self._held], self._history

        def done(reply: dict[str, Any]) -> None:
            if reply["code"] != 0:
                history.maybe_cleared.update(ids)
                return
            history.cleared.update(ids)
            for msg_id in ids:
                history.confirmed[msg_id] = self._world.time
            self._held = [msg_id for msg_id in self._held if msg_id not in ids]

        self._request({"action": 6, "queue": CLEARED}, done, lambda: history.maybe_cleared.update(ids))


class Looker(SimulatedSession):
    """Asks one node, again and again, for what the steward was told; `looked` counts what it found as it should be."""

    patience_s = 3.0

    def __init__(
        self, world: World, node: SimulatedNode, history: History, steward: Steward, *, pace: float = LOOKERS_PACE
    ) -> None:
        self._steward = steward
        self._pace = pace
        self._draw = Random(world.seed ^ 0x100CE4 ^ node.node_id)
        self.looked = 0
        super().__init__(world, [node], history)

    def _soon(self, delay_s: float) -> None:
        super()._soon(delay_s * self._pace)

    def _next(self) -> None:
        limit, kept = self._steward.limit, self._steward.kept
        if self._draw.random() < 0.5:
            self._request(
                {"action": 5, "queue": SET}, lambda reply: self._see("limit", reply, "max_size", SIZE + limit)
            )
        else:
            self._request({"action": 4, "queue": KEPT}, lambda reply: self._see("size", reply, "size", kept))

    def _see(self, what: str, reply: dict[str, Any], field: str, least: int) -> None:
        if reply["code"] != 0 or self.is_stopped:
            return
        if SIZE != least > reply[field]:
            self._history.problems.append(
                f"a {what} of {reply[field]} is told at {self._world.time}, after one of {least}"
            )
        self.looked += 1
