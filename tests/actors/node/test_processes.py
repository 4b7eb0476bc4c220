"""WorkerProcess: what becomes of a forked process, in real ones that do next to nothing."""

import errno
import os
import socket
import time
from collections.abc import Iterator

import pytest

from actors.node.control import EXIT_UNUSABLE, Control
from actors.node.processes import BACKOFF_MIN_S, EXIT_RAISED, WorkerProcess

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that pytest's has threads


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    made = WorkerProcess(0, "the worker", lambda: None)
    yield made
    made.kill()
    if made.is_running:
        made.ended(0.0, is_stopping=True)


def started(worker: WorkerProcess, ends_with: int | BaseException) -> Control:
    """Start one that says what it is told, and ends."""

    def run(sock: socket.socket) -> int:
        control = Control(sock)
        control.send({"ready": (control.receive() or [{}])[0]["shard"]})
        if isinstance(ends_with, int):
            return ends_with
        raise ends_with

    control = worker.start(0.0, {}, run)
    assert control is not None
    assert worker.is_running
    assert control.receive() == [{"ready": 0}]
    assert control.receive() is None
    return control


def test_a_worker_ends_with_what_it_returned(worker: WorkerProcess) -> None:
    started(worker, 70)
    assert worker.ended(5.0, is_stopping=False) == "exit code 70"
    assert not worker.is_running
    assert not worker.is_over
    assert worker.start_at == 5.0 + BACKOFF_MIN_S


def test_a_worker_that_can_not_be_used_is_not_started_again(worker: WorkerProcess) -> None:
    started(worker, EXIT_UNUSABLE)
    worker.ended(5.0, is_stopping=False)
    assert worker.is_over


@pytest.mark.parametrize("raised", [ValueError("no such thing"), SystemExit(0)])
def test_what_a_worker_raises_ends_it_alone(
    worker: WorkerProcess, raised: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor does it go on as the supervisor, whose frames are below its own."""
    started(worker, raised)
    assert worker.ended(0.0, is_stopping=False) == f"exit code {EXIT_RAISED}"
    assert repr(raised).partition("(")[0] in capfd.readouterr().err


def test_a_worker_that_closes_its_channel_and_goes_on_is_killed(worker: WorkerProcess) -> None:
    def run(sock: socket.socket) -> int:
        sock.close()
        time.sleep(600)
        return 0

    control = worker.start(0.0, {}, run)
    assert control is not None
    assert control.receive() is None
    assert worker.ended(0.0, is_stopping=False) == "signal 9"


def test_where_the_system_has_no_process_to_give_it_is_asked_again(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", fork)
        for n in range(3):
            assert worker.start(float(n), {}, lambda _: 0) is None
            assert worker.start_at == n + BACKOFF_MIN_S * 2**n
    assert not worker.is_running
    assert not worker.is_over
    assert "Resource temporarily unavailable" in worker.fault
    assert len(os.listdir("/proc/self/fd")) == before
    [said] = caplog.messages
    assert said.startswith("the worker can't be started: Resource temporarily unavailable; "), "said once"
    started(worker, 0)
