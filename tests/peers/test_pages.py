"""Each framework's page has a whole program: it does what the page says, from the page alone."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import StartNode
from tests.peers.conftest import ROOT, environment

PAGES = ["celery", "dramatiq", "taskiq", "django"]


def blocks(page: str, kind: str) -> list[str]:
    """The page's code of that kind."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_program_of_a_page_does_what_the_page_says(
    start_node: StartNode, peers: Path, tmp_path: Path, page: str
) -> None:
    node = start_node()

    def here(text: str) -> str:
        return text.replace("127.0.0.1:1111", f"127.0.0.1:{node.port}")

    for block in blocks(page, "python"):
        [name] = re.findall(r"\A# (\S+\.py)\n", block)
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(here(block))
    [commands], [said] = blocks(page, "sh"), blocks(page, "text")
    *workers, last = commands.splitlines()
    around = {**environment(node), "PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    running = [
        subprocess.Popen(["sh", "-c", f"exec {worker.removesuffix(' &')}"], cwd=tmp_path, env=around)
        for worker in workers
    ]
    try:
        done = subprocess.run(
            ["sh", "-c", here(last)], cwd=tmp_path, env=around, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout == said
    finally:
        for worker in running:
            os.kill(worker.pid, signal.SIGTERM)
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
    assert peers.exists()
