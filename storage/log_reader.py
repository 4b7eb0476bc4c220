"""A shard's change log for reading alone: in a node's folder while the node runs, or in a copy or a backup of it.

What LMDB holds is committed; a running node moves what is committed there within some 50 ms. What the journal alone
holds is not seen here. Opened by one process once at a time, as LMDB wants it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from storage.entry_codec import entry_time, is_whole
from storage.errors import DamagedError, StorageError
from storage.log_rows import entries_behind, last_in, number_key
from storage.log_store import side_of, trimmed_in
from storage.tables import LOG, LmdbTables, ReadTransaction

DATA_FILE: Final = "data.mdb"
SHARD_PREFIX: Final = "shard-"


class LogBounds(NamedTuple):
    """The log holds the records behind `trimmed` up to `last`."""

    trimmed: int
    last: int


def shards_in(data_dir: Path) -> dict[int, Path]:
    """Find the shards' folders in a node's folder or its backup, by number. Raises `StorageError` if none is there.

    A shard's own folder stands for itself.
    """
    if (data_dir / DATA_FILE).exists():
        number = data_dir.name.removeprefix(SHARD_PREFIX)
        return {int(number) if number.isdigit() else 0: data_dir}
    found = {
        int(folder.name.removeprefix(SHARD_PREFIX)): folder
        for folder in sorted(data_dir.glob(f"{SHARD_PREFIX}*"))
        if folder.name.removeprefix(SHARD_PREFIX).isdigit() and (folder / DATA_FILE).exists()
    }
    if not found:
        raise StorageError(f"{data_dir} holds no shard of a node")
    return found


def _needs_lock(folder: Path) -> bool:
    """Whether somebody may be writing there. Raises `StorageError` where that has to be told him and can't be."""
    lock = folder / "lock.mdb"
    if os.access(lock if lock.exists() else folder, os.W_OK):
        return True
    if not lock.exists() or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return False  # a backup, where nothing can be written, so nobody does
    raise StorageError(f"{lock} can't be written: a node that is running has to see who reads; read a copy instead")


class LogReader:
    """The log in a shard's `folder`. Raises `DamagedError` for what is not LMDB's, `StorageError` if there is none."""

    def __init__(self, folder: Path) -> None:
        if not (folder / DATA_FILE).exists():
            raise StorageError(f"{folder} holds no log")
        self._tables = LmdbTables(folder, writable=False, lock=_needs_lock(folder))
        self._folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give it back."""
        self._tables.close()

    @staticmethod
    def _log(transaction: ReadTransaction) -> str:
        return LOG + side_of(transaction).decode()

    def bounds(self) -> LogBounds:
        """Say what it holds now."""
        with self._tables.read() as transaction:
            trimmed = trimmed_in(transaction)
            last = transaction.last(self._log(transaction))
            return LogBounds(trimmed, last_in(last[0]) if last else trimmed)

    def _entries(self, transaction: ReadTransaction, after: int) -> Iterator[tuple[int, bytes]]:
        """Give the entries that hold the records behind `after`, each with its last trans_id."""
        return entries_behind(transaction.range(self._log(transaction), number_key(after + 1)), after)

    def parts(self, after: int, upto: int, bytes_max: int = 4 << 20) -> Iterator[list[bytes]]:
        """Read the entries that hold the records behind `after` up to `upto`, in parts of about `bytes_max`.

        Each part is read in a transaction of its own, so that a running node may reuse its pages meanwhile. Raises
        `DamagedError` if the log does not go on where it should: its head was trimmed, say.
        """
        while after < upto:
            part: list[bytes] = []
            size = 0
            with self._tables.read() as transaction:
                for end, data in self._entries(transaction, after):
                    part.append(data)
                    size += len(data)
                    after = end
                    if size >= bytes_max or after >= upto:
                        break
            if not part:
                raise DamagedError(str(self._folder), f"the log ends behind record {after}, and {upto} was expected")
            yield part

    def first_since(self, time: float) -> int:
        """Find the first record that was made at `time` (Unix seconds) or later; one behind the last if none was."""
        low, high = self.bounds()
        while low < high:
            middle = (low + high) // 2
            with self._tables.read() as transaction:
                found = next(self._entries(transaction, middle), None)
            if found is None:
                break
            if not is_whole(found[1]):
                raise DamagedError(f"{self._folder}: log entry {found[0]}", "the checksum does not fit the entry")
            if entry_time(found[1]) >= time:
                high = middle
            else:
                low = found[0]
        return low + 1
