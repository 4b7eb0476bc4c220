"""The transactional tables under the log, and LMDB behind them.

Tables are named, ordered by their byte keys. A write transaction is on disk, whole, when `commit` returns, or not at
all. LMDB's own rules hold: one environment a process, one write transaction at a time, used by one thread.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, Protocol, cast

import lmdb

from storage.errors import DamagedError, DiskFullError, MapGrownError

LOG: Final = "log"
BACKLOG: Final = "backlog"
QUEUES: Final = "queues"
TOPICS: Final = "topics"
"""Rows of topics, groups and producers."""

BLOCKS: Final = "blocks"
"""The messages of topics: see `storage.blocks`. It has no twin."""

META: Final = "meta"
OTHER_SIDE: Final = "-b"
"""Behind a table's name: its twin, where a snapshot is gathered until it takes the place of what is there."""

TWINNED: Final = (LOG, BACKLOG, QUEUES, TOPICS)
TABLES: Final = (LOG, BACKLOG, QUEUES, META, TOPICS, BLOCKS, *(name + OTHER_SIDE for name in TWINNED))
LATER: Final = frozenset({TOPICS, BLOCKS, *(name for name in TABLES if name.endswith(OTHER_SIDE))})
"""What is not in the data of earlier versions."""

MAP_BYTES_MIN: Final = 64 << 20
PAGE_BYTES: Final = 4096
WARM_CHUNK_BYTES: Final = 1 << 20
SPARSE: Final = 8
"""Reading a page by chance takes some 12 times as long as one of a row."""

NO_SPACE_BYTES: Final = 8 << 20
"""An I/O error with less space than this left is taken for the want of it: one commit may need so much."""


class ReadTransaction(Protocol):
    """A view of all tables as of one moment."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """Read the value at `key`."""

    def range(self, table: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys and values in order, from the first key that is not below `start`."""

    def keys(self, table: str, start: bytes) -> Iterator[bytes]:
        """Give the keys in order, from the first that is not below `start`."""

    def last(self, table: str) -> tuple[bytes, bytes] | None:
        """Read the greatest key and its value."""

    def last_below(self, table: str, key: bytes) -> tuple[bytes, bytes] | None:
        """Read the greatest key below that one, and its value."""

    def last_key_below(self, table: str, key: bytes) -> bytes | None:
        """Read the greatest key below that one."""

    def count(self, table: str) -> int:
        """How many keys the table has."""

    def bytes_of(self, table: str) -> int:
        """Read what the table takes on disk, about."""


