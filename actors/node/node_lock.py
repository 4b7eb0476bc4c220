"""Who holds a data folder: a file lock that dies with the node's processes, and what the holder says of itself."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Final

LOCK_NAME: Final = "node.lock"


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
        """Hold the folder, made if it is not there, and say who does. Raises `HeldError`, OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise HeldError(self._path.parent, holder_of(self._path.parent) or {}) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(about).encode(), 0)
        self.fd = fd


def holder_of(folder: Path) -> dict[str, Any] | None:
    """What the node that holds the folder says of itself; None if no node does."""
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
