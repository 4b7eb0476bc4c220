"""The folders at the top are the architecture: imports only point one way."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINES_MAX = 600


def test_imports_point_one_way() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_no_file_holds_more_than_one_idea() -> None:
    for path in ROOT.glob("*/**/*.py"):
        if not {".venv", "build"} & set(path.parts):
            assert len(path.read_text().splitlines()) <= LINES_MAX, f"{path} is too long to hold in the head"