class WriteTransaction(ReadTransaction, Protocol):
    """A view that can be changed."""

    def put(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set all of `rows`."""

    def append(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set all of `rows`, which are sorted and lie behind every key there."""

    def delete(self, table: str, keys: Sequence[bytes]) -> None:
        """Remove the keys that are there."""

    def delete_up_to(self, table: str, key: bytes) -> None:
        """Remove the keys up to `key`, that one included."""

    def clear(self, table: str) -> None:
        """Remove all keys."""


class Tables(Protocol):
    """The tables of one shard."""

    def read(self) -> AbstractContextManager[ReadTransaction]:
        """Begin a read transaction, ended with the block."""

    def write(self) -> AbstractContextManager[WriteTransaction]:
        """Begin a write transaction, committed to disk at the block's end, dropped if it raises.

        Raises `DiskFullError` at its end if there was no space; nothing has changed then. Raises `MapGrownError` when
        it has to be done again: `LogStore` does so.
        """

    def read_beside(self) -> AbstractContextManager[ReadTransaction]:
        """Begin a read transaction on another thread than the one that uses the tables otherwise. A short one: a map
        that is to grow waits for it."""

    def give_back(self) -> None:
        """Let go of what reading has brought into memory. No transaction may be open."""

    def close(self) -> None:
        """Give everything back."""


class _LmdbTransaction:
    def __init__(self, transaction: lmdb.Transaction, tables: dict[str, lmdb._Database]) -> None:
        self._transaction = transaction
        self._tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        value = self._transaction.get(key, db=self._tables[table])
        return None if value is None else bytes(value)

    def range(self, table: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor(db=self._tables[table])
        is_any = cursor.set_range(start) if start else cursor.first()
        return cast("Iterator[tuple[bytes, bytes]]", iter(cursor) if is_any else iter(()))

    def keys(self, table: str, start: bytes) -> Iterator[bytes]:
        cursor = self._transaction.cursor(db=self._tables[table])
        is_any = cursor.set_range(start)
        return cast("Iterator[bytes]", cursor.iternext(values=False) if is_any else iter(()))

    def last(self, table: str) -> tuple[bytes, bytes] | None:
        cursor = self._transaction.cursor(db=self._tables[table])
        return (bytes(cursor.key()), bytes(cursor.value())) if cursor.last() else None

    def last_key_below(self, table: str, key: bytes) -> bytes | None:
        cursor = self._transaction.cursor(db=self._tables[table])
        is_any = cursor.prev() if cursor.set_range(key) else cursor.last()
        return bytes(cursor.key()) if is_any else None

    def last_below(self, table: str, key: bytes) -> tuple[bytes, bytes] | None:
        cursor = self._transaction.cursor(db=self._tables[table])
        is_any = cursor.prev() if cursor.set_range(key) else cursor.last()
        return (bytes(cursor.key()), bytes(cursor.value())) if is_any else None

    def count(self, table: str) -> int:
        return int(self._transaction.stat(self._tables[table])["entries"])

    def bytes_of(self, table: str) -> int:
        stat = self._transaction.stat(self._tables[table])
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return int(stat["psize"] * pages)

    def put(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self._transaction.cursor(db=self._tables[table]).putmulti(rows)

    def append(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        _, added = self._transaction.cursor(db=self._tables[table]).putmulti(rows, append=True)
        if added != len(rows):  # LMDB passes over a key that is not behind all others
            raise DamagedError(table, f"of {len(rows)} rows {added} lie behind those that are there")

    def delete(self, table: str, keys: Sequence[bytes]) -> None:
        database = self._tables[table]
        for key in keys:
            self._transaction.delete(key, db=database)

    def delete_up_to(self, table: str, key: bytes) -> None:
        cursor = self._transaction.cursor(db=self._tables[table])
        is_any = cursor.first()
        while is_any and bytes(cursor.key()) <= key:
            cursor.delete()
            is_any = bool(cursor.key())

    def clear(self, table: str) -> None:
        self._transaction.drop(self._tables[table], delete=False)


def are_sound(keys: list[bytes], get: Callable[[bytes], object | None], count: int, known: AbstractSet[bytes]) -> bool:
    """Whether the keys read in a row are all of `count` that LMDB has, each found by itself, and each known.

    What is not found would be taken for what was never set.
    """
    is_ordered = sorted({*keys}) == keys and len(keys) == count
    return is_ordered and known >= {*keys} and all(get(key) is not None for key in keys)


def _give_back_heap() -> None:
    """Let the C library return what it holds of freed memory; glibc's does so by itself only at the heap's end."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class LmdbTables:
    """The tables in an LMDB environment at `path`; the map grows when a transaction does not fit any more.

    `writable=False` is for looking at a folder that a node may be using; without `lock` at one that nobody is using.
    Raises `DamagedError` for what is not LMDB's.
    """

    def __init__(self, path: Path, *, writable: bool = True, map_bytes: int = MAP_BYTES_MIN, lock: bool = True) -> None:
        if writable:
            path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._map_lock = Lock()
        data = path / "data.mdb"
        if data.exists():
            map_bytes = max(map_bytes, data.stat().st_size)
        try:
            self._open(path, writable, map_bytes, lock)
        except lmdb.Error as error:
            raise DamagedError(str(data), f"LMDB can't open it: {error}") from error

    def warm(self, share: float) -> int:
        """Read the file from front to back, so that the system has it in memory; returns how many bytes were read.

        LMDB would read it page by page: after a reboot a log of 150 MB took 3.2 seconds so, and 0.3 this way. No more
        than a `share` of the machine's memory is read, and nothing of a file that is empty pages, or topics'
        messages, for the most part. What can't be read is for recovery to say, if it needs it.
        """
        left = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * share)
        done = 0
        with contextlib.suppress(OSError), (self._path / "data.mdb").open("rb", buffering=0) as file:
            with self.read() as transaction:
                used = sum([transaction.bytes_of(table) for table in self._tables if table != BLOCKS])
            if used * SPARSE < os.fstat(file.fileno()).st_size:
                return 0
            chunk = bytearray(WARM_CHUNK_BYTES)
            while done < left and (size := file.readinto(chunk)):
                done += size
        return done

    def _open(self, path: Path, writable: bool, map_bytes: int, lock: bool) -> None:
        self._environment = lmdb.open(
            str(path),
            map_size=-(-map_bytes // PAGE_BYTES) * PAGE_BYTES,
            max_dbs=len(TABLES) + 4,
            readonly=not writable,
            create=writable,
            lock=lock,
            readahead=False,
            meminit=False,
            max_spare_txns=1,
        )
        self._check_names()
        present = TABLES if writable else self._present()  # the twins are not in the data of version 0.1
        self._tables = {
            name: self._environment.open_db(name.encode(), create=writable)
            for name in present
            if writable or self._has(name)
        }

    def _check_names(self) -> None:
        """Raise `DamagedError` where LMDB does not find a table that it counts: it would make that anew, and empty.

        The page with the tables' names has no checksum. A name that is there is found at its place in their order, and
        is one that some version has given.
        """
        known = {name.encode() for name in TABLES}
        with self._environment.begin() as transaction:
            names = [bytes(name) for name in transaction.cursor().iternext(values=False)]
            is_sound = are_sound(names, transaction.get, self._environment.stat()["entries"], known)
        if not is_sound:
            raise DamagedError(str(self._path), "a table is missing, or its name is damaged")

    def _has(self, name: str) -> bool:
        with self._environment.begin() as transaction:
            return transaction.get(name.encode()) is not None

    def _present(self) -> list[str]:
        with self._environment.begin() as transaction:
            names = {bytes(name).decode() for name in transaction.cursor().iternext(values=False)}
        return [name for name in TABLES if name in names or name not in LATER]

    @contextmanager
    def read(self) -> Iterator[ReadTransaction]:
        """Begin a read transaction, ended with the block."""
        try:
            transaction = self._environment.begin()
        except lmdb.MapResizedError:  # another process has grown the file
            self._environment.set_mapsize(0)
            transaction = self._environment.begin()
        try:
            with transaction:
                yield _LmdbTransaction(transaction, self._tables)
        except lmdb.Error as error:
            raise DamagedError(str(self._path), f"LMDB can't read it: {error}") from error

    @contextmanager
    def read_beside(self) -> Iterator[ReadTransaction]:
        """Begin a read transaction on another thread: setting the map's size would invalidate it, and waits for it."""
        with self._map_lock, self.read() as transaction:
            yield transaction

    @contextmanager
    def write(self) -> Iterator[WriteTransaction]:
        """Begin a write transaction; the map is doubled beforehand while less than half of it is free."""
        self._grow_if_tight()
        transaction = self._environment.begin(write=True)
        try:
            yield _LmdbTransaction(transaction, self._tables)
            transaction.commit()
        except lmdb.MapFullError as error:
            transaction.abort()
            self._grow()
            raise MapGrownError(str(error)) from error
        except lmdb.Error as error:
            transaction.abort()
            raise self._translated(error) from error
        except BaseException:
            transaction.abort()
            raise

    def _translated(self, error: lmdb.Error) -> Exception:
        """LMDB says a full disk as ENOSPC, or, when only a part of a page run was written, as an I/O error."""
        text = str(error)
        if any(os.strerror(number) in text for number in (errno.ENOSPC, errno.EDQUOT)):
            return DiskFullError(text)
        space = os.statvfs(self._path)
        if os.strerror(errno.EIO) in text and space.f_bavail * space.f_frsize < NO_SPACE_BYTES:
            return DiskFullError(f"{text}; {space.f_bavail * space.f_frsize} bytes are free")
        return error

    def give_back(self) -> None:
        """Let go of the pages that reading has brought into memory. No transaction may be open.

        Setting the map's size, also to what it is, unmaps the file and maps it anew (mdb_env_set_mapsize).
        """
        with self._map_lock:
            self._environment.set_mapsize(self.map_bytes)
        _give_back_heap()

    @property
    def map_bytes(self) -> int:
        """The size of the map (bytes); the file grows up to it."""
        return int(self._environment.info()["map_size"])

    def close(self) -> None:
        """Close the environment."""
        with self._map_lock:
            self._environment.close()

    def _grow_if_tight(self) -> None:
        info = self._environment.info()
        if (info["last_pgno"] + 1) * PAGE_BYTES * 2 > info["map_size"]:
            self._grow()

    def _grow(self) -> None:
        with self._map_lock:
            self._environment.set_mapsize(self.map_bytes * 2)
