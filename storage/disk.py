"""What storage asks of a disk, and the real one.

Two things, both narrow so that the simulator can stand in for them: a folder of plain files that are written in
place and flushed (the journal), and a transactional table store (LMDB, in `tables`). Every error of the system
comes out as it is, except a full disk, which is `DiskFullError`.
"""

import contextlib
import errno
import mmap
import os
import threading
from pathlib import Path
from typing import Final, Protocol

from storage.errors import DiskFullError

DIRECT: Final = os.O_DSYNC | getattr(os, "O_DIRECT", 0)


UNFINISHED: Final = ".unfinished"


class DiskFile(Protocol):
    """An open file. What was written is durable only after `flush`."""

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset` (bytes). Raises `DiskFullError`."""

    def write_durably_at(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`, both multiples of the folder's `alignment`, into space that is there.

        Durable when it returns. May be called from several threads at once.
        """

    def size(self) -> int:
        """Its size (bytes)."""

    def read_all(self) -> bytes:
        """The whole content."""

    def flush(self) -> None:
        """Return when everything written is on the disk."""

    def close(self) -> None:
        """Give the file back; what was not flushed may or may not be there later."""


class Folder(Protocol):
    """A flat folder of files. Making, renaming and removing are durable when they return."""

    @property
    def alignment(self) -> int:
        """What `write_durably_at` wants offsets and sizes to be multiples of (bytes)."""

    def names(self) -> list[str]:
        """The names of the files there, sorted."""

    def create(self, name: str, size: int) -> DiskFile:
        """Make a file of `size` zero bytes, all of its blocks allocated, replacing one of that name.

        It appears under its name when it is complete. Raises `DiskFullError`, leaving nothing.
        """

    def open(self, name: str) -> DiskFile:
        """Open a file that is there."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class _Buffers(threading.local):
    """For each thread, memory that direct writes may come from: its address is a multiple of the page size."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 64 << 10)

    def filled(self, data: bytes) -> memoryview:
        if len(data) > len(self.memory):
            self.memory = mmap.mmap(-1, -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE)
        self.memory[: len(data)] = data
        return memoryview(self.memory)[: len(data)]


class RealFile:
    """A file of the operating system. `direct_fd` is open for direct, durable writes, -1 where those do not work."""

    def __init__(self, fd: int, direct_fd: int, buffers: _Buffers) -> None:
        self._fd = fd
        self._direct_fd = direct_fd
        self._buffers = buffers

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`."""
        try:
            written = os.pwrite(self._fd, data, offset)
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], offset + written)
        except OSError as error:
            raise translated(error) from error

    def write_durably_at(self, offset: int, data: bytes) -> None:
        """One direct write is a fifth quicker than a write and a flush, and two at once do not wait for each other."""
        if self._direct_fd >= 0:
            with self._buffers.filled(data) as view:
                written = os.pwrite(self._direct_fd, view, offset)
            if written == len(data):
                return  # direct writes are used in the journal alone, whose blocks are all there
        self.write_at(offset, data)
        self.flush()

    def size(self) -> int:
        """Its size (bytes)."""
        return os.fstat(self._fd).st_size

    def read_all(self) -> bytes:
        """The whole content."""
        size = self.size()
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
        """Close the descriptors."""
        os.close(self._fd)
        if self._direct_fd >= 0:
            os.close(self._direct_fd)
            self._direct_fd = -1


class RealFolder:
    """A folder of the operating system, made if it is not there."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._buffers = _Buffers()
        self.alignment = self._probe()

    def _probe(self) -> int:
        """The least alignment that direct writes work with here; 8 if they do not work at all."""
        probe = self._path / "probe"
        fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, bytes(8192), 0)
            direct = os.open(probe, os.O_RDWR | DIRECT | os.O_CLOEXEC)
            try:
                for alignment in (512, 4096):
                    with contextlib.suppress(OSError), self._buffers.filled(bytes(alignment)) as view:
                        if os.pwrite(direct, view, alignment) == alignment:
                            return alignment
            finally:
                os.close(direct)
        except OSError:
            return 8
        finally:
            os.close(fd)
            probe.unlink()
        return 8

    def _file(self, path: Path, fd: int) -> RealFile:
        direct_fd = os.open(path, os.O_RDWR | DIRECT | os.O_CLOEXEC) if self.alignment > 8 else -1
        return RealFile(fd, direct_fd, self._buffers)

    def names(self) -> list[str]:
        """The names of the files there, sorted."""
        return sorted(entry.name for entry in os.scandir(self._path) if entry.is_file())

    def create(self, name: str, size: int) -> DiskFile:
        """Written out as zeros: blocks that were only reserved would cost a metadata write at the first flush."""
        path = self._path / f"{name}{UNFINISHED}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        file = self._file(path, fd)
        try:
            zeros = bytes(min(size, 1 << 20))
            for offset in range(0, size, len(zeros)):
                file.write_at(offset, zeros[: size - offset])
            os.fsync(fd)
        except BaseException:
            file.close()
            path.unlink()
            raise
        self.rename(path.name, name)
        return file

    def open(self, name: str) -> DiskFile:
        """Open a file that is there."""
        path = self._path / name
        return self._file(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

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
