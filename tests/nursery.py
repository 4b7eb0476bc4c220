"""Nodes of tests, forked from a process that has imported what a node runs: seven hundred are started, each for a test.

Run as `python -m tests.nursery FD` by each process that runs tests. It does to a node what `launch` does (a session of
its own, its lines to a file, a pipe to say that it is ready) and then what `python -m quorate_server supervisor` does.
How a node is really started is what tests/cli, tests/test_commands.py and tests/faults/test_odd_starts.py test.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final, Never

ROOT: Final = Path(__file__).parents[1]
MESSAGE_MAX: Final = 1 << 16

HEEDED: Final = ("QUORATE_", "PYTHON", "MALLOC_", "LD_", "NOTIFY_SOCKET", "HOME", "PATH", "TMPDIR", "TZ", "STARTED_BY")
"""What the names of variables begin with that a node goes by; Spark, pytest and others set more of their own."""


def environment() -> dict[str, str]:
    """What a node's processes inherit, and go by."""
    return {name: value for name, value in os.environ.items() if name.startswith(HEEDED)}


def has_ended(descriptor: int, timeout: float | None) -> bool:
    """Wait (s) until the process of that pidfd has ended."""
    looker = select.poll()
    looker.register(descriptor, select.POLLIN)
    return bool(looker.poll(None if timeout is None else timeout * 1000))


class Forked:
    """A process of a nursery's, as `subprocess.Popen` would have it."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended. Raises `subprocess.TimeoutExpired`."""
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a node", timeout or 0.0)
        return code

    def _code(self, timeout: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        with suppress(ProcessLookupError):  # another thread may be told its code first
            descriptor = os.pidfd_open(self.pid)
            try:
                if not has_ended(descriptor, timeout):
                    return None
            finally:
                os.close(descriptor)
        with self._lock:
            if self.returncode is None:
                self.returncode = self._nursery.code(self.pid)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """One process's. Ends with it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.nursery", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL
        )
        theirs.close()

    def launch(self, config: Path, log: Path) -> tuple[Forked, str]:
        """As `actors.node.launch.launch`."""
        reader, writer = os.pipe()
        asked = json.dumps({"config": str(config.resolve()), "cwd": str(Path.cwd())}).encode()
        with log.open("ab") as lines, self._lock:
            socket.send_fds(self._channel, [asked], [writer, lines.fileno()])
            pid = int(self._channel.recv(MESSAGE_MAX))
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            return Forked(self, pid), pipe.read().decode().removeprefix("failed ")

    def code(self, pid: int) -> int:
        """The exit code of a process that has ended."""
        with self._lock:
            self._channel.send(json.dumps({"ended": pid}).encode())
            return int(self._channel.recv(MESSAGE_MAX))


def main() -> None:
    """Fork and tell, until whoever runs tests is gone."""
    import quorate_server

    quorate_server._ours_first()
    from actors.node import supervisor
    from net.protocols import PROTOCOLS

    supervisor._worker_code(frozenset(PROTOCOLS))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_MAX, 2)
        if not data:
            return
        asked = json.loads(data)
        if "ended" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["ended"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                channel.close()
                _be_node(asked, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(answer).encode())


def _be_node(asked: dict[str, str], ready: int, log: int) -> Never:
    from actors.node import supervisor

    code: object = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        os.chdir(asked["cwd"])
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
        sys.argv = ["supervisor", json.dumps({"config": asked["config"], "flags": {}, "ready_fd": ready})]
        supervisor.main()
    except SystemExit as exit_:
        code = exit_.code or 0
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    main()
