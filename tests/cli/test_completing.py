"""Names of queues that a shell offers: those of the node that the environment names, quickly, or none."""

import os
import subprocess
import time

import pytest

from cli.completing import queue_names
from tests.cli.test_qctl import QCTL
from tests.conftest import StartNode
from tests.node import free_port


def test_names_that_begin_so_are_offered(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start_node()
    monkeypatch.delenv("QUORATE_URL", raising=False)
    monkeypatch.setenv("QUORATE_PORT", str(node.port))
    with node.client() as client:
        for name in ("mail", "mail.dead", "jobs", "a mail"):
            client.configure(name, max_size=1)
    assert queue_names("mai") == ["mail", "mail.dead"]
    assert queue_names("") == ["a mail", "jobs", "mail", "mail.dead"]
    assert queue_names("x") == []
    asked = {"_QCTL_COMPLETE": "complete_bash", "COMP_WORDS": "qctl queue show ma", "COMP_CWORD": "3"}
    done = subprocess.run([QCTL], env={**os.environ, **asked}, capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout.split() == ["mail", "mail.dead"]


def test_without_a_node_nothing_is_offered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORATE_PORT", str(free_port()))
    begun = time.monotonic()
    assert queue_names("a") == []
    assert time.monotonic() - begun < 1
    monkeypatch.setenv("QUORATE_URL", "nonsense://")
    assert queue_names("a") == []
