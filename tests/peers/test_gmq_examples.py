"""The examples of docs/gmq.md, as they stand there, with the languages that are installed."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bench.go_rpc import Gmq
from tests.conftest import StartNode
from tests.node import free_port

DOCS = Path(__file__).parents[2] / "docs" / "gmq.md"


def example(heading: str, port: int) -> str:
    """The first block of code below a heading."""
    lines = DOCS.read_text().partition(f"### {heading}\n")[2].splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("    "))
    end = next(at for at, line in enumerate(lines) if at > begin and line and not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[begin:end])).replace("9503", str(port))


def run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pythons_example_and_the_way_to_move_run(start_node: StartNode, tmp_path: Path) -> None:
    port, old = free_port(), free_port()
    start_node(listeners=[{"protocol": "gmq", "port": port}])
    folder = str(tmp_path / "old")  # as one of gmq's own
    start_node(listeners=[{"protocol": "gmq", "port": old}], gmq_pop_wait_s=0.1, data_dir=folder)
    script = tmp_path / "example.py"
    drain = f'drain(socket.create_connection(("127.0.0.1", {old})), queue, ["t", "u"])'
    script.write_text(f"{example('Python', port)}\n{drain}\n")
    with Gmq(old) as before:
        before.push("b", "t", "kept", ttr=9)
        before.push("c", "u", "once")
    assert run([sys.executable, str(script)]).splitlines() == ["success", "hello True"]
    with Gmq(port) as after:
        assert [after.pop("t", "u")["body"] for _ in range(2)] == ["kept", "once"]


@pytest.mark.skipif(not shutil.which("php"), reason="PHP is not installed")
def test_phps_example_runs(start_node: StartNode, tmp_path: Path) -> None:
    port = free_port()
    start_node(listeners=[{"protocol": "gmq", "port": port}])
    script = tmp_path / "example.php"
    script.write_text(example("PHP", port))
    said = run(["php", str(script)])
    assert "[result] => success" in said
    assert "[result] => 1" in said


@pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed")
def test_gos_example_runs(start_node: StartNode, tmp_path: Path) -> None:
    port = free_port()
    start_node(listeners=[{"protocol": "gmq", "port": port}])
    script = tmp_path / "example.go"
    script.write_text(example("Go", port))
    assert run(["go", "run", str(script)]) == "success hello true\n"
