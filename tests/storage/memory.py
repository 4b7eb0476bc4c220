"""A disk and tables in memory, as the simulator has them: what was not made durable is lost by a power cut."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any

from sortedcontainers import SortedDict

from storage.disk import DiskFile
from storage.errors import DiskFullError
from storage.tables import TABLES, ReadTransaction, WriteTransaction

SECTOR = 512


class MemoryFile:
    """A file: what the system has, what the disk has, and writes that are on their way."""

    def __init__(self, folder: "MemoryFolder", content: bytes) -> None:
        self._folder = folder
        self.direct_fd = -1
        self.is_closed = False
        self.content = bytearray(content)
        self.durable = bytearray(content)

    def write_at(self, offset: int, data: bytes) -> None:
        """Into the system's cache."""
        assert not self.is_closed
        assert offset + len(data) <= len(self.content), "the journal never grows a file"
        self.content[offset : offset + len(data)] = data

    def write_durably_at(self, offset: int, data: bytes) -> None:
        """To the disk; until the folder's `settle`, a power cut may tear it."""
        assert offset % self._folder.alignment == 0
        assert len(data) % self._folder.alignment == 0
        noted = self._folder.on_durable_write
        is_durable = noted is not None and noted(self, offset, data)
        self.write_at(offset, data)
        self._folder.on_their_way.append((self, offset, data))
        if is_durable:
            self._folder.settle()

    def size(self) -> int:
        """Bytes."""
        return len(self.content)

    def read_all(self) -> bytes:
        """The content."""
        return bytes(self.content)

    def flush(self) -> None:
        """The disk has it all."""
        assert not self.is_closed
        self.durable[:] = self.content
        self._folder.on_their_way[:] = [one for one in self._folder.on_their_way if one[0] is not self]

    def close(self) -> None:
        """Nothing is written through it any more."""
        self.is_closed = True


class MemoryWrites:
    """Writes that go on until `finish`. `on_start` is told each one's token, and says whether the system takes it.

    `waited`: how often a thread had to wait for that; `worked_s`: for how long it worked.
    """

    descriptor = 99

    def __init__(self, on_start: Callable[[int], bool] = lambda token: True) -> None:
        self.under_way: dict[int, tuple[DiskFile, int, bytes]] = {}
        self.is_closed = False
        self.waited = 0
        self.worked_s = 0.0
        self._on_start = on_start
        self._ended: list[tuple[int, bool]] = []

    def start(self, file: DiskFile, offset: int, data: bytes, token: int) -> bool:
        """Under way."""
        self.under_way[token] = (file, offset, data)
        if not self._on_start(token):
            del self.under_way[token]
            return False
        return True

    def used(self) -> tuple[int, float]:
        """As it was told."""
        return self.waited, self.worked_s

    def finish(self, token: int, *, is_durable: bool = True) -> None:
        """One ends."""
        file, offset, data = self.under_way.pop(token)
        if is_durable:
            file.write_durably_at(offset, data)
        self._ended.append((token, is_durable))

    def finished(self) -> list[tuple[int, bool]]:
        """Since the last time."""
        ended, self._ended = self._ended, []
        return ended

    def close(self, timeout_s: float) -> bool:
        """Noted."""
        self.is_closed = True
        return not self.under_way


class MemoryFolder:
    """A folder that may be full. `on_durable_write` is called before each durable write, with
    where and what, and says whether it has arrived when it returns."""

    alignment = SECTOR

    def __init__(self) -> None:
        self.files: dict[str, MemoryFile] = {}
        self.on_their_way: list[tuple[MemoryFile, int, bytes]] = []
        self.is_full = False
        self.on_durable_write: Callable[[MemoryFile, int, bytes], bool] | None = None
        self.writes: MemoryWrites | None = None

    def async_writes(self) -> MemoryWrites | None:
        """`writes`."""
        return self.writes

    def names(self) -> list[str]:
        """Sorted."""
        return sorted(self.files)

    def create(self, name: str, size: int) -> DiskFile:
        """Zeros."""
        if self.is_full:
            raise DiskFullError("no space (simulated)")
        self.files[name] = file = MemoryFile(self, bytes(size))
        return file

    def open(self, name: str) -> DiskFile:
        """The file."""
        self.files[name].is_closed = False
        return self.files[name]

    def rename(self, old: str, new: str) -> None:
        """Rename."""
        self.files[new] = self.files.pop(old)

    def remove(self, name: str) -> None:
        """Remove."""
        del self.files[name]

    def settle(self) -> None:
        """All durable writes have arrived."""
        for file, offset, data in self.on_their_way:
            file.durable[offset : offset + len(data)] = data
        self.on_their_way.clear()

    def power_cut(self, random: Random) -> None:
        """What was not durable is gone, or there, sector by sector."""
        for file, offset, data in self.on_their_way:
            for at in range(0, len(data), SECTOR):
                if random.random() < 0.5:
                    file.durable[offset + at : offset + at + SECTOR] = data[at : at + SECTOR]
        self.on_their_way.clear()
        for file in self.files.values():
            for at in range(0, len(file.content), SECTOR):
                sector = slice(at, at + SECTOR)
                if file.content[sector] != file.durable[sector] and random.random() < 0.5:
                    file.durable[sector] = file.content[sector]
            file.content[:] = file.durable


