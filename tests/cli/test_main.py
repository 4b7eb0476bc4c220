"""qctl itself: what is behind its names, and what a call of one of them brings into the process."""

import re
import subprocess
import sys
from pathlib import Path

from cli.main import ALONE, GROUPS, Commands

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


def test_every_module_of_commands_is_behind_its_name() -> None:
    folder = Path(__file__).parents[2] / "cli"
    there = {one.stem for one in folder.glob("*.py") if re.search(r"^app = ", one.read_text(), re.MULTILINE)}
    assert {*GROUPS, *ALONE} == there - {"main"}
    commands = Commands()
    assert list(commands) == [*GROUPS, *ALONE]
    assert {name: command.name for name, command in commands.items()} == {name: name for name in commands}
    assert all(command.help for command in commands.values())


def test_a_call_brings_in_what_is_behind_its_own_name_alone() -> None:
    """Scripts call qctl for each message; to import all of it took most of a call's time."""
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=True)
    assert "Connection refused" in done.stderr
    brought = set(done.stdout.split())
    assert {one for one in brought if one.startswith("cli.")} == {"cli.main", "cli.output", "cli.queue"}
    assert not brought & {"actors.node.config", "net.protocols", "storage.state", "lmdb", "asyncio"}
