"""A simulated client whose keys replace: it produces with `on_duplicate`, and shows by key, with and without a wait.

Its keys are its own, so it knows for certain which message has one: that of the last produce that was answered, until a
request is lost that may have replaced it. Then nothing is certain until the request can't be done any more, and a show
has told. Its random numbers are its own.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from quorate.protocol import Action, ErrorWord
from storage.state import ShardState
from tests.simulation.clients import TTL, History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.world import World

QUEUE = "{r}"
DOUBT_S = 15.0
KEYS = 3


class Replacer(SimulatedSession):
    """Does so until it is stopped."""

    patience_s = 6.0

    def __init__(self, world: World, nodes: Sequence[SimulatedNode], history: History, name: str) -> None:
        self._draw = Random(f"{world.seed} {name}")
        self._held: dict[str, int | None] = {f"{name}.{number}": None for number in range(KEYS)}
        self._known = set(self._held)
        self._doubt_until = dict.fromkeys(self._held, 0.0)
        self.done = 0
        super().__init__(world, nodes, history)

    def problems_on(self, state: ShardState) -> list[str]:
        """Where a disk says something else than what is certain."""
        queue = state.queues.get(QUEUE)
        found = {key: None if queue is None else queue.keys.get(key) for key in self._known}
        return [
            f"key {key} is message {msg_id}'s on a disk, and is known to be {self._held[key]}'s"
            for key, msg_id in found.items()
            if msg_id != self._held[key]
        ]

    def _next(self) -> None:
        if self._draw.random() < 0.05 and self._stream is not None:
            self._stream.break_off()
            return
        key = self._draw.choice([*self._held])
        if key not in self._known and self._world.time <= self._doubt_until[key]:
            self._soon(0.3)
            return
        if key not in self._known or self._draw.random() < 0.4:
            self._show(key)
        else:
            self._produce(key, self._draw.choice(["replace", "replace", "keep", "refuse"]))

    def _problem(self, text: str) -> None:
        self._history.problems.append(f"{text} at {self._world.time}")

    def _produce(self, key: str, how: str) -> None:
        """By which another message has the key afterwards, or the same."""
        before = self._held[key]
        self._known.discard(key)
        request: dict[str, Any] = {"action": Action.PRODUCE, "queue": QUEUE, "data": "x", "key": key, "retry": 60}
        request |= {"on_duplicate": how, "ttl": TTL, "delay": self._draw.choice([0, 1000])}
        if self._draw.random() < 0.3:
            del request["data"]
            request["messages"] = [{"data": "x"}]

        def replied(reply: dict[str, Any]) -> None:
            after = (reply.get("msg_ids") or [reply.get("msg_id")])[0]
            is_kept = reply.get("duplicate") or reply.get("duplicates") == [0]
            if reply["code"] != 0 and reply.get("error") != ErrorWord.DUPLICATE_KEY:
                self._doubt(key)
                return
            self.done += 1
            if how == "refuse" and (reply["code"] == 0) != (before is None):
                self._problem(f"key {key}, which message {before} has, was answered {reply}")
            if how == "keep" and before is not None and not (is_kept and after == before):
                self._problem(f"key {key} was to keep message {before}, and was answered {reply}")
            if (how == "replace" or before is None) and (is_kept or after == before or reply["code"] != 0):
                self._problem(f"key {key} was to get another message than {before}, and was answered {reply}")
            self._held[key] = after if reply["code"] == 0 else before
            self._known.add(key)

        self._request(request, replied, lambda: self._doubt(key))

    def _doubt(self, key: str) -> None:
        self._doubt_until[key] = self._world.time + DOUBT_S

    def _show(self, key: str) -> None:
        """Ask which message has the key; where that is certain, also for another one, which nobody makes."""
        is_certain, held = key in self._known, self._held[key]
        request: dict[str, Any] = {"action": Action.SHOW, "queue": QUEUE, "key": key}
        wants_other = is_certain and held is not None and self._draw.random() < 0.3
        if wants_other:
            request |= {"unless": held, "wait": 0.5}
        elif self._draw.random() < 0.5:
            request["wait"] = 0.5

        def replied(reply: dict[str, Any]) -> None:
            found = reply.get("msg_id")
            if reply["code"] != 0 and reply.get("error") != ErrorWord.NO_SUCH_MESSAGE:
                return
            self.done += 1
            expected = None if wants_other else held
            if is_certain and found != expected:
                self._problem(f"key {key} was said to be message {found}'s, and is {held}'s")
            elif not is_certain:
                self._held[key] = found
                self._known.add(key)

        self._request(request, replied, lambda: None)
