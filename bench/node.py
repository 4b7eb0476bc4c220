"""Starting and stopping a node of our own for a benchmark, by process id."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from actors.node.launch import READY, SUPERVISOR, launch

INTERPRETED: Final = re.compile(r"interpreted \([^)]*\)")
"""As a node's log tells it."""

LOOK_S: Final = 0.01

_said: Final[set[str]] = set()


class BenchNode:
    """A node in its own folder and process group. Setting `program`: the words that run its supervisor."""

    def __init__(self, folder: Path, port: int, **settings: object) -> None:
        self.folder = folder
        program = settings.pop("program", SUPERVISOR)
        assert isinstance(program, list)
        self._program: list[str] = program
        self.port = port
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and return when it is ready. Raises RuntimeError with its log if it does not come up."""
        flags = {"data_dir": str(self.folder / "data"), "port": self.port, **self._settings}
        log = self.folder / "node.log"
        self._process, said = launch(None, flags, log, self._program)
        if said != READY:
            raise RuntimeError(f"{said}\n{log.read_text()}")
        runs = INTERPRETED.search(log.read_text())
        if runs is not None and runs.group() not in _said:
            _said.add(runs.group())  # a figure of interpreted code is none of what users run
            print(f"beware: the nodes run {runs.group()}", file=sys.stderr, flush=True)

    def pin(self, cpus: set[int]) -> None:
        """Let all threads of all its processes run on those cores alone."""
        for pid in (self.supervisor_pid, *self.worker_pids):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cpus)

    @property
    def worker_pids(self) -> list[int]:
        """The processes that do the work."""
        supervisor = self.supervisor_pid
        return [int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()]

    @property
    def supervisor_pid(self) -> int:
        """The first process."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """The CPU time that its processes have used (s)."""
        return sum(map(cpu_seconds, (self.supervisor_pid, *self.worker_pids)))

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None


@contextmanager
def running_node(port: int, **settings: object) -> Iterator[BenchNode]:
    """A node for a block, in a folder of its own that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        node = BenchNode(Path(folder), port, **settings)
        node.start()
        try:
            yield node
        finally:
            node.stop()


def resident_bytes(pid: int) -> int:
    """A process's resident memory (bytes)."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """The most memory (bytes) that any of the processes took beyond what it had, looked at every now and then."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.bytes = 0
        self._before = {pid: resident_bytes(pid) for pid in pids}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_S):
            for pid, before in self._before.items():
                with contextlib.suppress(OSError, IndexError):  # it may have ended
                    self.bytes = max(self.bytes, resident_bytes(pid) - before)

    def end(self) -> int:
        """Look no more; returns `bytes`."""
        self._is_over.set()
        self._thread.join()
        return self.bytes


def cpu_seconds(pid: int) -> float:
    """The CPU time a process has used (seconds)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
