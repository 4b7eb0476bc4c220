"""A real node in its own processes, for tests: started, signalled and killed by process id.

Where a test has changed its environment, by the command that users start it by; else from a nursery, which is quicker.
"""

import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from actors.node.launch import MEMORY, READY, launch
from quorate import Client
from tests.nursery import Forked, Nursery, environment, has_ended

_FIRST, _LAST = 12_000, 32_000
"""Below the ports that systems give to those who dial: one of those can be taken again before a node listens on it."""

_PARTS = 8
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PARTS
_own = range(_FIRST + (_LAST - _FIRST) // _PARTS * _worker, _FIRST + (_LAST - _FIRST) // _PARTS * (_worker + 1))
"""What this process draws from: those that run tests beside it draw from others."""

_next = itertools.cycle(_own)
for _ in range(secrets.randbelow(len(_own))):  # other runs begin elsewhere
    next(_next)


def free_port() -> int:
    """A port that nobody listens on, TCP or UDP, and none that was told before."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on, and none that was told before."""
    while True:
        ports = [next(_next) for _ in range(count)]
        if ports[-1] - ports[0] == count - 1 and all(map(_is_free, ports)):
            return ports[0]


def _is_free(port: int) -> bool:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_begun_with = environment()


@cache
def nursery() -> Nursery:
    """This process's."""
    return Nursery({**MEMORY, **os.environ, **_begun_with})


class Node:
    """One node. `folder` takes its data (unless the configuration says otherwise), its configuration and its log."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.port = int(config.get("port") or free_port())
        self.config = {"data_dir": str(folder / "data"), "port": self.port, **config}
        self.config_path = folder / f"node-{self.port}.json"
        self.log_path = folder / f"node-{self.port}.log"
        self.process: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> None:
        """Start and wait until it is ready. Raises AssertionError with its log if it does not come up."""
        said = self.try_start()
        assert said == READY, f"{said}\n{self.log}"

    def try_start(self) -> str:
        """Start; returns "ready", or why it did not come up."""
        self.write_config()
        if environment() == _begun_with:
            self.process, said = nursery().launch(self.config_path, self.log_path)
        else:
            self.process, said = launch(self.config_path, {}, self.log_path)
        return said

    def write_config(self) -> None:
        """What it starts with."""
        self.config_path.write_text(json.dumps(self.config))

    @property
    def log(self) -> str:
        """What the node has logged."""
        return self.log_path.read_text()

    def client(self, timeout: float = 10.0) -> Client:
        """A client of it."""
        return Client("127.0.0.1", self.port, timeout=timeout)

    def connect(self) -> socket.socket:
        """A bare TCP connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    @property
    def worker_pid(self) -> int:
        """The worker's process id, as it says itself."""
        with self.client() as client:
            return int(client.status()["pid"])

    def kill(self) -> None:
        """SIGKILL to all of its processes, and wait until they are gone."""
        if self.process is None:
            return
        workers, children = [], ""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in children.split():
            with contextlib.suppress(OSError):
                workers.append(os.pidfd_open(int(pid)))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        for worker in workers:  # else its ports are not free yet
            has_ended(worker, 10.0)
            os.close(worker)

    def stop(self, timeout: float = 5.0) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(timeout)
        self.process = None
        return code
