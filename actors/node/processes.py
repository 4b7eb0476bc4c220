"""A node's processes as its supervisor sees them: a worker for each shard, and the console.

A worker is forked, not started anew: the supervisor has imported all that it runs, so that it is there in a tenth of
the time, also after a crash, has the code that the supervisor has, whatever was installed since, and shares its pages
with the others. What it inherits beside that is what it must not have: see `_become`.

The console's process is started beside the workers, again when it ends, and ended last. Nothing of the node depends
on it: `console` is a client, and talks to the node's port as any other.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Never

from actors.node.config import NodeConfig
from actors.node.control import EXIT_UNUSABLE, Control

log = logging.getLogger("quorate.node")

BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
HEALTHY_S: Final = 30.0
"""A worker that ran this long begins with the shortest back-off again."""

SAME_TROUBLE: Final = 20
"""The same ending, again and again, is logged at the first time and then at each so many-th."""

LAST_S: Final = 1.0
"""A worker that has closed its channel and does not end by then is killed."""

LOOK_S: Final = 0.002
"""So often it is looked whether it has ended."""

TOLD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What the supervisor is told by; a worker does not hear it."""

EXIT_RAISED: Final = 1
"""As Python ends where nothing catches what was raised."""

COMM: Final = Path("/proc/self/comm")
"""Takes what `ps -e` and `top` call the process, of 15 bytes."""

CONSOLE_PROGRAM: Final = [sys.executable, "-P", "-m", "quorate_server", "console"]

CONSOLE_AGAIN_S: Final = (0.5, 30.0)
"""After so long the console is started again, at first and at most."""

CONSOLE_HEALTHY_S: Final = 60.0
"""One that ran this long begins with the shortest pause again."""

CONSOLE_STOP_S: Final = 3.0
"""So long it has to end by itself."""


