"""The real folder and its files: what is asked of the system, in which order, noted call by call."""

import ctypes
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.disk import DiskFile
from storage.errors import DiskFullError
from storage.linux_aio import SLOT_BYTES, SLOTS, LinuxAio, open_linux_aio
from storage.real_disk import RealFolder

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


def test_where_direct_writes_do_not_work_each_is_flushed(tmp_path: Path, calls: list[str]) -> None:
    file = RealFolder(tmp_path, may_be_direct=False).create("f", 4096)
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


@pytest.fixture
def folder(tmp_path: Path) -> RealFolder:
    """One whose file system has direct writes."""
    folder, writes = RealFolder(tmp_path), open_linux_aio()
    if folder.alignment <= 8 or writes is None:
        pytest.skip("no direct or no asynchronous writes here")  # it is the system that has them or not
    assert writes.close(1.0)
    return folder


def ended(writes: LinuxAio, count: int) -> dict[int, bool]:
    """Wait until so many have."""
    poll = select.poll()
    found: dict[int, bool] = {}
    poll.register(writes.descriptor, select.POLLIN)
    while len(found) < count:
        assert poll.poll(10_000), "the system says nothing"
        found.update(writes.finished())
    return found


def test_the_system_finishes_writes_that_were_begun(folder: RealFolder) -> None:
    file, writes = folder.create("f", 64 << 10), open_linux_aio()
    assert writes is not None
    for token in range(1, 101):
        assert writes.start(file, 4096 * (token % 16), bytes([token]) * 4096, token)
        if token % 2 == 0:
            assert ended(writes, 2) == {token - 1: True, token: True}
    content = file.read_all()
    assert [content[at] for at in range(0, 64 << 10, 4096)] == [96, *range(97, 101), *range(85, 96)]
    assert writes.close(1.0)
    file.close()


class Writes:
    """Writes of which every `late`th is under way when it has begun; the others are done by then.

    `are_durable` False: so they say. `are_there` False: whatever they say.
    """

    def __init__(self, late: int, *, are_durable: bool = True, are_there: bool = True) -> None:
        self._are_durable, self._are_there = are_durable, are_there
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self._late = late
        self._ended: list[tuple[int, bool]] = []
        self._asked = 0

    def start(self, file: DiskFile, offset: int, data: bytes, token: int) -> bool:
        self.size = file.size()
        if self._are_there:
            file.write_durably_at(offset, data)
        self._asked = 0 if token % self._late == 0 else 1
        self._ended.append((token, self._are_durable))
        os.eventfd_write(self.descriptor, 1)
        return True

    def used(self) -> tuple[int, float]:
        return 0, 0.0

    def finished(self) -> list[tuple[int, bool]]:
        self._asked += 1
        if self._asked < 2:
            return []
        ended, self._ended = self._ended, []
        return ended

    def close(self, timeout_s: float) -> bool:
        os.close(self.descriptor)
        return True


@pytest.mark.parametrize(("late", "are_used"), [(1, True), (8, True), (9, False), (100, False)])
def test_writes_that_go_on_when_they_have_begun_are_used(late: int, *, are_used: bool, folder: RealFolder) -> None:
    """Also where most are done by then: see `PROBE_PAUSE_S`."""
    writes = Writes(late)
    assert folder.go_on_by_themselves(writes) == are_used
    assert writes.size == 64 << 10, "as a journal's segment it has blocks of its own, and room behind what is written"
    assert folder.names() == [], "the probe is gone"
    assert writes.close(1.0)


@pytest.mark.parametrize("lacking", ["are_durable", "are_there"])
def test_writes_that_fail_or_go_nowhere_are_not_used(lacking: str, folder: RealFolder) -> None:
    writes = Writes(1, **{lacking: False})
    assert not folder.go_on_by_themselves(writes)
    assert writes.close(1.0)


def test_the_systems_own_are_tried_before_they_are_used(folder: RealFolder) -> None:
    writes = folder.async_writes()
    assert folder.names() == [], "the probe is gone"
    assert writes is None or writes.close(1.0), "it is the machine's affair whether it has any"


def test_too_many_or_too_large_writes_are_not_begun(folder: RealFolder) -> None:
    file, writes = folder.create("f", 2 * SLOT_BYTES), open_linux_aio()
    assert writes is not None
    assert not writes.start(file, 0, bytes(SLOT_BYTES + 4096), 1)
    assert all(writes.start(file, 4096 * token, b"x" * 4096, token) for token in range(SLOTS))
    assert not writes.start(file, 0, bytes(4096), 99)
    assert len(ended(writes, SLOTS)) == SLOTS
    assert writes.start(file, 0, b"y" * SLOT_BYTES, 100)
    assert ended(writes, 1) == {100: True}
    assert file.read_all()[:SLOT_BYTES] == b"y" * SLOT_BYTES
    assert writes.close(1.0)


