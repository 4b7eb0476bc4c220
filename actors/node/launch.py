"""Between a node's first process and who started it: another process, or a service manager.

`launch` starts a node and learns whether it came up. `notify` and `notify_reloading` are what the node tells systemd
(`Type=notify-reload`, by sd_notify(3)).
"""

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

SUPERVISOR: Final = [sys.executable, "-P", "-m", "quorate_server", "supervisor"]
"""`-P`: no module of the folder that somebody starts a node in may stand before ours."""

MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
"""Makes glibc give back at once what is this large and free again (mallopt(3), "dynamic mmap threshold").

Else it keeps up to 32 MiB in one piece among what is small: replies of 4 MB that three hundred clients left unread, in
a worker whose clients may make it hold 128 MiB, took 1 GiB, and were never given back (`bench.unread`).
"""


READY: Final = "ready"
TRYING: Final = "trying "
"""Begins what is said of a node that has not come up yet, and goes on trying: the rest says why."""


def supervisor_command(
    config: Path | None, flags: dict[str, Any], ready_fd: int | None = None, program: Sequence[str] = SUPERVISOR
) -> list[str]:
    """Make the command that runs a node with the settings of a file and, over them, of `flags`."""
    arguments = {"config": None if config is None else str(config.resolve()), "flags": flags, "ready_fd": ready_fd}
    return [*program, json.dumps(arguments)]


def environment() -> dict[str, str]:
    """Make that of a node's processes: this one's, and `MEMORY` where it says nothing else."""
    return {**MEMORY, **os.environ}


def launch(
    config: Path | None, flags: dict[str, Any], log: Path, program: Sequence[str] = SUPERVISOR
) -> tuple["subprocess.Popen[bytes]", str]:
    """Start a node in a session of its own, its lines going to `log`; returns when it is ready or has given up.

    The text is `READY`, `TRYING` and why it is not up yet, or why it did not come up (empty: its log says why).
    """
    reader, writer = os.pipe()
    with log.open("ab") as lines:
        process = subprocess.Popen(
            supervisor_command(config, flags, writer, program),
            env=environment(),
            pass_fds=(writer,),
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            start_new_session=True,
        )
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return process, pipe.read().decode().removeprefix("failed ")


log = logging.getLogger("quorate.node")

NOTIFY_READY = "READY=1"
NOTIFY_STOPPING = "STOPPING=1"


def notify_reloading() -> str:
    """Say that a reload begins; NOTIFY_READY ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(state: str, status: str = "") -> None:
    """Send `state` to the socket that NOTIFY_SOCKET names, with a `status` for people; nothing if there is none.

    A manager that does not listen is its own fault, and told in the log alone.
    """
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    text = f"{state}\nSTATUS={status}" if status else state
    address = "\0" + where[1:] if where.startswith("@") else where
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.sendto(text.encode(), address)
    except OSError as error:
        log.warning("the service manager at %s can't be told %r: %s", where, state.splitlines()[0], error.strerror)
