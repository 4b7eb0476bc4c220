"""The real folder and its files: what is asked of the system, in which order, noted call by call."""

import os
from pathlib import Path
from typing import Any

import pytest

from storage.disk import RealFolder
from storage.errors import DiskFullError

CALLS = ("fdatasync", "fsync", "close", "pwrite")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the system's calls, as they come."""
    noted: list[str] = []

    def noting(name: str) -> Any:
        true = getattr(os, name)

        def call(*arguments: Any) -> Any:
            noted.append(name)
            return true(*arguments)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, noting(name))
    return noted


def test_a_flush_reaches_the_disk(tmp_path: Path, calls: list[str]) -> None:
    file = RealFolder(tmp_path).create("f", 4096)
    calls.clear()
    file.write_at(0, b"x")
    file.flush()
    assert calls == ["pwrite", "fdatasync"]


def test_a_durable_write_is_one_direct_write_or_a_write_and_a_flush(tmp_path: Path, calls: list[str]) -> None:
    folder = RealFolder(tmp_path)
    file = folder.create("f", 8192)
    calls.clear()
    file.write_durably_at(4096, b"y" * 4096)
    assert calls == (["pwrite"] if folder.alignment > 8 else ["pwrite", "fdatasync"])
    assert file.read_all()[4096:] == b"y" * 4096


def test_where_direct_writes_do_not_work_each_is_flushed(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFolder, "_probe", lambda self: 8)
    file = RealFolder(tmp_path).create("f", 4096)
    calls.clear()
    file.write_durably_at(0, b"z" * 8)
    assert calls == ["pwrite", "fdatasync"]


def test_making_renaming_and_removing_are_durable(tmp_path: Path, calls: list[str]) -> None:
    folder = RealFolder(tmp_path)
    folder.create("a", 100).close()
    assert calls.count("fsync") == 2, "the file, and the folder that names it"
    folder.rename("a", "b")
    folder.remove("b")
    assert calls.count("fsync") == 4
    assert folder.names() == []


def test_a_closed_file_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    folder = RealFolder(tmp_path)
    for _ in range(5):
        folder.create("f", 4096).close()
        folder.open("f").close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RealFolder(tmp_path)

    def full(*arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFullError):
        folder.create("f", 4096)
    assert folder.names() == []
