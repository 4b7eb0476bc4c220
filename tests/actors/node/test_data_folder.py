"""Who holds a folder, and how long the last processes of a killed node are waited for."""

import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.node import data_folder
from actors.node.data_folder import LOCK_NAME, HeldError, NodeLock, holder_of


def dead_pid() -> int:
    """A process's that is gone."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def held(tmp_path: Path) -> Iterator[int]:
    """A descriptor that holds the folder, as an inherited one does."""
    fd = os.open(tmp_path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield fd
    os.close(fd)


def test_a_folder_is_held_by_one_node_which_says_who_it_is(tmp_path: Path) -> None:
    about = {"pid": os.getpid(), "host": "127.0.0.1", "port": 1111}
    assert holder_of(tmp_path) is None
    first = NodeLock(tmp_path)
    first.take(about)
    assert holder_of(tmp_path) == about
    begun = time.monotonic()
    with pytest.raises(HeldError, match=f"in use by process {os.getpid()} on 127.0.0.1:1111"):
        NodeLock(tmp_path).take(about)
    assert time.monotonic() - begun < data_folder.GOING_S / 2, "a node that lives is not waited for"
    os.close(first.fd)
    assert holder_of(tmp_path) is None


def test_the_last_process_of_a_killed_node_is_waited_for(tmp_path: Path, held: int) -> None:
    os.pwrite(held, b'{"pid": %d, "host": "127.0.0.1", "port": 1111}' % dead_pid(), 0)
    threading.Timer(0.2, lambda: fcntl.flock(held, fcntl.LOCK_UN)).start()
    lock = NodeLock(tmp_path)
    lock.take({"pid": os.getpid()})
    assert holder_of(tmp_path) == {"pid": os.getpid()}
    os.close(lock.fd)


def test_but_not_for_ever(tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "GOING_S", 0.1)
    os.pwrite(held, b'{"pid": %d, "host": "127.0.0.1", "port": 1111}' % dead_pid(), 0)
    with pytest.raises(HeldError, match="in use by process"):
        NodeLock(tmp_path).take({"pid": os.getpid()})


def test_a_holder_that_says_nothing_is_taken_for_alive(tmp_path: Path, held: int) -> None:
    with pytest.raises(HeldError, match="in use by another process"):
        NodeLock(tmp_path).take({"pid": os.getpid()})
