"""qctl itself: what is behind its names, and what a call of one of them brings into the process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import main
from cli.main import ALONE, GROUPS, app
from tests.conftest import StartNode

CALL = """
import sys
sys.argv = ["qctl", "queue", "ls", "--port", "1"]
from cli.main import main
try:
    main()
except SystemExit:
    pass
print(*sys.modules)
"""


def ask(*words: str) -> tuple[int, str]:
    """Call qctl in this process: its exit code, and what it said."""
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


def test_every_module_of_commands_is_behind_its_name() -> None:
    folder = Path(__file__).parents[2] / "cli"
    there = {one.stem for one in folder.glob("*.py") if re.search(r"^app = ", one.read_text(), re.MULTILINE)}
    assert {*GROUPS, *ALONE} == there - {"main"}
    code, said = ask("--help")
    assert code == 0
    for name in (*GROUPS, *ALONE):
        assert re.search(rf"^\W*{name} +\w", said, re.MULTILINE), f"{name} has no help"
        code, own = ask(name, "--help")
        assert code == 0
        assert f" {name} [OPTIONS]" in own


def test_a_name_that_is_mistyped_is_guessed_and_none_is_told_so() -> None:
    code, said = ask("quue", "ls")
    assert code == 2
    assert "Did you mean 'queue'?" in said
    assert ask("queue", "lst")[0] == 2


def test_an_import_that_fails_is_not_taken_for_a_name_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(main, "import_module", fails)
    assert isinstance(CliRunner().invoke(app, ["queue", "ls"]).exception, KeyError)


def test_a_call_brings_in_what_is_behind_its_own_name_alone() -> None:
    """Scripts call qctl for each message; to import all of it took most of a call's time."""
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=True)
    assert done.stderr == (
        "qctl: 127.0.0.1:1: Connection refused: no node listens there; `qctl node start` starts one, "
        "--host and --port name another\n"
    )
    brought = set(done.stdout.split())
    assert {one for one in brought if one.startswith("cli.")} == {
        *("cli.main", "cli.output", "cli.queue", "cli.completing", "cli.dead", "cli.quantities")
    }
    assert not brought & {"actors.node.config", "net.protocols", "storage.state", "lmdb", "asyncio"}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_closes_the_pipe_hears_no_complaint(form: list[str], start_node: StartNode) -> None:
    """`qctl queue ls --json | head -1` ended in "[Errno 32] Broken pipe"."""
    node = start_node()
    with node.client() as client:
        for n in range(2000):
            client.produce(f"{'q' * 100}{n}", n)
    words = [sys.executable, "-c", "from cli.main import main; main()", "queue", "ls", "--port", str(node.port), *form]
    asked = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert asked.stdout is not None
    assert asked.stderr is not None
    assert asked.stdout.readline()
    asked.stdout.close()
    assert asked.stderr.read() == b""
    asked.stderr.close()
    assert asked.wait(30) in (0, 1), "0 where the pipe took all before it was closed"
