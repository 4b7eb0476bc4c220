"""What storage asks of a disk.

Two things, both narrow so that the simulator can stand in for them: a folder of plain files that are written in
place and flushed (the journal; the real one is in `real_disk`), and a transactional table store (LMDB, in `tables`).
Every error of the system comes out as it is, except a full disk, which is `DiskFullError`.
"""

from typing import Final, Protocol

UNFINISHED: Final = ".unfinished"


class DiskFile(Protocol):
    """An open file. What was written is durable only after `flush`.

    `direct_fd`: a descriptor for direct, durable writes; -1 where those do not work.
    """

    direct_fd: int

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset` (bytes). Raises `DiskFullError`."""

    def write_durably_at(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`, both multiples of the folder's `alignment`, into space that is there.

        Durable when it returns. May be called from several threads at once.
        """

    def size(self) -> int:
        """Its size (bytes)."""

    def read_all(self) -> bytes:
        """Read the whole content."""

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
        """Give the names of the files there, sorted."""

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

    def async_writes(self) -> "AsyncWrites | None":
        """Made anew: writes to its files that go on by themselves; None where the system has none that hold what
        `AsyncWrites` promises."""


class AsyncWrites(Protocol):
    """Durable writes that are begun here and that the system finishes while this thread does something else.

    `descriptor` has something to read when some are finished: an event loop waits for it as for a socket.
    """

    descriptor: int

    def start(self, file: DiskFile, offset: int, data: bytes, token: int) -> bool:
        """Begin to write all of `data` at `offset`, as `DiskFile.write_durably_at` would; returns at once.

        False: not begun, since too many are under way, `data` is too large, or the system refuses.
        """

    def used(self) -> tuple[int, float]:
        """Count how often this thread has waited for something in the system, and how long it has worked (s).

        It tells a `start` that took long from one whose thread was only kept from the processor. A system call.
        """

    def finished(self) -> list[tuple[int, bool]]:
        """Those that have ended since it was asked before: their tokens, and whether all of it is durable.

        If not, some of it may be on the disk: it is to be written again.
        """

    def close(self, timeout_s: float) -> bool:
        """Wait for those under way and give everything back; False if they did not end in time (s)."""
