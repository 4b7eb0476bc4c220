"""Simulated clients, and what they know for certain: the history that the checkers judge."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.cluster import SimulatedNode, Stream
from tests.simulation.world import Event, World

TTL = 100_000
UNHEARD_S = 1.0
"""So long may it take until a leader hears that a client has gone."""


@dataclass
class Sent:
    """A message that was produced for certain: it was asked for at `asked_at`, and the reply came `at`."""

    token: str
    retry: float
    at: float
    queue: str
    key: str | None
    asked_at: float


@dataclass
class History:
    """What happened as the clients saw it. Tokens are the messages' data, each unique.

    `batches`: how many messages each produce of several had, by their token. `handed_out`: when a leader let a delivery
    go, by msg_id and count of deliveries. `maybe_taken`: when a consume was lost, and of which queues.
    `left`: messages that are to be found at the end, delivered before or not; `cleared` and `maybe_cleared`: those that
    may not, or need not.
    """

    acknowledged: dict[int, Sent] = field(default_factory=dict)
    delivered: dict[int, list[float]] = field(default_factory=dict)
    tokens: dict[int, str] = field(default_factory=dict)
    confirmed: dict[int, float] = field(default_factory=dict)
    maybe_confirmed: set[int] = field(default_factory=set)
    maybe_taken: list[tuple[float, list[str]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    handed_out: dict[tuple[int, int], float] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)
    stewards_queues: list[str] = field(default_factory=list)
    cleared: set[int] = field(default_factory=set)
    maybe_cleared: set[int] = field(default_factory=set)
    left: list[int] = field(default_factory=list)
    done: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def acknowledge(self, msg_id: int, token: str, retry: float, at: float, queue: str, asked_at: float) -> None:
        """A message without a key was produced for certain."""
        self.acknowledged[msg_id] = Sent(token, retry, at, queue, None, asked_at)
        self.tokens.setdefault(msg_id, token)

    def consume_lost(self, at: float, request: dict[str, Any]) -> None:
        """Nobody knows what it got: its leader may not have heard of the loss, and it waits there on, so that a message
        of later is taken for it."""
        waits_on_s = request["wait"] + UNHEARD_S if "wait" in request else 0.0
        self.maybe_taken.append((at + waits_on_s, request["queues"]))

    def may_be_taken(self, sent: Sent) -> bool:
        """Whether a consume whose reply nobody saw may have been given that message."""
        return any(at >= sent.asked_at and sent.queue in (*queues, "virtual") for at, queues in self.maybe_taken)

    def saw(self, one: dict[str, Any], latest_wall: float) -> None:
        """A delivery reached a client. No leader's clock has shown more than `latest_wall`."""
        msg_id, token = one["msg_id"], one["data"]
        at = self.handed_out[msg_id, one["deliveries"]]
        if at > self.confirmed.get(msg_id, math.inf):
            self.problems.append(f"message {msg_id} delivered at {at} after its confirmation was acknowledged")
        known = self.acknowledged.get(msg_id)
        if known is not None and known.token != token:
            self.problems.append(f"message {msg_id} has data {token}, produced as {known.token}")
        if self.tokens.setdefault(msg_id, token) != token:
            self.problems.append(f"message {msg_id} has data {token}, seen before as {self.tokens[msg_id]}")
        if token.endswith("r0") and self.delivered.get(msg_id):
            self.problems.append(f"at-most-once message {msg_id} delivered twice")
        due_at = float(token.split("@")[1].split("r")[0])
        if latest_wall < due_at - 1e-3:
            self.problems.append(f"message {msg_id} delivered at {latest_wall} at the latest, due at {due_at}")
        self.delivered.setdefault(msg_id, []).append(at)


