"""LMDB's tables as they are on a real disk; what all tables have in common is tested with the log's."""

import os
from pathlib import Path

import pytest

from storage.errors import DamagedError
from storage.tables import LOG, WARM_CHUNK_BYTES, LmdbTables


def filled(path: Path, rows: int) -> int:
    """Tables with so many rows of 3000 bytes; the file's size."""
    tables = LmdbTables(path)
    with tables.write() as transaction:
        transaction.put(LOG, [(b"%08d" % number, bytes(3000)) for number in range(rows)])
    tables.close()
    return (path / "data.mdb").stat().st_size


def test_a_file_is_read_ahead_as_far_as_memory_allows(tmp_path: Path) -> None:
    size = filled(tmp_path, 1000)
    tables = LmdbTables(tmp_path)
    assert tables.warm(0.5) == size
    assert tables.warm(0.0) == 0
    page = 1.0 / os.sysconf("SC_PHYS_PAGES")
    assert tables.warm(page) == WARM_CHUNK_BYTES
    with tables.read() as transaction:
        assert transaction.count(LOG) == 1000
    tables.close()


def test_a_file_that_is_mostly_empty_pages_is_not_read_ahead(tmp_path: Path) -> None:
    size = filled(tmp_path, 1000)
    tables = LmdbTables(tmp_path)
    with tables.write() as transaction:
        transaction.delete(LOG, [b"%08d" % number for number in range(990)])
    assert (tmp_path / "data.mdb").stat().st_size >= size
    assert tables.warm(0.5) == 0
    tables.close()


def mapped_bytes(path: Path) -> int:
    """What this process has of the file in memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = [number for number, line in enumerate(lines) if line.endswith(str(path / "data.mdb"))]
    found = [next(line for line in lines[number:] if line.startswith("Rss:")) for number in at]
    return sum(int(line.split()[1]) * 1024 for line in found)


def test_what_was_read_is_given_back(tmp_path: Path) -> None:
    size = filled(tmp_path, 3000)
    tables = LmdbTables(tmp_path)
    with tables.read() as transaction:
        assert sum(len(data) for _, data in transaction.range(LOG)) == 3000 * 3000
    assert mapped_bytes(tmp_path) > size // 2
    tables.give_back()
    assert mapped_bytes(tmp_path) < size // 10
    with tables.write() as transaction:
        transaction.put(LOG, [(b"99999999", b"new")])
    with tables.read() as transaction:
        assert transaction.count(LOG) == 3001
    tables.close()


def test_what_cannot_be_read_ahead_is_left_to_recovery(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    tables = LmdbTables(tmp_path)
    (tmp_path / "data.mdb").rename(tmp_path / "elsewhere")
    assert tables.warm(0.5) == 0
    tables.close()


def test_rows_that_are_not_behind_all_others_are_not_passed_over(tmp_path: Path) -> None:
    """LMDB does that, and says so only by how many it took."""
    tables = LmdbTables(tmp_path)
    with tables.write() as transaction:
        transaction.append(LOG, [(b"b", b"1"), (b"c", b"2")])
    with pytest.raises(DamagedError, match="of 2 rows 1 lie behind"), tables.write() as transaction:
        transaction.append(LOG, [(b"a", b"3"), (b"d", b"4")])
    with tables.read() as transaction:
        assert [key for key, _ in transaction.range(LOG)] == [b"b", b"c"]
    tables.close()
