"""A simulated worker: full deliveries, fences, leases extended beyond expiry, buried messages, cancelled waits.

Its queues are its own, and its random numbers: what a seed is without it stays. What the log must say of them is
checked in `tests.simulation.rules`; what only it can know, here.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.simulation.clients import TTL, History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.rules import DEAD, DROPS, EXTEND_S, IDLE, IDLE_S, WORK
from tests.simulation.world import World

SHORT_TTL = 6.0
RETRY = 2
CANCEL_S = 0.4
CANCELLED = "waits cancelled"
REASON = "no such user"


class Worker(SimulatedSession):
    """Works until it is stopped. `confirmed`: with which delivery each message was confirmed for certain.

    A cancelled wait is answered first, and with nothing. Between nodes that answer may be lost with a link, and its
    client be told later that the outcome is unknown; it has no message in any case.
    """

    patience_s = 20.0

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], history: History, name: str) -> None:
        self._draw = Random((world.seed << 8) ^ 0x30BB1E5 ^ ord(name[-1]))
        self._moves = Random((world.seed << 8) ^ 0x3307E ^ ord(name[-1]))
        self._name = name
        self._count = 0
        self._is_set = False
        self._seq = 0
        self._held: list[tuple[int, int]] = []
        self._waits: int | None = None
        self._empty: set[int] = set()
        self._ended: set[int] = set()
        self._given: set[int] = set()
        self.confirmed: dict[int, int] = {}
        self.cancelled = 0
        super().__init__(world, nodes, history)

    def _next(self) -> None:
        draw = self._draw
        if not self._is_set:  # before that what expires would be dropped
            settings = {"dead_letter": DEAD, "max_deliveries": 4}
            self._request({"action": 5, "queue": WORK, **settings}, self._set)
            return
        if self._moves.random() < 0.04:  # to where they came from, as a person does
            back, there = {"queue": DEAD}, {"queue": WORK, "to": DEAD, "create": True}
            self._request({"action": 21, "count": 3, **self._moves.choice([back, there])}, lambda reply: None)
            return
        steps = [self._produce, self._consume, self._settle, self._idle, self._leave]
        draw.choices(steps, weights=[6, 6, 6, 2, 1])[0]()

    def _set(self, reply: dict[str, Any]) -> None:
        self._is_set = reply["code"] == 0

    def _leave(self) -> None:
        assert self._stream is not None
        self._stream.break_off()

    def _idle(self) -> None:
        """A queue that goes when nobody uses it: there may be messages in it, which nobody waits for."""
        configure = {"action": 5, "queue": IDLE, "expires_after": IDLE_S}
        produce = {"action": 1, "queue": IDLE, "data": f"{self._name}.idle@0r0", "retry": 0}
        consume = {"action": 2, "queue": IDLE, "wait": 1.0}
        self._request(self._draw.choice([configure, produce, consume, consume]), lambda reply: None)

    def _produce(self) -> None:
        self._count += 1
        token = f"{self._name}.{self._count}@0r{RETRY}"
        drops = self._draw.random() < 0.3
        queue = DROPS if drops else WORK
        request: dict[str, Any] = {"action": 1, "queue": queue, "data": token, "retry": RETRY, "headers": {"t": token}}
        request["ttl"] = self._draw.choice([SHORT_TTL, TTL])
        if drops:
            request |= {"expire": "drop", "ttl": self._draw.choice([1.0, SHORT_TTL])}
        asked_at = self._world.time

        def acknowledged(reply: dict[str, Any]) -> None:
            if reply["code"] == 0:
                if drops:
                    self._history.tokens.setdefault(reply["msg_id"], token)
                else:
                    self._history.acknowledge(reply["msg_id"], token, RETRY, self._world.time, queue, asked_at)

        self._request(request, acknowledged)

    def _consume(self) -> None:
        self._seq += 1
        seq, draw = self._seq, self._draw
        queues = [DROPS, WORK] if draw.random() < 0.3 else [WORK]
        request: dict[str, Any] = {"action": 2, "queues": queues, "seq": seq, "full": True}
        if draw.random() < 0.3:
            request["count"] = 3
        if draw.random() < 0.6:
            request["wait"] = 3.0
            if draw.random() < 0.6:
                self._world.later(CANCEL_S * draw.random(), lambda: self._cancel(seq))

        def delivered(reply: dict[str, Any]) -> None:
            if reply["code"] != 0:
                return
            messages = reply.get("messages") or ([reply["message"]] if "message" in reply else [])
            if not messages:
                self._empty.add(seq)
            elif seq in self._ended:
                self._history.problems.append(f"a wait that was cancelled took {messages}")
            else:
                self._given.add(seq)
            for one in messages:
                self._history.saw(one, self._world.latest_wall)
                if one.get("headers") != {"t": one["data"]} or one["state"] != "in_flight" or one["retry"] != RETRY:
                    self._history.problems.append(f"a full delivery says {one}")
                self._held.append((one["msg_id"], one["deliveries"]))

        self._waits = seq
        self._request(request, delivered)

    def _cancel(self, seq: int) -> None:
        if self._stream is not None and self._waits == seq:
            self._stream.send(json.dumps({"action": 19, "seq": seq}).encode())

    def _received(self, data: bytes) -> None:
        """Replies to a consume and to its cancel come in this order."""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            reply = json.loads(line)
            if reply["action"] == 19:
                if reply.get("cancelled") == 1:
                    self.cancelled += 1
                    self._ended.add(reply["seq"])
                    if reply["seq"] in self._given or (len(self._nodes) == 1 and reply["seq"] not in self._empty):
                        self._history.problems.append(f"a wait was cancelled and not answered so: {reply}")
            elif self._on_reply is not None:
                if reply["action"] == 2:
                    self._waits = None
                self._take(reply)
            else:
                self._history.problems.append(f"nobody has asked for {reply}")

    def _broke(self) -> None:
        self._waits = None
        super()._broke()

    def _settle(self) -> None:
        if not self._held:
            self._consume()
            return
        at = self._draw.randrange(len(self._held))
        msg_id, delivery = self._held[at]
        named = {"msg_id": msg_id, "delivery": delivery}
        draw = self._draw.random()
        if draw < 0.4:
            del self._held[at]

            def confirmed(reply: dict[str, Any]) -> None:
                if reply.get("confirmed") == 1:
                    self.confirmed[msg_id] = delivery
                    self._history.confirmed[msg_id] = self._world.time
                elif reply["code"] != 0:
                    self._history.maybe_confirmed.add(msg_id)

            self._request({"action": 3, **named}, confirmed, lambda: self._history.maybe_confirmed.add(msg_id))
        elif draw < 0.75:
            self._request({"action": 10, "retry": EXTEND_S, **named}, lambda reply: None)
        elif draw < 0.85:
            del self._held[at]
            self._request({"action": 9, **named}, lambda reply: None)
        else:
            del self._held[at]
            self._request({"action": 20, "reason": REASON, **named}, lambda reply: None)
