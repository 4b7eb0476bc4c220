"""The console's process as the supervisor sees it: started beside the workers, again when it ends, ended last.

Nothing of the node depends on it: `console` is a client, and talks to the node's port as any other.
"""

import json
import logging
import os
import subprocess
import sys
from typing import Any, Final

from actors.node.config import NodeConfig

log = logging.getLogger("quorate.node")

PROGRAM: Final = [sys.executable, "-P", "-m", "quorate_server", "console"]

AGAIN_S: Final = (0.5, 30.0)
"""After so long it is started again, at first and at most."""

HEALTHY_S: Final = 60.0
STOP_S: Final = 3.0


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
        self._pause_s, self._pause_max_s = AGAIN_S
        self._started_at = 0.0
        self.descriptor = -1
        self.start_at = 0.0 if self._arguments["listeners"] else float("inf")

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self, now: float) -> bool:
        """Start it; whether the system had a process to give, and is asked again later if not."""
        command = [*PROGRAM, json.dumps(self._arguments)]
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
        if now - self._started_at > HEALTHY_S:
            self._pause_s = AGAIN_S[0]
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
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._gone()

    def _gone(self) -> None:
        os.close(self.descriptor)
        self._process, self.descriptor = None, -1