class WorkerProcess:
    """The worker of one shard. Times are monotonic seconds. `let_go` closes, in a new process, what is the
    supervisor's.

    `fault` says why it does not run: empty while it does. `is_over`: to start it again would not help.
    """

    def __init__(self, shard: int, name: str, let_go: Callable[[], None]) -> None:
        self.shard = shard
        self.name = name
        self._let_go = let_go
        self.ready = ""
        self.fault = "it is starting"
        self.is_over = False
        self.start_at = 0.0
        self.control: Control | None = None
        self._pid: int | None = None
        self._started_at = 0.0
        self._backoff_s = BACKOFF_MIN_S
        self._trouble = ""
        self._last_ending = ""
        self._same_endings = 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._pid is not None

    def start(self, now: float, config: dict[str, Any], run: Callable[[socket.socket], int]) -> Control | None:
        """Start it: it does `run` with its end of the channel, whose exit code is its own.

        It holds the node's lock as long as it lives. None where the system has no process to give.
        """
        self._started_at = now
        self._trouble = ""
        try:
            pid, ours, theirs = _forked()
        except OSError as error:
            self.fault = f"it can't be started: {error.strerror}"
            self._to_start_again(now, f"can't be started: {error.strerror}")
            return None
        if pid == 0:
            self._become(ours, theirs, run)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
        theirs.close()
        self._pid = pid
        self.control = Control(ours)
        self.control.send({"config": config, "shard": self.shard})
        return self.control

    def _become(self, others: socket.socket, sock: socket.socket, run: Callable[[socket.socket], int]) -> Never:
        """Be the worker, in the new process. It never gets back to the supervisor's frames, which stand below."""
        code = EXIT_RAISED
        try:
            others.close()
            signal.set_wakeup_fd(-1)
            for number in TOLD:  # a terminal signals the whole group; the supervisor says what it means
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
            self._let_go()
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.close(nothing)
            if sys.stderr is not None:  # what it could not write yet is the supervisor's to write
                sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
            with suppress(OSError):
                COMM.write_text(f"quorate-{self.shard}")
            code = run(sock)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                logging.shutdown()
            finally:
                os._exit(code)  # threads may wait on a disk that does not answer; nothing here is needed any more

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
        assert self._pid is not None
        assert self.control is not None
        self.control.sock.close()
        code = _code(self._pid)
        self._pid = None
        self.control = None
        self.ready = ""
        ending = f"{_ending(code)}{self._trouble and ': ' + self._trouble}"
        self.is_over = code == EXIT_UNUSABLE or is_stopping
        self.fault = self._trouble or ending
        if not self.is_over:
            self._to_start_again(now, f"ended with {ending}")
        return ending

    def _to_start_again(self, now: float, ending: str) -> None:
        """Say when, later and later while it ends soon; log why, but not each time."""
        if now - self._started_at > HEALTHY_S:
            self._backoff_s = BACKOFF_MIN_S
        self.start_at = now + self._backoff_s
        self._same_endings = self._same_endings + 1 if ending == self._last_ending else 0
        self._last_ending = ending
        if self._same_endings % SAME_TROUBLE == 0:
            log.error("%s %s; starting it again in %.1f s", self.name, ending, self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)

    def kill(self) -> None:
        """Kill it, since it does not stop by itself."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)


def _forked() -> tuple[int, socket.socket, socket.socket]:
    """Fork: the new process's id, or 0 in it, and both ends of a channel. Raises OSError, and leaves nothing then.

    Signals are held back in both until each has its own way with them: until then the new one would tell the
    supervisor's wakeup descriptor of its own.
    """
    ours, theirs = socket.socketpair()
    signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    try:
        return os.fork(), ours, theirs
    except OSError:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
        ours.close()
        theirs.close()
        raise


def _code(pid: int) -> int:
    """Wait for a process that ends, and make it if it does not; returns its exit code, or less than 0: a signal's."""
    until = time.monotonic() + LAST_S
    gone, status = os.waitpid(pid, os.WNOHANG)
    while not gone and time.monotonic() < until:
        time.sleep(LOOK_S)
        gone, status = os.waitpid(pid, os.WNOHANG)
    if not gone:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def console_arguments(config: NodeConfig) -> dict[str, Any]:
    """Tell it whom to ask, and where to listen for what."""
    host = config["host"]
    return {
        "nodes": [["127.0.0.1" if host in ("0.0.0.0", "", "*") else "::1" if host == "::" else host, config["port"]]],
        "tls": bool(config["tls"]),
        "ca": config["http_ca"] or None,
        "listeners": config["http_listeners"],
        "queues_max": config["http_queues_max"],
        "log_format": config["log_format"],
    }


class ConsoleProcess:
    """Times are monotonic seconds. `descriptor` is readable when it has ended; `start_at`: when to start it next."""

    def __init__(self, config: NodeConfig) -> None:
        self._arguments = console_arguments(config)
        self._process: subprocess.Popen[bytes] | None = None
        self._pause_s, self._pause_max_s = CONSOLE_AGAIN_S
        self._started_at = 0.0
        self.descriptor = -1
        self.start_at = 0.0 if self._arguments["listeners"] else float("inf")

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self, now: float) -> bool:
        """Start it; whether the system had a process to give, and is asked again later if not."""
        command = [*CONSOLE_PROGRAM, json.dumps(self._arguments)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            self.descriptor = os.pidfd_open(self._process.pid)
        except OSError as error:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._process = None
            self._to_start_again(now, f"can't be started: {error.strerror}")
            return False
        self._started_at, self.start_at = now, float("inf")
        return True

    def ended(self, now: float) -> None:
        """Start it again, later and later, since it has ended by itself."""
        assert self._process is not None
        code = self._process.wait()
        self._gone()
        if now - self._started_at > CONSOLE_HEALTHY_S:
            self._pause_s = CONSOLE_AGAIN_S[0]
        self._to_start_again(now, f"ended with code {code}")

    def _to_start_again(self, now: float, ending: str) -> None:
        log.error("the console %s; starting it again in %.1f s", ending, self._pause_s)
        self.start_at = now + self._pause_s
        self._pause_s = min(self._pause_s * 2, self._pause_max_s)

    def stop(self) -> None:
        """End it, by force if it takes long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(CONSOLE_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._gone()

    def _gone(self) -> None:
        os.close(self.descriptor)
        self._process, self.descriptor = None, -1
