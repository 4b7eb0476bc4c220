"""A simulated client of Disque's: adds jobs, gets them and says what became of them, through any node.

What it knows for certain: a job with RETRY 0 is got once at most, whoever crashes; one whose acknowledgement was
answered is not got by whoever asks later; a job has one id, by which all know it; a queue that takes nothing in, as
far as that was answered, takes nothing. Its jobs live for a short time, so that all of them are gone in the end, and
its queues with them. Its random numbers are its own: what a seed is without it stays.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.simulation.clients import History, SimulatedSession
from tests.simulation.cluster import SimulatedNode
from tests.simulation.world import World

JOBS = "{j}"
MORE_JOBS = "{j}.more"
QUEUES = [JOBS, MORE_JOBS]
TTL_S = 20
LOOKS = [
    *(["QSTAT", JOBS], ["QLEN", MORE_JOBS], ["JSCAN", "COUNT", "5"], ["QSCAN"], ["HELLO"], ["QPEEK", JOBS, "-2"]),
]
GOT = "jobs that clients of Disque's got"


class JobHistory:
    """What all jobbers know: ids by body, when an acknowledgement was answered, who was got at most once."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.acknowledged: dict[str, float] = {}
        self.seen_once: set[str] = set()
        self.got = 0


class Jobber(SimulatedSession):
    """Does so until it is stopped."""

    patience_s = 4.0
    protocol = "disque"

    def __init__(
        self, world: World, nodes: Sequence[SimulatedNode], history: History, jobs: JobHistory, name: str
    ) -> None:
        self._draw = Random(f"{world.seed} {name}")
        self._name = name
        self._jobs = jobs
        self._count = 0
        self._held: list[str] = []
        self._answered: Callable[[Any], None] = lambda reply: None
        super().__init__(world, nodes, history)

    def _ask(self, words: list[str], on_reply: Callable[[Any], None] = lambda reply: None) -> None:
        """One command; what is lost is lost."""
        self._answered = on_reply
        encoded = [word.encode() for word in words]
        frame = b"*%d\r\n" % len(encoded) + b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in encoded])
        self._send(frame, lambda reply: None, lambda: None)

    def _received(self, data: bytes) -> None:
        self._buffer += data
        if self._on_reply is None:
            return
        reply, end = parsed(self._buffer, 0)
        if end < 0:
            return
        assert end == len(self._buffer), f"more than one reply to one request: {self._buffer!r}"
        self._buffer = b""
        said = {"error": reply[0].split()[0]} if isinstance(reply, tuple) else {}
        answered = self._answered
        self._take(said)
        answered(reply)

    def _next(self) -> None:
        draw = self._draw
        if draw.random() < 0.05 and self._stream is not None:
            self._stream.break_off()
            return
        steps = [self._add, self._get, self._settle, self._look, self._pause]
        draw.choices(steps, weights=[5, 5, 4, 1, 1])[0]()

    def _add(self) -> None:
        draw = self._draw
        self._count += 1
        is_once = draw.random() < 0.4
        body = f"{self._name}.{self._count}.{'once' if is_once else 'again'}"
        words = ["ADDJOB", draw.choice(QUEUES), body, draw.choice(["0", "300", "2000"]), "TTL", str(TTL_S)]
        words += ["RETRY", "0", "REPLICATE", "1"] if is_once else ["RETRY", draw.choice(["1", "5"])]
        if not is_once and draw.random() < 0.3:
            words += ["REPLICATE", draw.choice(["1", "2", "3"])]
        if draw.random() < 0.3:
            words += ["DELAY", draw.choice(["1", "5"])]
        if draw.random() < 0.2:
            words += ["KEY", draw.choice(["k1", "k2"])]
        if draw.random() < 0.1:
            words += ["MAXLEN", "5"]

        def added(reply: Any) -> None:
            if isinstance(reply, str):
                self._is_named(body, reply)

        self._ask(words, added)

    def _is_named(self, body: str, job: str) -> None:
        known = self._jobs.ids.setdefault(body, job)
        if known != job:
            self._history.problems.append(f"job {body} was called {known}, and is called {job}")

    def _get(self) -> None:
        words = ["GETJOB", *self._draw.choice([["NOHANG"], ["TIMEOUT", "300"], ["TIMEOUT", "2000"]])]
        if self._draw.random() < 0.4:
            words += ["COUNT", "3"]
        asked_at = self._world.time

        def got(reply: Any) -> None:
            for queue, job, body in reply if isinstance(reply, list) else ():
                self._got(queue.decode(), job.decode(), body.decode(), asked_at)

        self._ask([*words, "FROM", *self._draw.sample(QUEUES, self._draw.randint(1, 2))], got)

    def _got(self, queue: str, job: str, body: str, asked_at: float) -> None:
        jobs, problems = self._jobs, self._history.problems
        jobs.got += 1
        self._is_named(body, job)
        if asked_at > jobs.acknowledged.get(job, asked_at):
            problems.append(f"job {body} was got at {asked_at}, and was acknowledged at {jobs.acknowledged[job]}")
        if body.endswith("once"):
            if body in jobs.seen_once:
                problems.append(f"job {body} was got twice, and is at most once")
            jobs.seen_once.add(body)
        self._held.append(job)

    def _settle(self) -> None:
        if not self._held:
            self._get()
            return
        job = self._held.pop(self._draw.randrange(len(self._held)))
        command = self._draw.choice(["ACKJOB", "ACKJOB", "NACK", "ENQUEUE", "DEQUEUE", "WORKING", "DELJOB"])

        def settled(reply: Any) -> None:
            if command in ("ACKJOB", "DELJOB") and isinstance(reply, int):
                self._jobs.acknowledged.setdefault(job, self._world.time)

        self._ask([command, job], settled)

    def _look(self) -> None:
        words = self._draw.choice(LOOKS)
        self._ask(words)

    def _pause(self) -> None:
        self._ask(["PAUSE", MORE_JOBS, self._draw.choice(["in", "out", "none", "none"])])


def parsed(data: bytes, at: int) -> tuple[Any, int]:
    """The reply that begins at a place, and where it ends; -1: it is not whole. Errors are tuples of their text."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None, -1
    kind, rest = data[at : at + 1], data[at + 1 : end]
    if kind == b"+":
        return rest.decode(), end + 2
    if kind == b"-":
        return (rest.decode(),), end + 2
    if kind == b":":
        return int(rest), end + 2
    if rest == b"-1":
        return None, end + 2
    if kind == b"$":
        last = end + 2 + int(rest)
        return (data[end + 2 : last], last + 2) if len(data) >= last + 2 else (None, -1)
    assert kind == b"*", data[at : at + 50]
    items: list[Any] = []
    place = end + 2
    for _ in range(int(rest)):
        item, place = parsed(data, place)
        if place < 0:
            return None, -1
        items.append(item)
    return items, place
