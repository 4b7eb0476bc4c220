"""Whatever tasks, failures, outages and stops are drawn, each task of each framework ends: done, or dead with a reason.

`python -m tests.peers.test_drawn --tasks 2000 --outage 30` is the long form.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from quorate import QuorateError
from tests.node import Node
from tests.peers.conftest import PYTHON, ROOT, environment

APPS = Path(__file__).parent / "apps"
FRAMEWORKS = ("dramatiq", "celery", "taskiq", "django", "worker")
WORKERS = {
    "dramatiq": ["-m", "dramatiq", "drawn", "--processes", "1", "--threads", "4"],
    "celery": ["-m", "celery", "-A", "drawn", "worker", "-c", "3", "--loglevel", "error"],
    "taskiq": ["-m", "taskiq", "worker", "drawn:broker", "--workers", "1", "--no-configure-logging"],
    "django": ["-m", "django", "quorate_worker", "--settings", "django_site.settings", "--concurrency", "4"],
    "worker": ["drawn.py", "work"],
}
QUEUES = dict.fromkeys(FRAMEWORKS, "drawn") | {
    "dramatiq": "{app.drawn}",
    "celery": "app.drawn",
    "django": "site.default",
}
KINDS = {"ok": 60, "slow": 16, "fails": 4, "odd": 4, "pair": 4, "large": 4, "exit": 2, "retries": 3, "pipes": 3}
FAILING = ("fails", "odd", "pair", "large", "exit")
RARE = ("blocks", "holds", "killed")
"""One of each in forty tasks, or so."""

ENDS_S = 60.0
"""Within so long of the last fault every message of a few has ended: some leases, and what workers take to start."""


class Drawn:
    """One framework's tasks, its workers, which are started again when they end, and its node."""

    def __init__(self, framework: str, folder: Path, tasks: int, outage_s: float, seed: int) -> None:
        self._draw = random.Random(f"{seed} {framework}")
        self.framework = framework
        self._folder = folder
        self._node = Node(folder, {})
        self._node.start()
        self._worker: subprocess.Popen[bytes] | None = None
        self._outage_s = outage_s
        kinds = self._draw.choices(list(KINDS), list(KINDS.values()), k=tasks)
        for rare in RARE:
            for at in self._draw.sample(range(tasks), max(tasks // 100, 1)):
                kinds[at] = rare
        self.tasks = [(f"t{n}", kind) for n, kind in enumerate(kinds)]
        self._environment = environment(
            self._node, PYTHONPATH=f"{APPS}:{ROOT}", NOTES=str(folder / "notes"), FRAMEWORK=framework, LEASE="2"
        )

    def go(self) -> Counter[str]:
        """How many tasks were done, dead and done twice."""
        try:
            waiting, faults = list(self.tasks), 0
            while waiting:
                part, waiting = waiting[:20], waiting[20:]
                self._send(part)
                self._pass(1.0)
                if self._draw.random() < 0.6:
                    self._fault()
                    faults += 1
            self._wait_for_the_end()
            return self._judged(faults)
        finally:
            self._kill_worker()
            self._node.kill()

    def _send(self, tasks: list[tuple[str, str]]) -> None:
        done = subprocess.run(
            [str(PYTHON), "drawn.py", "send"],
            input=json.dumps(tasks).encode(),
            cwd=APPS,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert not done.returncode, done.stdout.decode()

    def _pass(self, seconds: float) -> None:
        """Let time pass, and start workers that have ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._worker is None or self._worker.poll() is not None:
                self._kill_worker()
                with (self._folder / "worker.log").open("ab") as log:
                    self._worker = subprocess.Popen(
                        [str(PYTHON), *WORKERS[self.framework]],
                        cwd=APPS,
                        env=self._environment,
                        start_new_session=True,
                        stdout=log,
                        stderr=log,
                    )
            time.sleep(0.1)

    def _kill_worker(self) -> None:
        """All that is left of it."""
        if self._worker is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._worker.pid, signal.SIGKILL)
            self._worker.wait()
            self._worker = None

    def _fault(self) -> None:
        kind = self._draw.choice(["stands still", "is killed", "is stopped", "worker is killed", "worker is stopped"])
        length_s = self._draw.uniform(1.0, self._outage_s)
        if kind == "stands still":
            assert self._node.process is not None
            pids = [self._node.worker_pid, self._node.process.pid]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            self._pass(length_s)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        elif kind == "worker is killed":
            self._kill_worker()
        elif kind == "worker is stopped":
            assert self._worker is not None
            self._worker.terminate()
            until = time.monotonic() + 30
            while self._worker.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
        else:
            self._node.kill() if kind == "is killed" else self._node.stop(20)
            self._pass(length_s)
            self._node.start()

    def _counts(self) -> dict[str, Any]:
        with self._node.client() as client:
            try:
                return {**client.monitor(QUEUES[self.framework])}
            except QuorateError:
                return {"size": -1}

    def _wait_for_the_end(self) -> None:
        limit_s = ENDS_S + len(self.tasks) / 4  # tasks that block or end their only worker follow each other
        until = time.monotonic() + limit_s
        while (counts := self._counts())["size"]:
            if time.monotonic() > until:
                log = (self._folder / "worker.log").read_text(errors="replace")[-4000:]
                raise AssertionError(f"{self.framework}: {counts} after {limit_s} s\n{self._left()}\n{log}")
            self._pass(0.5)

    def _left(self) -> list[str]:
        with self._node.client() as client:
            rows = [
                row
                for state in ("ready", "delayed", "in_flight")
                for row in client.browse(QUEUES[self.framework], state)
            ]
        return [f"{row.state} {row.deliveries} {row.nacks} {str(row.data)[:200]}" for row in rows[:5]]

    def _dead(self) -> str:
        """What the dead letters say, all of it."""
        with self._node.client() as client:
            names = [name for name in client.queues() if name.endswith((".XQ", ".dead"))]
            rows = [row for name in names for state in ("ready", "delayed") for row in client.browse(name, state)]
        self.reasons = Counter(str(row.dead.get("reason"))[:60] for row in rows if row.dead)
        return "\n".join(str(row.data)[:4000] for row in rows).replace("\\", "")

    def _has_ended(self, name: str, kind: str, done: Counter[str], began: Counter[str], *, is_dead: bool) -> bool:
        """Whether a task has come to the end that its kind has in its framework."""
        if self.framework == "celery" and kind == "pipes":
            return (done[name] > 0 and done[name + "-next"] > 0) or is_dead
        if kind in FAILING and self.framework in ("celery", "taskiq"):
            return began[name] > 0  # who fails for good is acknowledged there
        if kind in FAILING or (kind == "pipes" and self.framework in ("dramatiq", "worker", "taskiq")):
            return is_dead
        return done[name] > 0 or is_dead

    def _judged(self, faults: int) -> Counter[str]:
        notes = [line.split() for line in (self._folder / "notes").read_text().splitlines()]
        done = Counter(words[0] for words in notes if words[1] == "done")
        began = Counter(words[0] for words in notes if words[1] == "began")
        dead = self._dead()
        found: Counter[str] = Counter(faults=faults)
        lost = []
        for name, kind in self.tasks:
            is_dead = f'"{name}"' in dead or f"'{name}'" in dead
            if not self._has_ended(name, kind, done, began, is_dead=is_dead):
                lost.append((name, kind, began[name]))
            found["done"] += done[name] > 0
            found["dead"] += is_dead
            found["begun twice"] += kind in ("ok", "slow", "blocks") and began[name] > 1
            assert began[name] <= 12, (name, kind, began[name])
        assert not lost, (self.framework, lost, self.reasons)
        return found


@pytest.mark.slow(60)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_drawn_task_ends(peers: Path, tmp_path: Path, framework: str) -> None:
    print(framework, dict(Drawn(framework, tmp_path, 60, 5.0, 1).go()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--outage", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=FRAMEWORKS)
    asked = parser.parse_args()
    for framework in asked.only:
        with tempfile.TemporaryDirectory() as folder:
            drawn = Drawn(framework, Path(folder), asked.tasks // len(FRAMEWORKS), asked.outage, asked.seed)
            print(framework, dict(drawn.go()), dict(drawn.reasons), flush=True)
