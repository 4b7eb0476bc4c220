"""Reading a shard's log from outside: beside its writer, in a copy, and where there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage import entry_codec
from storage.entry import StoredEntry
from storage.errors import DamagedError, StorageError
from storage.log_reader import LogReader, shards_in
from storage.log_store import LogStore, SnapshotPart
from storage.records import Lead
from storage.tables import LmdbTables
from storage.trimming import Trim, TrimRows
from tests.storage.damage import damage_entries


def entry(first: int, count: int = 2) -> StoredEntry:
    return entry_codec.stored_entry(entry_codec.encode(1, first, 1000.0 + first, [Lead("", 1)] * count))


@pytest.fixture(autouse=True, params=[False, True], ids=["rows of one", "rows of several"])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(sys.modules[__name__], "TOGETHER", request.param)
    return bool(request.param)


TOGETHER = False


def filled(folder: Path, entries: int = 5) -> LogStore:
    store = LogStore(LmdbTables(folder), 0)
    store.store([entry(1 + 2 * n) for n in range(entries)])
    return store


def test_a_copy_is_read_and_so_is_a_folder_that_is_read_only(tmp_path: Path) -> None:
    filled(tmp_path / "shard-0").close()
    copy = tmp_path / "backup"
    shutil.copytree(tmp_path / "shard-0", copy / "shard-0")
    (copy / "shard-0" / "lock.mdb").unlink()
    for path in (copy / "shard-0" / "data.mdb", copy / "shard-0"):
        os.chmod(path, 0o555)
    with LogReader(shards_in(copy)[0]) as reader:
        assert reader.bounds() == (0, 10)
        assert [len(part) for part in reader.parts(3, 10, bytes_max=1)] == [1] * 4, "the first holds records 3 and 4"
    os.chmod(copy / "shard-0", 0o755)


def test_a_log_is_read_while_it_is_written(tmp_path: Path) -> None:
    store = filled(tmp_path)
    # LMDB wants one environment a process, so the reader is another one
    code = "import sys, pathlib; from storage.log_reader import LogReader; r = LogReader(pathlib.Path(sys.argv[1]))"
    code += "; print(*r.bounds(), sum(len(part) for part in r.parts(0, 10)))"
    said = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["0", "10", "5"]
    store.close()


def test_after_a_snapshot_the_other_tables_count(tmp_path: Path) -> None:
    store = filled(tmp_path)
    part = SnapshotPart(50, 1, [], b"", True)
    store.stage(part, 2, is_first=True)
    store.install(part)
    store.store([entry(51)])
    store.close()
    with LogReader(tmp_path) as reader:
        assert reader.bounds() == (50, 52)
        assert len(next(reader.parts(50, 52))) == 1


def test_what_is_not_there_any_more_is_said(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.trim(Trim(4, 1, TrimRows([], [])))
    store.close()
    with LogReader(tmp_path) as reader:
        assert reader.bounds() == (4, 10)
        with pytest.raises(DamagedError, match="ends behind record 10"):
            list(reader.parts(4, 12))


def test_the_first_record_since_a_moment_is_found(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with LogReader(tmp_path) as reader:
        assert [reader.first_since(time) for time in (0.0, 1001.0, 1002.0, 1003.0, 1009.0, 2000.0)] == [
            1,
            1,
            3,
            3,
            9,
            11,
        ]


def test_a_folder_without_a_log_is_none(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no shard"):
        shards_in(tmp_path)
    with pytest.raises(StorageError, match="no log"):
        LogReader(tmp_path)


def test_a_time_is_not_looked_for_by_an_entry_that_is_damaged(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.close()
    tables = LmdbTables(tmp_path)
    damage_entries(tables, 2)
    tables.close()
    with LogReader(tmp_path) as reader, pytest.raises(DamagedError, match="log entry 6"):
        reader.first_since(1005.0)
