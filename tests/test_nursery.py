"""A node from a nursery is started, signalled and waited for as one that was started by its command."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import Node
from tests.nursery import Forked


@pytest.fixture(params=[True, False], ids=["forked", "by its command"])
def node(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(tmp_path, {})
    monkeypatch.setenv("SET_BY_SPARK", "for itself")
    if not request.param:
        monkeypatch.setenv("STARTED_BY", "its command")
    yield made
    assert isinstance(made.process, Forked) is request.param
    made.kill()


def test_it_is_ready_in_a_session_of_its_own_and_ends_with_its_code(node: Node) -> None:
    node.start()
    process = node.process
    assert process is not None
    assert os.getsid(process.pid) == process.pid
    assert os.readlink(f"/proc/{process.pid}/cwd") == str(Path.cwd())
    assert os.readlink(f"/proc/{process.pid}/fd/2") == str(node.log_path)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert "ready on" in node.log
    process.terminate()
    assert process.wait(10) == 0
    assert process.wait() == process.poll() == 0
    process.kill()  # it is gone, and so is nobody else


def test_a_signal_that_ends_it_is_told(node: Node) -> None:
    node.start()
    assert node.process is not None
    node.process.kill()
    assert node.process.wait(10) == -signal.SIGKILL


def test_one_that_does_not_come_up_says_why(node: Node) -> None:
    node.config["data_dir"] = "/proc/no/such/folder"
    assert "/proc/no" in node.try_start()
    assert node.process is not None
    assert node.process.wait(10) == 1


def test_a_configuration_with_faults_ends_it_as_the_command_does(node: Node) -> None:
    node.config["no_such_setting"] = 1
    assert node.try_start() == ""
    assert node.process is not None
    assert node.process.wait(10) == 2
    assert "no_such_setting" in node.log
