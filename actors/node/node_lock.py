"""Who holds a data folder: a file lock that dies with the node's processes, and what the holder says of itself."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Final

LOCK_NAME: Final = "node.lock"

GOING_S: Final = 3.0
"""How long the last processes of a killed node are waited for."""


class HeldError(Exception):
    """Another node holds the folder; `holder` is what it says of itself (pid, host, port), or empty."""

    def __init__(self, folder: Path, holder: dict[str, Any]) -> None:
        who = f"process {holder['pid']} on {holder['host']}:{holder['port']}" if "pid" in holder else "another process"
        super().__init__(f"{folder} is in use by {who}; stop that node, or name another --data-dir")
        self.holder = holder


class NodeLock:
    """The lock, held from `take` until every process that inherited it is gone."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self.fd = -1

    def take(self, about: dict[str, Any]) -> None:
        """Hold the folder, made if it is not there, and say who does. Raises `HeldError`, OSError.

        Of a node that was killed, the last process may still be giving its memory back: that is waited for.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        until = time.monotonic() + GOING_S
        while not _is_locked(fd):
            holder = holder_of(self._path.parent)
            if holder is not None and (time.monotonic() > until or _is_alive(holder.get("pid"))):
                os.close(fd)
                raise HeldError(self._path.parent, holder)
            time.sleep(GOING_S / 100)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(about).encode(), 0)
        self.fd = fd


def _is_locked(fd: int) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(pid: object) -> bool:
    """Whether there is such a process; so it is said, too, where the number is not known."""
    try:
        os.kill(pid if isinstance(pid, int) else 0, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def holder_of(folder: Path) -> dict[str, Any] | None:
    """Read what the node that holds the folder says of itself; None if no node does."""
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(fd, 4096, 0)
            try:
                about = json.loads(text)
            except ValueError:
                return {}
            return about if isinstance(about, dict) else {}
        return None
    finally:
        os.close(fd)