class MemoryTransaction:
    """A view, changed in place; `MemoryTables.write` throws a failed one away."""

    def __init__(self, tables: "dict[str, SortedDict[bytes, bytes]]") -> None:
        self.tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value."""
        return self.tables[table].get(key)

    def range(self, table: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """In order."""
        rows = self.tables[table]
        return ((key, rows[key]) for key in list(rows.irange(start)))

    def keys(self, table: str, start: bytes) -> Iterator[bytes]:
        """In order."""
        return iter(list(self.tables[table].irange(start)))

    def last(self, table: str) -> tuple[bytes, bytes] | None:
        """The greatest."""
        return self.tables[table].peekitem(-1) if self.tables[table] else None

    def last_key_below(self, table: str, key: bytes) -> bytes | None:
        """The greatest below."""
        return next(iter(self.tables[table].irange(None, key, (True, False), reverse=True)), None)

    def last_below(self, table: str, key: bytes) -> tuple[bytes, bytes] | None:
        """The greatest below."""
        found = next(iter(self.tables[table].irange(None, key, (True, False), reverse=True)), None)
        return None if found is None else (found, self.tables[table][found])

    def count(self, table: str) -> int:
        """How many."""
        return len(self.tables[table])

    def bytes_of(self, table: str) -> int:
        """What it takes."""
        rows: Any = self.tables[table]
        return sum(map(len, dict.keys(rows))) + sum(map(len, dict.values(rows)))  # their order is of no account

    def put(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set."""
        self.tables[table].update(rows)

    def append(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set behind all that are there."""
        for key, value in rows:
            assert not self.tables[table] or self.tables[table].peekitem(-1)[0] < key
            self.tables[table][key] = value

    def delete(self, table: str, keys: Sequence[bytes]) -> None:
        """Remove."""
        for key in keys:
            self.tables[table].pop(key, None)

    def delete_up_to(self, table: str, key: bytes) -> None:
        """Remove the first."""
        self.delete(table, list(self.tables[table].irange(None, key)))

    def clear(self, table: str) -> None:
        """Remove all."""
        self.delete(table, list(self.tables[table]))


class MemoryTables:
    """Tables whose write transactions are whole or not at all. `before_commit` may raise."""

    def __init__(self, before_commit: Callable[[], None] = lambda: None) -> None:
        self.tables: dict[str, SortedDict[bytes, bytes]] = {name: SortedDict() for name in TABLES}
        self.before_commit = before_commit

    @contextmanager
    def read(self) -> Iterator[ReadTransaction]:
        """A view."""
        yield MemoryTransaction(self.tables)

    def read_beside(self) -> AbstractContextManager[ReadTransaction]:
        """A view."""
        return self.read()

    @contextmanager
    def write(self) -> Iterator[WriteTransaction]:
        """On disk when it ends."""
        changes = _Undoing(self.tables)
        try:
            yield changes
            self.before_commit()
        except BaseException:
            changes.undo()
            raise

    def give_back(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _Undoing(MemoryTransaction):
    """Keeps what it overwrote."""

    def __init__(self, tables: "dict[str, SortedDict[bytes, bytes]]") -> None:
        super().__init__(tables)
        self._before: list[tuple[str, bytes, bytes | None]] = []

    def put(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set."""
        self._before += [(table, key, self.get(table, key)) for key, _ in rows]
        super().put(table, rows)

    def append(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set."""
        self._before += [(table, key, None) for key, _ in rows]
        super().append(table, rows)

    def delete(self, table: str, keys: Sequence[bytes]) -> None:
        """Remove."""
        self._before += [(table, key, self.get(table, key)) for key in keys]
        super().delete(table, keys)

    def undo(self) -> None:
        """As it was."""
        for table, key, value in reversed(self._before):
            if value is None:
                self.tables[table].pop(key, None)
            else:
                self.tables[table][key] = value
