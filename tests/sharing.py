"""Which tests one process runs of those that run side by side: what they share takes long to make.

xdist has a mark for this (`xdist_group`), which pytest 9.2 and xdist 3.8 ignore together and say nothing
(pytest-xdist, issue 1386): three processes had a Spark each. So it stands here by name, and what is to be made once
says if it is made twice.
"""

import os
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = ("tests/peers/test_own_suites.py::", "tests/data/", "tests/test_distributions.py::")
"""What the names of tests begin with that one process runs, one after the other: suites that mostly wait, which leave a
core to others as long as they are not beside each other; one Spark; one build of the wheels."""


class Sharing(LoadScopeScheduling):
    """Gives each of `TOGETHER` to one process, first, and all others one by one to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return next((one for one in TOGETHER if nodeid.startswith(one)), nodeid)


def made_here(what: str, factory: pytest.TempPathFactory) -> None:
    """Note that this process makes it; fails where another of this run has, and lives."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    note = factory.getbasetemp().parent / f"{what}.made"
    pid = note.read_text() if note.exists() else ""
    assert not (pid and Path(f"/proc/{pid}").exists()), f"{what}: made by process {pid}, and by {os.getpid()}"
    note.write_text(str(os.getpid()))
