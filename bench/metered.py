"""A node whose worker measures how long each actor's turns take: where its time goes, compiled code or not.

`measure` runs one under load and prints microseconds a request by stage. It is the real node, but for a runtime that
looks at the thread's clock before and after each turn, which costs some 0.3 us a turn. CPU time alone: the loop's
waiting for the disk is not in it.
"""

import asyncio
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from actors.node import supervisor, worker, worker_process
from actors.runtime.asyncio_runtime import AsyncioRuntime
from actors.runtime.contract import Turn
from bench.load import load
from bench.node import running_node

PROGRAM: Final = [sys.executable, "-m", "bench.metered"]
VARIABLE: Final = "BENCH_METER"
TOLD_EACH_S: Final = 0.2

STAGES: Final = {
    "Listener": "Listener: hand over what was read; encode replies, and give them to the sockets",
    "Router": "Router",
    "QueueOwner": "QueueOwner: decide, apply, make entries, free replies",
    "Replicator": "Replicator",
    "LogWriter": "LogWriter: the journal, and writes by the loop",
}


class MeteredRuntime(AsyncioRuntime):
    """Adds up the loop's time by who had the turn, and writes it to the file that BENCH_METER names."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[object, BaseException], None]) -> None:
        super().__init__(loop, on_failure)
        self.seconds: dict[str, float] = defaultdict(float)
        self._told = Path(os.environ[VARIABLE])
        loop.call_later(TOLD_EACH_S, self._tell)

    def _take(self, turn: Turn) -> None:
        begun = time.thread_time()
        super()._take(turn)
        self.seconds[type(turn).__name__] += time.thread_time() - begun

    def _tell(self) -> None:
        used, process = resource.getrusage(resource.RUSAGE_THREAD), resource.getrusage(resource.RUSAGE_SELF)
        told = {
            "seconds": dict(self.seconds),
            "loop": used.ru_utime + used.ru_stime,
            "all": process.ru_utime + process.ru_stime,
            "kernel": process.ru_stime,
        }
        unfinished = self._told.with_suffix(".new")
        unfinished.write_text(json.dumps(told))
        unfinished.rename(self._told)
        self._loop.call_later(TOLD_EACH_S, self._tell)


def measure(port: int, connections: int, requests: int, **settings: object) -> None:
    """Print where a request's time goes in a node with these settings, under load."""
    with tempfile.TemporaryDirectory(prefix="quorate-meter-") as folder, contextlib.ExitStack() as stack:
        told = Path(folder) / "told"
        os.environ[VARIABLE] = str(told)
        node = stack.enter_context(running_node(port, program=[*PROGRAM, "supervisor"], **settings))

        def now() -> dict[str, dict[str, float] | float]:
            time.sleep(3 * TOLD_EACH_S)
            found: dict[str, dict[str, float] | float] = json.loads(told.read_text())
            return found

        load("quorate", node.port, connections, requests // 4)
        before = now()
        figures = load("quorate", node.port, connections, requests)
        after = now()
    us = 1e6 / requests

    def passed(what: str) -> float:
        one, other = before[what], after[what]
        assert isinstance(one, float)
        assert isinstance(other, float)
        return (other - one) * us

    one, other = before["seconds"], after["seconds"]
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    turns = {name: (seconds - one.get(name, 0.0)) * us for name, seconds in other.items()}
    rows = [(stage, turns.pop(name, 0.0)) for name, stage in STAGES.items()]
    rows.append(("other actors", sum(turns.values())))
    rows.insert(0, ("sockets, decoding, timers", passed("loop") - sum(spent for _, spent in rows)))
    rows.append(("other threads: disk lanes, LMDB", passed("all") - passed("loop")))
    print(f"{connections} connections, {figures['rps']:.0f} requests/s; microseconds of the worker a request:")
    for stage, spent in rows:
        print(f"  {spent:6.1f}  {stage}")
    print(f"  {passed('all'):6.1f}  in all, {passed('kernel'):.1f} of it in the kernel")


if __name__ == "__main__":
    worker_process.PROGRAM[:] = PROGRAM
    setattr(worker, "AsyncioRuntime", MeteredRuntime)  # noqa: B010
    {"supervisor": supervisor.main, "worker": worker.main}[sys.argv.pop(1)]()
