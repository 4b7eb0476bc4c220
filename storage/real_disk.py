"""The folder of files that the operating system has: see `disk`."""

import contextlib
import errno
import logging
import mmap
import os
import select
import threading
import time
from pathlib import Path
from typing import Final

from storage.disk import UNFINISHED, AsyncWrites, DiskFile
from storage.errors import DiskFullError, StorageError
from storage.linux_aio import LinuxAio, open_linux_aio

log = logging.getLogger("quorate.disk")

DIRECT: Final = os.O_DSYNC | getattr(os, "O_DIRECT", 0)

PROBE_S: Final = 1.0
"""How long a first asynchronous write may take (s; it takes 0.0002); otherwise there are none."""

PROBE_BYTES: Final = 64 << 10
"""Whole blocks of any file system, as a segment has: into one that is not whole, some write at once."""

PROBES_MAX: Final = 40
"""Where none goes on, a start waits for so many, and for a pause behind each: 0.1 s."""

WENT_ON: Final = 5
"""So many first writes must still be under way when they have begun.

Not most of them: on a busy virtual machine the host may do a write before it lets us go on.
"""

PROBE_PAUSE_S: Final = 0.002
"""Behind a probe that did not go on: while the file system notes that the file was made, several in a row have to wait.

Of 90 starts beside four busy processes 73 found that they go on, of 60 beside none all; with 15 probes in a row, of
half a block, 37 and some 48 (a virtual machine, ext4).
"""


class _Buffers:
    """For each thread, memory that direct writes may come from: its address is a multiple of the page size.

    It has a `threading.local`, and is none: compiled, a class is no subclass of one that is written in C.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def filled(self, data: bytes) -> memoryview:
        memory: mmap.mmap | None = getattr(self._local, "memory", None)
        if memory is None or len(data) > len(memory):
            size = max(64 << 10, -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE)
            memory = self._local.memory = mmap.mmap(-1, size)
        memory[: len(data)] = data
        return memoryview(memory)[: len(data)]


class RealFile:
    """A file of the operating system."""

    def __init__(self, fd: int, direct_fd: int, buffers: _Buffers) -> None:
        self._fd = fd
        self.direct_fd = direct_fd
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
        if self.direct_fd >= 0:
            with self._buffers.filled(data) as view:
                written = os.pwrite(self.direct_fd, view, offset)
            if written == len(data):
                return  # direct writes are used in the journal alone, whose blocks are all there
        self.write_at(offset, data)
        self.flush()

    def size(self) -> int:
        """Its size (bytes)."""
        return os.fstat(self._fd).st_size

    def read_all(self) -> bytes:
        """Read the whole content."""
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
        if self.direct_fd >= 0:
            os.close(self.direct_fd)
            self.direct_fd = -1


class RealFolder:
    """A folder of the operating system, made if it is not there. `may_be_direct`: use direct writes if they work."""

    def __init__(self, path: Path, *, may_be_direct: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._buffers = _Buffers()
        self.alignment = self._probe() if may_be_direct else 8

    def _probe(self) -> int:
        """Find the least alignment that direct writes work with here; 8 if they do not work at all."""
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
        """Owns `fd` from here on."""
        try:
            direct_fd = os.open(path, os.O_RDWR | DIRECT | os.O_CLOEXEC) if self.alignment > 8 else -1
        except OSError:
            os.close(fd)
            raise
        return RealFile(fd, direct_fd, self._buffers)

    def async_writes(self) -> LinuxAio | None:
        """Try it before it is trusted: what a file system or a sandbox makes of such writes is its own affair.

        Some do all of a write before they return from beginning it (ext4 in older kernels, where it is not aligned to a
        block; those without direct writes of their own): that is no use, and would hold up the loop.
        """
        writes = open_linux_aio() if self.alignment > 8 else None
        if writes is None:
            return None
        is_good = False
        try:
            is_good = self.go_on_by_themselves(writes)
        except (OSError, StorageError):
            log.debug("no asynchronous writes in %s", self._path, exc_info=True)
        if not is_good:
            writes.close(PROBE_S)
        return writes if is_good else None

    def go_on_by_themselves(self, writes: AsyncWrites) -> bool:
        """Whether a few writes, aligned as the journal's are, were still under way when they had begun."""
        file = self.create("probe", PROBE_BYTES)
        try:
            poll = select.poll()
            poll.register(writes.descriptor, select.POLLIN)
            went_on = token = 0
            while went_on < WENT_ON and token < PROBES_MAX:
                token += 1
                if not writes.start(file, self.alignment, bytes([token]) * self.alignment, token):
                    return False
                ended = writes.finished()
                if ended:
                    time.sleep(PROBE_PAUSE_S)
                else:
                    went_on += 1
                    poll.poll(PROBE_S * 1000)
                    ended = writes.finished()
                if ended != [(token, True)]:
                    return False
            written = file.read_all()[self.alignment : 2 * self.alignment]
            return went_on == WENT_ON and written == bytes([token]) * self.alignment
        finally:
            file.close()
            (self._path / "probe").unlink()

    def names(self) -> list[str]:
        """Give the names of the files there, sorted."""
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
        flush_folder(self._path)


def flush_folder(path: Path) -> None:
    """Make the names in the folder survive a power cut. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path: Path, text: str) -> None:
    """Put a file of ours in its place, whole or not at all, also over a power cut. Raises OSError."""
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    flush_folder(path.parent)


def translated(error: OSError) -> Exception:
    """Raise a full disk or quota as `DiskFullError`, anything else as it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(str(error))
    return error