class SimulatedSession(ABC):
    """Asks one node after another, whichever can be reached, one request at a time.

    It waits `patience_s` for a reply, and goes away then.
    """

    patience_s = 40.0
    protocol = "json"

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], history: History) -> None:
        self._world = world
        self._nodes = nodes
        self._history = history
        self._stream: Stream | None = None
        self._buffer = b""
        self._on_reply: Callable[[dict[str, Any]], None] | None = None
        self._on_loss: Callable[[], None] = lambda: None
        self._pending: Event | None = None
        self._next_node: SimulatedNode | None = None
        self._patience: Event | None = None
        self.is_stopped = False
        self._soon(world.random.random())

    @abstractmethod
    def _next(self) -> None:
        """Ask something."""

    def _soon(self, delay_s: float) -> None:
        if self._pending is not None:
            self._pending.cancel()
        self._pending = self._world.later(delay_s, self._step)

    def _step(self) -> None:
        self._pending = None
        if self.is_stopped:
            return
        if self._stream is None:
            node = self._next_node or self._world.random.choice(self._nodes)
            self._next_node = None
            stream = Stream(self._world, self._received, self._broke, self.protocol)
            if not node.connect(stream):
                self._soon(0.3)
                return
            self._stream = stream
            self._buffer = b""
        self._next()

    def _request(
        self,
        request: dict[str, Any],
        on_reply: Callable[[dict[str, Any]], None],
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self._send(json.dumps(request).encode() + self._world.random.choice([b"", b"\n"]), on_reply, on_loss)

    def _send(self, data: bytes, on_reply: Callable[[dict[str, Any]], None], on_loss: Callable[[], None]) -> None:
        assert self._stream is not None
        self._on_reply = on_reply
        self._on_loss = on_loss
        stream = self._stream
        stream.send(data)
        if self._world.random.random() < 0.03:
            stream.end()  # as `printf ... | nc` does: it wants its answer all the same
        self._patience = self._world.later(
            self.patience_s, lambda: stream.break_off() if self._stream is stream else None
        )

    def _received(self, data: bytes) -> None:
        self._buffer += data
        if not self._buffer.endswith(b"\n") or self._on_reply is None:
            return
        assert self._buffer.count(b"\n") == 1, f"more than one reply to one request: {self._buffer!r}"
        reply, self._buffer = json.loads(self._buffer), b""
        self._take(reply)

    def _take(self, reply: dict[str, Any]) -> None:
        """The reply to the request that is open."""
        on_reply, self._on_reply = self._on_reply, None
        assert on_reply is not None
        if self._patience is not None:
            self._patience.cancel()
        self._history.done += 1
        error = reply.get("error")
        if error is not None:
            self._history.refused[error] = self._history.refused.get(error, 0) + 1
        if error == "unknown_outcome":
            self._on_loss()
        elif error == "redirect":
            assert reply["code"] == -2
            leaders = [node for node in self._nodes if node.node_id == reply["leader_node_id"]]
            self._next_node = leaders[0] if leaders else None
            assert self._stream is not None
            self._stream.break_off()
            return
        else:
            on_reply(reply)
        self._soon(self._world.random.choice([0.0, 0.01, 0.3]))

    def _broke(self) -> None:
        self._stream = None
        if self._on_reply is not None:
            self._on_reply = None
            self._on_loss()
        self._soon(self._world.random.random() * 0.5)


class SimulatedClient(SimulatedSession):
    """Does one thing after another: produce, consume, confirm, release, extend, look, and now and then moves."""

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], history: History, name: str) -> None:
        self._name = name
        self._held: list[int] = []
        self._count = 0
        super().__init__(world, nodes, history)

    def _next(self) -> None:
        choice = self._world.random.random()
        if choice < 0.4:
            self._produce()
        elif choice < 0.7:
            self._consume()
        elif choice < 0.9 and self._held:
            self._confirm()
        elif choice < 0.94 and self._held:
            self._give_back()
        elif choice < 0.95 and self._stream is not None:
            self._stream.break_off()
        else:
            action = self._world.random.choice([4, 7, 8, 11, 14, 15, 104, 107, 108])
            self._request({"action": action, "queue": "q0", "count": 3}, lambda reply: None)

    def _produce(self) -> None:
        random = self._world.random
        self._count += 1
        retry = random.choice([0, 1, 5, 30])
        delay = random.choice([0, 0, 0, 1, 7])
        queue = random.choice([*self._history.queues, "virtual"])
        due_at = self._world.latest_wall + delay if delay else 0
        padding = "x" * random.choice([0, 0, 0, 300])  # an entry of several sectors can be torn
        token = f"{padding}{self._name}.{self._count}@{due_at:.6f}r{retry}"
        request: dict[str, Any] = {"action": 1, "queue": queue, "data": token, "retry": retry, "ttl": TTL}
        if delay:
            request["delay"] = due_at
        if random.random() < 0.3:
            request["key"] = random.choice(["k1", "k2", token])
        if random.random() < 0.2:
            del request["data"]
            request["messages"] = [{"data": token}] * random.choice([2, 3, 10])
            request.pop("key", None)
            self._history.batches[token] = len(request["messages"])
        if random.random() < 0.1:
            request["replicate"] = random.choice([1, 2, 3])

        asked_at = self._world.time

        def acknowledged(reply: dict[str, Any]) -> None:
            nodes = len({node.node_id for node in self._nodes})
            is_safe = request.get("replicate", nodes) > nodes // 2
            if reply["code"] == 0 and is_safe:  # on fewer disks than a majority's it may be lost
                key = request.get("key") if queue != "virtual" else None
                sent = Sent(token, retry, self._world.time, queue, key, asked_at)
                ids = reply.get("msg_ids") or [reply["msg_id"]]
                wanted = len(request.get("messages", [token])) * (2 if queue == "virtual" else 1)
                if len(ids) != wanted:
                    self._history.problems.append(f"{len(ids)} of the {wanted} copies of {token} were stored: {reply}")
                for msg_id in ids:
                    self._history.acknowledged[msg_id] = sent
                    self._history.tokens.setdefault(msg_id, token)

        self._request(request, acknowledged)

    def _consume(self) -> None:
        random = self._world.random
        request: dict[str, Any] = {"action": 2, "queues": random.sample(self._history.queues, random.randint(1, 3))}
        if random.random() < 0.5:
            request["wait"] = random.choice([0.1, 2.0])
        if random.random() < 0.3:
            request["count"] = 3

        def delivered(reply: dict[str, Any]) -> None:
            if reply["code"] != 0:
                return
            messages = reply.get("messages") or ([reply] if "msg_id" in reply else [])
            if len({one["msg_id"] % 1024 for one in messages}) > 1:
                self._history.problems.append(f"a consume took messages of several shards: {reply}")
            for one in messages:
                self._history.saw(one, self._world.latest_wall)
                if not one["data"].endswith("r0"):
                    self._held.append(one["msg_id"])

        self._request(request, delivered, lambda: self._history.consume_lost(self._world.time, request))

    def _confirm(self) -> None:
        count = self._world.random.randint(1, len(self._held))
        ids, self._held = self._held[:count], self._held[count:]

        def confirmed(reply: dict[str, Any]) -> None:
            if reply["code"] == 0:
                for msg_id in ids:
                    self._history.confirmed[msg_id] = self._world.time
            else:
                self._history.maybe_confirmed.update(ids)

        self._request({"action": 3, "msg_ids": ids}, confirmed, lambda: self._history.maybe_confirmed.update(ids))

    def _give_back(self) -> None:
        msg_id = self._held.pop(0)
        if self._world.random.random() < 0.5:
            self._request({"action": 9, "msg_id": msg_id}, lambda reply: None)
        else:
            self._request({"action": 10, "msg_id": msg_id, "retry": 3}, lambda reply: None)


