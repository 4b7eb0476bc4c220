"""An archive's folder: what is in it, and how it changes so that a plain listing is always exact. No Spark in here.

    ARCHIVE/data                a link to the version that counts
    ARCHIVE/_versions/N/batch=B/date=D/shard=S/*.parquet
    ARCHIVE/_staging/batch=B    a batch that is being written
    ARCHIVE/_checkpoint         where the stream is; it must live and die with the data
    ARCHIVE/archive.json        what it is of: which cluster, and where it began; and its name in the log

A batch is written beside the data and becomes a part of them by one rename, whole, once: Spark does a batch again with
the same records if it was killed before it had noted that it was done, and a batch that is there is not written again.
Compaction makes a new version out of links to what stays and of merged files, and switches the link. A reader that has
begun in the version before finds it there until the next compaction.

The folder is on a file system with renames and links (a disk, NFS) that driver and executors all see.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

DATA: Final = "data"
VERSIONS: Final = "_versions"
STAGING: Final = "_staging"
CHECKPOINT: Final = "_checkpoint"
ABOUT: Final = "archive.json"
BATCH: Final = "batch="
MERGED: Final = "_merged"
LOCK: Final = "_lock"
ARCHIVING: Final = "_archiving"
COMPACTING: Final = "_compacting"


class ArchiveError(RuntimeError):
    """The folder is no archive, or one of something else."""


class ArchiveFolder:
    """The archive at `path`, which `create` makes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def data(self) -> Path:
        """What a reader opens."""
        return self.path / DATA

    @property
    def checkpoint(self) -> Path:
        """Spark's, of the stream that fills it."""
        return self.path / CHECKPOINT

    @property
    def is_there(self) -> bool:
        """Whether there is an archive."""
        return (self.path / ABOUT).exists()

    def create(self, about: dict[str, Any]) -> dict[str, Any]:
        """Make it if it is not there; returns what it is about. Raises `ArchiveError` for a folder of other things."""
        if self.is_there:
            return self.about()
        others = [one.name for one in self.path.iterdir()] if self.path.exists() else []
        if any(name not in (VERSIONS, DATA, LOCK) and not name.endswith(".part") for name in others):
            raise ArchiveError(f"{self.path} is not empty, and no archive")
        (self.path / VERSIONS / "0").mkdir(parents=True, exist_ok=True)
        self._point_to("0")
        self.write_about(about)  # last: from now on it is one
        return about

    def about(self) -> dict[str, Any]:
        """Read what was archived. Raises `ArchiveError`."""
        try:
            return dict(json.loads((self.path / ABOUT).read_text()))
        except (OSError, ValueError) as error:
            raise ArchiveError(f"{self.path} is no archive: {error}") from error

    def check(self) -> None:
        """Raise `ArchiveError` if data and checkpoint are not of each other: batches would be skipped."""
        has_data = bool(self.batches()) or self._merged_upto() >= 0
        has_begun = any((self.checkpoint / "commits").glob("[0-9]*"))
        if has_data and not any((self.checkpoint / "offsets").glob("[0-9]*")):
            raise ArchiveError(f"{self.path} has lost its {CHECKPOINT}: nothing can be added to it; begin another one")
        if has_begun and not has_data:
            raise ArchiveError(f"{self.path} has lost its data, and {CHECKPOINT} says that they are there")

    def write_about(self, about: dict[str, Any]) -> None:
        """Note what it is about, whole or not at all."""
        part = self.path / f"{ABOUT}.part"
        part.write_text(json.dumps(about, indent=1) + "\n")
        part.replace(self.path / ABOUT)

    def _point_to(self, version: str) -> None:
        part = self.path / f"_{DATA}.part"
        part.unlink(missing_ok=True)
        part.symlink_to(Path(VERSIONS) / version)
        part.replace(self.data)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes what counts meanwhile: an archive job and a compaction may run at the same time."""
        with (self.path / LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Nobody else does `what` (`ARCHIVING`, `COMPACTING`) meanwhile. Raises `ArchiveError` if somebody does."""
        with (self.path / what).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ArchiveError(f"{self.path}: another process is{what.replace('_', ' ')} already") from error
            yield

    def committed_ends(self) -> dict[int, int] | None:
        """By shard, the first record that no batch holds which Spark has noted as done; None before the first batch.

        Spark plans the next batch from here, also after a kill: nothing before it is asked for again.
        """
        done = [int(one.name) for one in (self.checkpoint / "commits").glob("[0-9]*") if one.name.isdigit()]
        if not done:
            return None
        text = (self.checkpoint / "offsets" / str(max(done))).read_text().strip().splitlines()[-1]
        return {int(shard): int(end) for shard, end in json.loads(text).items()}

    # -- batches -----------------------------------------------------------------------------------------------

    def has_batch(self, batch: int) -> bool:
        """Whether that batch is a part of the data, or was merged with others."""
        return (self.data / f"{BATCH}{batch}").exists() or batch <= self._merged_upto()

    def staged_path(self, batch: int) -> Path:
        """Where a batch is written, beside the data."""
        return self.path / STAGING / f"{BATCH}{batch}"

    def staged(self, batch: int) -> Path:
        """Where to write a batch; what a killed job left there is gone."""
        path = self.staged_path(batch)
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(exist_ok=True)
        return path

    def add(self, batch: int) -> None:
        """Make the staged batch, which is whole, a part of the data, by one rename."""
        staged = self.staged_path(batch)
        for name in ("_SUCCESS", "._SUCCESS.crc"):
            (staged / name).unlink(missing_ok=True)
        if not any(staged.glob("date=*")):  # a batch without rows leaves an empty folder: it was done
            shutil.rmtree(staged)
            staged.mkdir()
        _flush(staged)
        with self.locked():
            staged.rename(self.data.resolve() / staged.name)
            _flush_folder(self.data.resolve())

    def batches(self) -> list[int]:
        """List the batches that are there."""
        return sorted(int(one.name.removeprefix(BATCH)) for one in self.data.glob(f"{BATCH}*"))

    def _merged_upto(self) -> int:
        try:
            return int((self.data / MERGED).read_text())
        except (OSError, ValueError):
            return -1

    # -- compaction --------------------------------------------------------------------------------------------

    def begin_version(self) -> Path:
        """Begin a new version, empty, beside the one that counts. The one before that is gone."""
        current = self.data.resolve()
        for one in (self.path / VERSIONS).iterdir():
            if one != current:
                shutil.rmtree(one)
        new = current.with_name(str(int(current.name) + 1))
        new.mkdir()
        return new

    def switch(self, new: Path, merged: list[int]) -> None:
        """Let `new` count, which holds the batches `merged` as the last of them, with links to all others."""
        with self.locked():
            current = self.data.resolve()
            for one in current.glob(f"{BATCH}*"):
                if int(one.name.removeprefix(BATCH)) not in merged:
                    shutil.copytree(one, new / one.name, copy_function=os.link)
            (new / MERGED).write_text(str(max(merged)))
            _flush(new)
            _flush_folder(new.parent)
            self._point_to(new.name)
            _flush_folder(self.path)


def _flush(folder: Path) -> None:
    """Make what is in there survive a power cut."""
    for base, _, names in os.walk(folder):
        for name in names:
            with (Path(base) / name).open("rb") as file:
                os.fsync(file.fileno())
        _flush_folder(Path(base))


def _flush_folder(folder: Path) -> None:
    """As `storage.real_disk.flush_folder`, which the pipeline may not import: it takes no part in a node's disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