def test_what_the_system_refuses_is_told(folder: RealFolder) -> None:
    file, writes = folder.create("f", 8192), open_linux_aio()
    assert writes is not None
    was_begun = writes.start(file, 1, b"x" * 4096, 1)  # not aligned
    assert not was_begun or ended(writes, 1) == {1: False}
    file.close()
    assert not writes.start(file, 0, b"x" * 4096, 2), "it is closed"
    assert writes.close(1.0)


def test_waits_and_work_of_this_thread_are_told_apart(folder: RealFolder) -> None:
    writes = open_linux_aio()
    assert writes is not None
    waits, worked_s = writes.used()
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    waits_then, worked_then_s = writes.used()
    assert waits_then - waits <= 1, "the interpreter's lock may be another's"
    assert 0.03 < worked_then_s - worked_s < 0.1
    for _ in range(20):
        time.sleep(0.001)
    waits, worked_s = writes.used()
    assert waits_then + 20 <= waits <= waits_then + 25
    assert worked_s - worked_then_s < 0.03
    assert writes.close(1.0)


def test_closing_waits_for_what_is_under_way(folder: RealFolder) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file, writes = folder.create("f", SLOT_BYTES), open_linux_aio()
    assert writes is not None
    assert writes.start(file, 0, b"x" * SLOT_BYTES, 1)
    assert writes.close(10.0)
    file.close()
    assert folder.open("f").read_all() == b"x" * SLOT_BYTES
    assert len(os.listdir("/proc/self/fd")) == before + 2, "of the file that was just opened"


def test_without_direct_writes_there_are_none(tmp_path: Path) -> None:
    assert RealFolder(tmp_path, may_be_direct=False).async_writes() is None


@pytest.mark.parametrize("machine", ["i686", "ppc64le", ""])
def test_on_an_unknown_machine_there_are_none(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert open_linux_aio() is None


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., int]) -> None:
    """Put `answer` where the system's calls are made."""

    class Library:
        def __init__(self, name: None) -> None:
            self.syscall = type("Call", (), {"__call__": staticmethod(answer)})()

    monkeypatch.setattr("ctypes.PyDLL", Library)


def test_where_the_system_has_none_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, before = RealFolder(tmp_path), len(os.listdir("/proc/self/fd"))
    answering(monkeypatch, lambda *arguments: -1)
    assert open_linux_aio() is None
    assert folder.async_writes() is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_writes_that_never_end_are_not_used(folder: RealFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    asked = []

    def never(number: int, *arguments: Any) -> int:
        asked.append(number)
        return 0 if len(asked) == 1 else 1  # the first is io_setup

    answering(monkeypatch, never)
    assert folder.async_writes() is None
    assert len(asked) == 2, "one write was begun"
    assert folder.names() == []
    assert len(os.listdir("/proc/self/fd")) == before + 1, "what never ends is not closed"


def test_writes_that_end_while_they_begin_are_not_used(folder: RealFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before, true = len(os.listdir("/proc/self/fd")), ctypes.PyDLL(None).syscall
    submitted = []

    def slowly(number: Any, *arguments: Any) -> int:
        answer: int = true(number, *arguments)
        if len(arguments) == 3:  # io_submit
            submitted.append(number)
            time.sleep(0.05)
        return answer

    answering(monkeypatch, slowly)
    assert folder.async_writes() is None
    assert len(submitted) > 2
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["pwrite", "open", "fsync", "eventfd"])
def test_a_disk_or_system_at_its_limits_has_none(
    name: str, folder: RealFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))

    def fails(*arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, name, fails)
    assert folder.async_writes() is None
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before
    assert folder.names() == []


def test_threads_do_not_write_each_others_bytes(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path)
    wrong: list[int] = []

    def write(thread: int) -> None:
        file = folder.create(f"f{thread}", 4096)
        for number in range(200):
            data = bytes([(thread * 100 + number) % 256]) * 4096
            file.write_durably_at(0, data)
            if file.read_all() != data:
                wrong.append(number)
        file.close()

    threads = [threading.Thread(target=write, args=(thread,)) for thread in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
