"""ConsoleProcess: what the supervisor does where the system has no process for it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.node import config as configuration
from actors.node import processes
from actors.node.processes import CONSOLE_AGAIN_S, ConsoleProcess


def refused(*_: object, **__: object) -> int:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize(("where", "what"), [(subprocess, "Popen"), (os, "pidfd_open")])
def test_where_there_is_none_it_is_asked_again_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, what: str
) -> None:
    """Nor is one left behind that nobody would see the end of."""
    note = tmp_path / "pid"
    sleeping = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(processes, "CONSOLE_PROGRAM", [sys.executable, "-c", sleeping])
    config = configuration.load(None, flags={"data_dir": str(tmp_path), "http_listeners": "[{}]"})
    console = ConsoleProcess(config)
    with monkeypatch.context() as patched:
        patched.setattr(where, what, refused)
        for n in range(3):
            assert not console.start(float(n))
            assert not console.is_running
            assert console.start_at == n + CONSOLE_AGAIN_S[0] * 2**n
    assert not note.exists() or not Path(f"/proc/{note.read_text() or 0}").exists()
    assert console.start(9.0)
    console.stop()
    assert not console.is_running