EMPTY_S = 130.0
"""Longer than any retry, delay and jump of the clock."""

GONE_S = 40.0
"""Longer than a queue stays that a job has made, when it is empty."""


class Drain(SimulatedSession):
    """Takes and confirms everything that is left. `has_some`: whether some is, as far as any node's memory says."""

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], history: History, has_some: Callable[[], bool]
    ) -> None:
        self.seen: set[int] = set()
        self._has_some = has_some
        self.is_done = False
        self._empty_since: float | None = None
        self._ids: list[int] = []
        super().__init__(world, nodes, history)

    def _next(self) -> None:
        if self._ids:
            self._request({"action": 3, "msg_ids": self._ids}, self._confirmed)
        else:
            queues = [*self._history.queues, *self._history.stewards_queues]
            request = {"action": 2, "queues": queues, "count": 50, "wait": 10}
            self._request(request, self._delivered, lambda: self._history.consume_lost(self._world.time, request))

    def _confirmed(self, reply: dict[str, Any]) -> None:
        if reply["code"] == 0:
            for msg_id in self._ids:
                self._history.confirmed[msg_id] = self._world.time
            self._ids = []

    def _delivered(self, reply: dict[str, Any]) -> None:
        if reply["code"] != 0:
            return
        messages = reply.get("messages", ())
        for one in messages:
            self._history.saw(one, self._world.latest_wall)
            self.seen.add(one["msg_id"])
        self._ids = [one["msg_id"] for one in messages if not one["data"].endswith("r0")]
        if messages or reply.get("partial"):
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = self._world.time
        elif self._world.time - self._empty_since > (EMPTY_S if self._has_some() else GONE_S):
            self.is_done = self.is_stopped = True
