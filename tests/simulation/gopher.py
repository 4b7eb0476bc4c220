"""A simulated client of gmq's: pushes jobs with few ids of their own, pops them and acknowledges them, by any node.

What it knows for certain: an id that was pushed, and that nobody has acknowledged since, is not taken again; one whose
acknowledgement was answered is gone, and comes back to nobody before it is pushed again; a job with TTR 0 is got once
at most. What is certain of an id ends as soon as a call about it is lost, for as long as that may still be done. Its
jobs never expire, so what it is certain of must be on every disk in the end. Its random numbers are its own.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from net.protocols.gmq_session import EMPTY, EXPIRED, GONE, NOT_RESERVED, UNKNOWN
from storage.state import ShardState
from tests.simulation.clients import History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.world import World

TOPICS = ["{g}", "{g}.more"]
IDS = [f"g{number}" for number in range(6)]
DOUBT_S = 15.0
POPPED = "jobs that clients of gmq's popped"


class Known:
    """What is certain of an id: whether a live job has it; None: nobody can say. `calls`: about it, so far."""

    def __init__(self) -> None:
        self.is_live: bool | None = False
        self.calls = 0
        self.open = 0
        self.doubt_until = 0.0


class IdHistory:
    """What all gophers know together."""

    def __init__(self) -> None:
        self.known = {name: Known() for name in IDS}
        self.got_once: set[str] = set()
        self.popped = 0

    def problems_on(self, state: ShardState) -> list[str]:
        """Where a disk says something else."""
        return [
            f"job {name} is {'there' if name in state.keys else 'gone'}, and is known to be otherwise"
            for name, known in self.known.items()
            if known.is_live is not None and known.is_live != (name in state.keys)
        ]


class Gopher(SimulatedSession):
    """Does so until it is stopped."""

    patience_s = 6.0
    protocol = "gmq"

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], history: History, ids: IdHistory, name: str
    ) -> None:
        self._draw = Random(f"{world.seed} {name}")
        self._name = name
        self._ids = ids
        self._count = 0
        self._held: list[str] = []
        super().__init__(world, nodes, history)

    def _call(
        self, method: str, param: Any, on_reply: Callable[[dict[str, Any]], None], on_loss: Callable[[], None]
    ) -> None:
        self._count += 1
        call = {"method": f"Service.{method}", "params": [param], "id": self._count}
        self._send(json.dumps(call).encode(), on_reply, on_loss)

    def _about(self, name: str, method: str, param: Any, says: Callable[[dict[str, Any], bool | None], Any]) -> None:
        """A call about one id. `says`: of the reply and what was certain before, what is so now; None: nobody knows."""
        known = self._ids.known[name]
        known.calls += 1
        known.open += 1
        call, begins_alone, before = known.calls, known.open == 1, known.is_live
        known.is_live = None

        def replied(reply: dict[str, Any]) -> None:
            known.open -= 1
            is_alone = begins_alone and known.calls == call and self._world.time > known.doubt_until
            found = says(reply, before if is_alone else None)
            if found is None:
                known.doubt_until = self._world.time + DOUBT_S
            elif is_alone:
                known.is_live = found

        def lost() -> None:
            known.open -= 1
            known.doubt_until = self._world.time + DOUBT_S

        self._call(method, param, replied, lost)

    def _problem(self, text: str) -> None:
        self._history.problems.append(f"{text} at {self._world.time}")

    def _next(self) -> None:
        if self._draw.random() < 0.05 and self._stream is not None:
            self._stream.break_off()
            return
        self._draw.choices([self._push, self._push_once, self._pop, self._acknowledge], weights=[5, 1, 5, 4])[0]()

    def _job(self, name: str, ttr: str) -> dict[str, str]:
        topic, delay = self._draw.choice(TOPICS), self._draw.choice(["0", "0", "1", "4", "x"])
        return {"id": name, "topic": topic, "body": f"{self._name}.{self._count}", "delay": delay, "TTR": ttr}

    def _push(self) -> None:
        name = self._draw.choice(IDS)

        def says(reply: dict[str, Any], before: bool | None) -> bool | None:
            result = reply["result"]
            if result == "success":
                if before:
                    self._problem(f"job {name} was taken twice")
                return True
            if result is None:
                return None
            assert result.endswith("has exist"), result
            if before is False:
                self._problem(f"job {name} was said to be there, and was acknowledged")
            return True

        self._about(name, "Push", self._job(name, self._draw.choice(["1", "3"])), says)

    def _push_once(self) -> None:
        job = self._job(f"{self._name}.once.{self._count}", "0")
        self._call("Push", job, lambda reply: None, lambda: None)

    def _pop(self) -> None:
        certain = {name: known.calls for name, known in self._ids.known.items() if known.is_live is False}

        def popped(reply: dict[str, Any]) -> None:
            job = reply["result"]
            if job is None:
                return
            self._ids.popped += 1
            name = job["id"]
            if name in self._ids.known:
                self._held.append(name)
                if certain.get(name) == self._ids.known[name].calls:
                    self._problem(f"job {name} came back after its acknowledgement")
                return
            if job["body"] in self._ids.got_once:
                self._problem(f"job {name} was got twice, and is at most once")
            self._ids.got_once.add(job["body"])

        self._call("Pop", self._draw.sample(TOPICS, self._draw.randint(1, 2)), popped, lambda: None)

    def _acknowledge(self) -> None:
        name = self._held.pop() if self._held else self._draw.choice(IDS)

        def says(reply: dict[str, Any], before: bool | None) -> bool | None:
            error = reply["error"]
            if reply["result"] is True:
                if before is False:
                    self._problem(f"job {name} was acknowledged, and had been so before")
                return False
            if error == GONE:
                if before:
                    self._problem(f"job {name} is lost")
                return False
            if error in (NOT_RESERVED, EXPIRED, UNKNOWN):
                if before is False:
                    self._problem(f"job {name} is there, and was acknowledged")
                return True
            assert error != EMPTY
            return None

        self._about(name, "Ack", name, says)
