"""Clients of Disque's as they are, in an environment of their own, on a real node."""

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.conftest import StartNode
from tests.node import free_port
from tests.peers.conftest import environment

APP = Path(__file__).parent / "apps" / "disque_clients.py"


def test_redis_py_and_pydisque_find_a_disque(peers: Path, start_node: StartNode) -> None:
    port = free_port()
    node = start_node(listeners=[{"protocol": "disque", "port": port}])
    done = subprocess.run(
        [str(peers), str(APP)],
        env=environment(node, DISQUE_PORT=str(port)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all is well" in done.stdout


DOCS = Path(__file__).parents[2] / "docs" / "disque.md"


def example(heading: str) -> str:
    """The first block of code below a heading of the documentation."""
    lines = DOCS.read_text().partition(f"### {heading}\n")[2].splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("    "))
    end = next(at for at, line in enumerate(lines) if at > begin and line and not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[begin:end]))


def test_the_documentations_examples_run(peers: Path, start_node: StartNode, tmp_path: Path) -> None:
    port = free_port()
    start_node(listeners=[{"protocol": "disque", "port": port}])
    done = subprocess.run(
        [str(peers), "-c", example("Python").replace("7711", str(port))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if shutil.which("node"):
        script = tmp_path / "example.js"
        script.write_text(example("Node").replace("7711", str(port)))
        said = subprocess.run(["node", str(script)], capture_output=True, text=True, check=True, timeout=30)
        assert said.stdout.startswith("+D-")


def test_redis_cli_speaks_to_it(start_node: StartNode) -> None:
    if not shutil.which("redis-cli"):
        pytest.skip("redis-cli is not installed")
    port = free_port()
    start_node(listeners=[{"protocol": "disque", "port": port}])
    for line in ("redis-cli -p 7711 ADDJOB mail hello 0", *example("redis-cli").splitlines()):
        words = line.replace("7711", str(port)).split()
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
        assert done.stdout.strip(), line
        assert "ERR" not in done.stdout
