"""What stands in a data folder beside its shards: who holds it, what it was founded with, what came of the last reload.

The lock is a file lock that dies with the node's processes; the holder says of itself who it is, behind it.

`founding.json` is written before the first shard is, and never changes: how many shards there are, and which cluster
they are of. A folder of a version that knew one shard alone has none.

The supervisor notes what came of a reload, and `qctl node reload` waits for it.
"""

import fcntl
import json
import os
import random
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from storage.real_disk import write_whole
from storage.vote_file import drawn_id

LOCK_NAME: Final = "node.lock"

GOING_S: Final = 3.0
"""How long the last processes of a killed node are waited for."""


FOUNDING_NAME: Final = "founding.json"

FOUNDING_FORMAT: Final = 1

RELOAD_NAME: Final = "reload.json"

WAIT_S: Final = 3.0
"""Whoever asked for a reload is told of workers that have not taken it by then."""


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


class FoundingError(Exception):
    """The folder was founded with something else than is asked for now."""


@dataclass(frozen=True)
class FoundedWith:
    """`cluster_id` is the number that all shards' clusters get that this node founds; 0: each draws its own."""

    shards: int
    cluster_id: int


def founded(folder: Path, shards: int) -> FoundedWith:
    """Read what the folder was founded with; founds it with `shards` if nothing is there yet.

    Raises `FoundingError` where that is another number of shards, or can't be read; OSError.
    """
    path = folder / FOUNDING_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("format") != FOUNDING_FORMAT:
            raise FoundingError(f"{path} is of another version, or damaged: {str(found)[:80]}")
        founding = FoundedWith(int(found["shards"]), int(str(found["cluster_id"]), 16))
    except FileNotFoundError:
        founding = FoundedWith(1, 0) if (folder / "shard-0").exists() else _found(path, shards)
    except (ValueError, KeyError) as error:
        raise FoundingError(f"{path} can't be read: {error!r}") from error
    if founding.shards != shards:
        raise FoundingError(
            f"shards is set to {shards}, and the data in {folder} were founded with {founding.shards}: which shard a "
            f"queue is in depends on that. Set shards to {founding.shards}, or begin anew with an empty folder"
        )
    _check_first(folder)
    return founding


def _check_first(folder: Path) -> None:
    """Shard 0 says which cluster all others are of: without it they would be taken for those of a new one.

    So its folder is made before any worker makes another.
    """
    first = folder / "shard-0" / "journal"
    if first.exists():
        return
    if not any(folder.glob("shard-*/journal")):
        first.mkdir(parents=True, mode=0o700)
        return
    raise FoundingError(
        f"shard-0 is gone from {folder}, and others are there: restore it from a backup, or, where the folder is that "
        "of a node of a cluster, remove the node from it, empty the folder, and add the node again"
    )


def _found(path: Path, shards: int) -> FoundedWith:
    """Write it, whole or not at all."""
    founding = FoundedWith(shards, drawn_id(random.SystemRandom().random))
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"format": FOUNDING_FORMAT, "shards": shards, "cluster_id": f"{founding.cluster_id:x}"}
    write_whole(path, json.dumps(told) + "\n")
    return founding


@dataclass(frozen=True)
class ReloadOutcome:
    """Of the `serial`-th reload of supervisor `pid`: a line for each thing `said`; `is_taken` False: all stays.

    `without` names the workers that do not go by it, for a line of `said` each.
    """

    pid: int
    serial: int
    is_taken: bool
    said: list[str]
    without: list[str]


class Reload:
    """One reload under way: waits until every worker that was told of it goes by it, at most until `until`.

    Times are of the monotonic clock, in s. A later reload takes an earlier one's place: its asker sees the later one.
    """

    def __init__(self, serial: int, said: Iterable[str], told: Iterable[str], now: float, *, is_taken: bool) -> None:
        self.serial = serial
        self.until = now + WAIT_S
        self._said = list(said)
        self._is_taken = is_taken
        self._awaited = set(told)
        self._without: list[str] = []

    def answered(self, worker: str, serial: int, faults: Iterable[str]) -> None:
        """Note that a worker goes by the configuration of that reload, or does not for these reasons."""
        if serial != self.serial or worker not in self._awaited:
            return
        self._awaited.discard(worker)
        reasons = "; ".join(faults)
        if reasons:
            self._lacks(worker, f"{worker} has not taken all of it: {reasons}")

    def gone(self, worker: str) -> None:
        """Note that a worker has ended: it is started with what was read."""
        self._awaited.discard(worker)

    def outcome(self, now: float) -> ReloadOutcome | None:
        """Say what came of it; None while there is reason to wait."""
        if self._awaited and now < self.until:
            return None
        for worker in sorted(self._awaited):
            self._lacks(worker, f"{worker} has not taken it yet, and will when it can")
        self._awaited.clear()
        return ReloadOutcome(os.getpid(), self.serial, self._is_taken, self._said, self._without)

    def _lacks(self, worker: str, said: str) -> None:
        self._without.append(worker)
        self._said.append(said)


def note_reload(folder: Path, outcome: ReloadOutcome) -> None:
    """Write it, whole or not at all. Raises OSError."""
    write_whole(folder / RELOAD_NAME, json.dumps(asdict(outcome)) + "\n")


def last_reload(folder: Path) -> ReloadOutcome | None:
    """Read what was noted last; None if nothing was, or it can't be read."""
    try:
        return ReloadOutcome(**json.loads((folder / RELOAD_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
