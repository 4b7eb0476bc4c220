"""Who writes a shard's tables is noted in them, and keeps no node from starting."""

from pathlib import Path

import pytest

from storage.errors import DiskFullError, MapGrownError
from storage.log_store import LogStore
from storage.tables import LmdbTables
from tests.storage.memory import MemoryTables


def test_who_wrote_before_is_told_once(tmp_path: Path) -> None:
    store = LogStore(LmdbTables(tmp_path), 0)
    assert [store.sign(who) for who in ("one", "one", "other", "other", "one")] == [None, None, "one", None, "other"]
    store.close()


@pytest.mark.parametrize(("error", "was_noted"), [(DiskFullError("no space"), False), (MapGrownError(), True)])
def test_a_full_disk_or_map_keeps_nobody_from_starting(error: Exception, was_noted: bool) -> None:
    """What could not be noted is noted when there is space; a map that has to grow is tried again at once."""
    errors: list[Exception] = []

    def fail_once() -> None:
        if errors:
            raise errors.pop()

    store = LogStore(MemoryTables(fail_once), 0)
    errors.append(error)
    assert store.sign("one") is None
    assert store.sign("other") == ("one" if was_noted else None)
    assert store.sign("third") == "other"
