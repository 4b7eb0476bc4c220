"""One worker as the supervisor sees it: its process, the channel to it, and when it may be started again."""

import logging
import os
import socket
import subprocess
import sys
from typing import Any, Final

from actors.node.control import EXIT_UNUSABLE, Control

log = logging.getLogger("quorate.node")

BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
HEALTHY_S: Final = 30.0
"""A worker that ran this long begins with the shortest back-off again."""

MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
"""Makes glibc give back at once what is this large and free again (mallopt(3), "dynamic mmap threshold").

Else it keeps up to 32 MiB in one piece among what is small: replies of 4 MB that three hundred clients left unread, in
a worker whose clients may make it hold 128 MiB, took 1 GiB, and were never given back (`bench.unread`).
"""

SAME_TROUBLE: Final = 20
"""The same ending, again and again, is logged at the first time and then at each so many-th."""

PROGRAM = [sys.executable, "-P", "-m", "quorate_server"]
"""What runs `worker FD`; bench/metered.py has another."""

LAST_S: Final = 1.0
"""A worker that has closed its channel and does not end by then is killed."""


class WorkerProcess:
    """The worker of one shard. Times are monotonic seconds.

    `fault` says why it does not run: empty while it does. `is_over`: to start it again would not help.
    """

    def __init__(self, shard: int, name: str) -> None:
        self.shard = shard
        self.name = name
        self.ready = ""
        self.fault = "it is starting"
        self.is_over = False
        self.start_at = 0.0
        self.control: Control | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._backoff_s = BACKOFF_MIN_S
        self._trouble = ""
        self._last_ending = ""
        self._same_endings = 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self, now: float, config: dict[str, Any], lock_fd: int) -> Control:
        """Start it; it holds the node's lock as long as it lives."""
        ours, theirs = socket.socketpair()
        command = [*PROGRAM, "worker", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, env={**MEMORY, **os.environ}, pass_fds=(theirs.fileno(), lock_fd), stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._started_at = now
        self._trouble = ""
        self.control = Control(ours)
        self.control.send({"config": config, "shard": self.shard})
        return self.control

    def hear(self, message: dict[str, Any]) -> None:
        """Something that the worker says."""
        if "ready" in message:
            self.ready, self.fault, self._trouble = message["ready"], "", ""
        elif "trouble" in message:
            self._trouble = message["trouble"]
        elif "failed" in message:
            self._trouble = message["failed"]

    def ended(self, now: float, *, is_stopping: bool) -> str:
        """End it: it has closed its channel, and ends, or is made to; returns how it ended."""
        assert self._process is not None
        try:
            code = self._process.wait(LAST_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        self.control = None
        self.ready = ""
        ending = f"{_ending(code)}{self._trouble and ': ' + self._trouble}"
        self.fault = self._trouble or ending
        self.is_over = code == EXIT_UNUSABLE or is_stopping
        if self.is_over:
            return ending
        if now - self._started_at > HEALTHY_S:
            self._backoff_s = BACKOFF_MIN_S
        self.start_at = now + self._backoff_s
        self._same_endings = self._same_endings + 1 if ending == self._last_ending else 0
        self._last_ending = ending
        if self._same_endings % SAME_TROUBLE == 0:
            log.error("%s ended with %s; starting it again in %.1f s", self.name, ending, self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)
        return ending

    def kill(self) -> None:
        """Kill it, since it does not stop by itself."""
        if self._process is not None:
            self._process.kill()


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
