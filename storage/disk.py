"""What storage asks of a disk, and the real one.

Two things, both narrow so that the simulator can stand in for them: a folder of plain files that are written in
place and flushed (the journal), and a transactional table store (LMDB, in `tables`). Every error of the system
comes out as it is, except a full disk, which is `DiskFullError`.
"""

import errno
import os
from pathlib import Path
from typing import Protocol

from storage.errors import DiskFullError


class DiskFile(Protocol):
    """An open file. What was written is durable only after `flush`."""

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset` (bytes). Raises `DiskFullError`."""

    def read_all(self) -> bytes:
        """The whole content."""

    def flush(self) -> None:
        """Return when everything written is on the disk."""

    def close(self) -> None:
        """Give the file back; what was not flushed may or may not be there later."""


class Folder(Protocol):
    """A flat folder of files. Making, renaming and removing are durable when they return."""

    def names(self) -> list[str]:
        """The names of the files there, sorted."""

    def create(self, name: str, size: int) -> DiskFile:
        """Make a file of `size` zero bytes, all of its blocks allocated. Raises `DiskFullError`, leaving nothing."""

    def open(self, name: str) -> DiskFile:
        """Open a file that is there."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class RealFile:
    """A file of the operating system."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`."""
        try:
            written = os.pwrite(self._fd, data, offset)
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], offset + written)
        except OSError as error:
            raise translated(error) from error

    def read_all(self) -> bytes:
        """The whole content."""
        size = os.fstat(self._fd).st_size
        parts = []
        offset = 0
        while offset < size and (part := os.pread(self._fd, size - offset, offset)):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def flush(self) -> None:
        """fdatasync: content and size, without the times."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


class RealFolder:
    """A folder of the operating system, made if it is not there."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path

    def names(self) -> list[str]:
        """The names of the files there, sorted."""
        return sorted(entry.name for entry in os.scandir(self._path) if entry.is_file())

    def create(self, name: str, size: int) -> DiskFile:
        """Written out as zeros: blocks that were only reserved would cost a metadata write at the first flush."""
        path = self._path / name
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        file = RealFile(fd)
        try:
            zeros = bytes(min(size, 1 << 20))
            for offset in range(0, size, len(zeros)):
                file.write_at(offset, zeros[: size - offset])
            os.fsync(fd)
        except BaseException:
            file.close()
            path.unlink()
            raise
        self._sync()
        return file

    def open(self, name: str) -> DiskFile:
        """Open a file that is there."""
        return RealFile(os.open(self._path / name, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        (self._path / old).rename(self._path / new)
        self._sync()

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._path / name).unlink()
        self._sync()

    def _sync(self) -> None:
        fd = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def translated(error: OSError) -> Exception:
    """A full disk or quota as `DiskFullError`, anything else as it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(str(error))
    return error
