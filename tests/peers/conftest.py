"""The environment with the peers, and how their own tests are run in it."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.node import Node, free_port

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "build" / "peers"
PYTHON = PEERS / "venv" / "bin" / "python"
collect_ignore = ["suites", "apps"]
"""They run in the peers' environment, not here."""

SUITES = Path(__file__).parent / "suites"


@pytest.fixture(scope="session")
def peers() -> Path:
    """The interpreter of the environment that has them."""
    if not (PEERS / ".installed").exists():
        pytest.skip("the peers are not installed: make peers")
    return PYTHON


def environment(node: Node, **more: str) -> dict[str, str]:
    """For a process that is to find the node, and nothing else of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUORATE_", "PYTEST_"))}
    path = f"{PYTHON.parent}:{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "QUORATE_URL": f"quorate://127.0.0.1:{node.port}", **more}


ONLY_REDIS = re.compile(r"""result_backend\.startswith\(["']redis["']\)""")
"""Celery's tests pass over what only its Redis backend does; ours does it, too."""

RunSuite = Callable[..., str]


@pytest.fixture
def run_suite(peers: Path, tmp_path: Path) -> RunSuite:
    """Run tests of a peer's own, with files of ours beside them, against a node; what pytest printed."""

    def run(source: str, tests: list[str], node: Node, left_out: dict[str, str], *options: str, **more: str) -> str:
        [unpacked] = (PEERS / "src").glob(f"{source}-*")
        folder = tmp_path / "suite"
        shutil.copytree(unpacked, folder, symlinks=True)
        for path in (one for one in (SUITES / source).rglob("*") if one.is_file() and one.suffix != ".pyc"):
            target = folder / path.relative_to(SUITES / source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        for path in (folder / "t" / "integration").glob("test_*.py") if source == "celery" else ():
            path.write_text(ONLY_REDIS.sub("result_backend.startswith(('redis', 'quorate'))", path.read_text()))
        words = [str(peers), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--timeout", "90"]
        words += [word for name in left_out for word in ("--deselect", name)]
        done = subprocess.run(
            [*words, *options, *tests],
            cwd=folder,
            env=environment(node, **more),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    return run


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    """A redis-server of the test's own, where there is one."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("redis-server is not installed, which Celery's own tests keep results in")
    port = free_port()
    words = [found, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
