"""What README and docs/ tell people to type: it is there, and what stands in a page's blocks works, in their order."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from cli.main import app
from tests.node import free_ports

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
VENV: Final = Path(sys.executable).parent.parent

ELSEWHERE: Final = {
    "demo": "test_the_demo_proves_that_nothing_was_lost",
    "demo-data": "test_the_demos_log_is_reported_on",
    "test": "what runs this",
    "test-interpreted": "what make test begins with",
    "outside": ".ci/run",
    "peers": "what make test begins with; tests/peers",
    "compiled": ".ci/run: what make test begins with, by the same command",
    "interpreted": "test_what_was_built_can_be_taken_away",
    "wheel": "tests/test_distributions.py, by the same command",
    "check": ".ci/run",
    "lint": ".ci/run",
    "types": ".ci/run",
    "lock": "by hand: it asks a registry, and a test may not",
    "clean": "test_what_was_built_can_be_taken_away",
}
"""Which test runs a target of the Makefile, or why none does."""

COMMAND: Final = re.compile(r"(?:\.venv/bin/)?(qctl [a-z].*|make [a-z].*|python -m (?:bench|tests)\b.*)")
WORDS_OF_SHAPE: Final = re.compile(r"[\[\]]")


def named() -> Iterator[tuple[str, list[str]]]:
    """Each command that a page names, in a block or within a sentence: the page, and its words."""
    for page in PAGES:
        text = page.read_text()
        spans = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^    (\S.*)$", text, re.MULTILINE)
        for span in spans:
            if found := COMMAND.fullmatch(span.split("  #")[0].strip()):
                words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", WORDS_OF_SHAPE.sub("", found[1])).split()
                yield page.name, words


def blocks(page: str) -> list[str]:
    """The lines of a page's blocks that are for a shell, without what stands behind #."""
    lines = re.findall(r"^    (\S.*)$", (ROOT / page).read_text(), re.MULTILINE)
    return [one.split("  #")[0].strip() for one in lines]


def ours(page: str) -> list[str]:
    """Those of `blocks` that call qctl."""
    return [one for one in blocks(page) if one.removeprefix(".venv/bin/").startswith("qctl ")]


class Shell:
    """A folder in which commands are typed as the pages have them; port 1111 becomes one that is free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_ports(40) + 30
        (folder / ".venv").symlink_to(VENV)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")}
        self.environment = {**kept, "QUORATE_PORT": str(self.port), "PATH": f"{VENV / 'bin'}:{kept['PATH']}"}
        self._running: list[subprocess.Popen[bytes]] = []

    def type(self, line: str, code: int = 0) -> str:
        """Run a line; what it printed. Errors go with it."""
        done = subprocess.run(
            ["bash", "-c", self._here(line)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == code, f"{line}\n{done.stdout}"
        assert "Traceback" not in done.stdout
        return done.stdout

    def begin(self, line: str) -> None:
        """Run a line that goes on until `end`."""
        log = (self.folder / "begun.log").open("ab")
        with log:
            self._running.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {self._here(line)}"],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _here(self, line: str) -> str:
        line = line.replace("127.0.0.1:1111", f"127.0.0.1:{self.port}").replace(" --port 2111", "")
        return f"{line} --port {self.port}" if " cluster start " in line else line

    def has_begun(self) -> None:
        """Wait until the node that was begun listens."""
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < until, (self.folder / "begun.log").read_text()
            time.sleep(0.05)

    def end(self) -> None:
        """Stop what was begun, as Ctrl-C does."""
        for process in self._running:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._running.clear()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.end()
    if (tmp_path / "cluster").exists():
        subprocess.run([VENV / "bin" / "qctl", "cluster", "stop", "--dir", tmp_path / "cluster"], check=False)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command of qctl that those words call, and the words behind it."""
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "get_command") and rest and not rest[0].startswith("-"):
        name = rest[0].rstrip(",")
        command, rest = command.get_command(None, name), rest[1:]
        assert command is not None, f"{' '.join(words)}: there is no {name}"
    return command, rest


def test_every_command_of_qctl_that_a_page_names_is_there_with_its_options() -> None:
    seen = 0
    for page, words in named():
        if words[0] != "qctl":
            continue
        seen += 1
        command, rest = command_of(words)
        known = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
        for word in rest:
            option = word.split("=")[0].rstrip(",")
            if re.fullmatch(r"--?[a-z][a-z-]*", option):
                assert option in known | {"--help"}, f"{page}: {' '.join(words)}: there is no {option}"
    assert seen > 60


def test_every_module_that_a_page_runs_is_there_and_takes_what_it_is_given() -> None:
    seen = set()
    for page, words in named():
        if words[0] != "python":
            continue
        found = importlib.util.find_spec(words[2])
        assert found is not None, f"{page}: there is no {words[2]}"
        assert found.origin is not None
        origin = Path(found.origin)
        code = (origin.with_name("__main__.py") if origin.name == "__init__.py" else origin).read_text()
        for word in words[3:]:
            if re.fullmatch(r"--?[a-z]+|[a-z]+", word):
                assert f'"{word}"' in code or f"def {word}(" in code, f"{page}: {words[2]} takes no {word}"
        seen.add(words[2])
    assert len(seen) > 10


def test_every_target_of_the_makefile_is_run_and_every_one_that_a_page_names_is_there() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(targets) == sorted(ELSEWHERE)
    here = Path(__file__).read_text()
    assert all(f"def {why}(" in here for why in ELSEWHERE.values() if why.startswith("test_"))
    for page, words in named():
        if words[0] == "make":
            assert words[1].rstrip(",") in targets, f"{page}: {' '.join(words)}"


@pytest.mark.slow
def test_the_librarys_examples_run(shell: Shell) -> None:
    """Each block of docs/library.md; what runs for ever there is ended here."""
    shell.begin(".venv/bin/qctl node start")
    shell.has_begun()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), re.DOTALL)
    assert len(blocks) == 4
    for number, block in enumerate(blocks):
        block = block.replace("127.0.0.1:1111", f"127.0.0.1:{shell.port}").replace(
            "Client()", f"Client(port={shell.port})"
        )
        block = block.replace("delay=10, ", "").replace("wait=60", "wait=0.5")
        if "async with" in block:
            indented = block.replace("\n", "\n    ")
            block = f"import asyncio\nasync def go():\n    {indented}\nasyncio.run(go())\n"
        if ".run()" in block:
            block = block.replace(".run()", "").replace("\nWorker(", "\nworker = Worker(")
            block += "import threading\nthreading.Timer(2, worker.stop).start()\nworker.run()\n"
        (shell.folder / f"{number}.py").write_text(block)
        said = shell.type(f"python {number}.py")
        if "on_duplicate" in block:
            assert said == "42\n"
        else:
            assert ("{'to': 'ada'}" in said) == (".run()" not in block and "worker" not in block)
    shell.end()


@pytest.mark.slow
def test_the_page_about_topics_in_its_order(shell: Shell) -> None:
    """Its commands, and its programs, which end by themselves."""
    create, first, second, read, group, show, ls, reset, trim, remove, *filters = ours("docs/streams.md")
    shell.begin(".venv/bin/qctl node start")
    shell.has_begun()
    assert "\t7d\t" in shell.type(create)
    places = [shell.type(line).strip() for line in (first, second)]
    lines = shell.type(read).splitlines()
    assert [line.split()[0] for line in lines] == places
    assert [line.split(" 42 ")[1] for line in lines] == ["a pot of tea", "a second pot"]
    assert shell.type(group) == lines[0] + "\n"
    assert "billing" in shell.type(show)
    assert shell.type(ls).splitlines()[1].split()[:3] == ["billing", "0", "1"]
    assert len(shell.type(reset).splitlines()) == 9
    assert shell.type(trim) == "2 messages gone from orders\n"
    given, taken = [shell.type(line).splitlines()[-1] for line in filters]
    assert given == "the group billing reads paid, refund*"
    assert taken.startswith("orders")
    assert shell.type(remove) == "orders removed with 0 messages\n"
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "streams.md").read_text(), re.DOTALL)
    assert len(blocks) == 5
    for number, block in enumerate(blocks):
        (shell.folder / f"{number}.py").write_text(block.replace("Client()", f"Client(port={shell.port})"))
    said = shell.type("python 0.py")
    assert "{'item': 'tea'}" in said
    assert [line.split()[-1] for line in said.splitlines() if line.startswith("0 ")][-3:] == ["a", "b", "c"]
    assert shell.type("python 1.py") == ""
    assert shell.type("python 2.py").startswith("Appended(partition=")
    assert shell.type("python 3.py") == "to ada\nthe end\n"
    assert shell.type("python 4.py") == "['A', 'B', 'C']\n"
    shell.end()


@pytest.mark.slow
def test_the_readmes_first_look_in_its_order(shell: Shell) -> None:
    lines = ours("README.md")
    start, produce, ls, consume, confirm, tail, *cluster = lines
    shell.begin(start)
    shell.has_begun()
    msg_id = shell.type(produce).strip()
    assert confirm.split()[-1] == msg_id, "README tells which id that is"
    assert [line.split()[:2] for line in shell.type(ls).splitlines()] == [["queue", "size"], ["mail", "1"]]
    assert shell.type(consume) == f"{msg_id} 1 hello\n"
    assert "1 of 1 confirmed" in shell.type(confirm)
    assert [f"{kind} mail" in shell.type(tail) for kind in ("produce", "deliver", "confirm")] == [True] * 3
    text = (ROOT / "README.md").read_text()
    python = text.split("```python\n")[1].split("```")[0].replace("delay=10", "delay=1")
    python = python.replace("wait=15", "wait=3")
    shell.type(f"cat > it.py <<'END'\n{python.replace('Client()', f'Client(port={shell.port})')}END\npython it.py")
    [asked] = re.findall(r"`({\"action\".*?})`", text)
    with socket.create_connection(("127.0.0.1", shell.port), 5) as sock:
        sock.sendall(asked.encode())
        reply = json.loads(sock.recv(4096))
        assert reply["code"] == 0
        assert reply["msg_id"] > int(msg_id)
    shell.end()
    begin, status, stop = cluster
    assert shell.type(begin).count("ready on") == 3
    assert shell.type(status).count("\tup\t") == 3
    assert "stopped" in shell.type(stop)


@pytest.mark.slow
def test_the_page_about_shards_in_its_order(shell: Shell) -> None:
    start, status, *cluster = ours("docs/shards.md")
    shell.begin(start)
    shell.has_begun()
    assert len(shell.type(status).splitlines()) == 6
    shell.end()
    for line in cluster:
        shell.type(line)


def test_the_page_about_security_in_its_order(shell: Shell) -> None:
    lines = [one for one in blocks("docs/security.md") if one.startswith(("qctl", "umask"))]
    assert len(lines) == 6
    for line in lines:
        shell.type(line)
    for name in ("cluster.secret", "access.toml", "mailer.token", "worker.token", "boss.token"):
        assert (shell.folder / name).stat().st_size > 0
    assert (shell.folder / "access.toml").stat().st_mode & 0o077 == 0
    listed = shell.type("qctl access ls --file access.toml")
    assert [line.split()[0] for line in listed.splitlines()[1:]][:3] == ["mailer", "worker", "boss"]


@pytest.mark.slow(150)
def test_the_page_about_the_pipeline_in_its_order(shell: Shell) -> None:
    install, archive, report, trace, replay, stream, compact, *_ = [
        one for one in blocks("docs/pipeline.md") if one.startswith(("pip ", "qctl "))
    ]
    assert install.startswith("pip install")  # tests/test_distributions.py does that
    shell.begin("qctl node start")
    shell.has_begun()
    msg_id = shell.type("qctl msg produce mail hello --retry 60").strip()
    shell.type("qctl msg consume mail --confirm")
    shell.type(archive)
    shell.type(report)
    assert (shell.folder / "REPORT" / "report.html").exists()
    assert "confirmed" in shell.type(trace.replace("4096", msg_id))
    assert "1 " in shell.type(replay)
    assert shell.type("qctl msg consume mail2").endswith("hello\n")
    shell.begin(stream)
    until = time.monotonic() + 60
    while not list((shell.folder / "DIR").rglob("*.parquet")):
        assert time.monotonic() < until, (shell.folder / "begun.log").read_text()
        time.sleep(0.2)
    shell.type(compact)


@pytest.mark.slow
def test_the_demo_proves_that_nothing_was_lost() -> None:
    said = make("demo", "LINES=60000")
    assert ", 0 lost" in said
    assert "All is well" in said


@pytest.mark.slow(60)
def test_the_demos_log_is_reported_on() -> None:
    make("demo-data", "LINES=20000")
    assert (ROOT / "quorate-demo-data" / "report" / "report.html").stat().st_size > 10_000


def test_what_was_built_can_be_taken_away(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in (".venv/.compiled", ".venv/kept.so", "storage/made.so", "build/lib/kept.so", "quorate_compiled.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("actors", "net", "quorate"):
        (tmp_path / name).mkdir()
    subprocess.run(["make", "--silent", "interpreted"], cwd=tmp_path, check=True)
    left = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()}
    assert left == {"Makefile", ".venv/kept.so", "build/lib/kept.so", "quorate_compiled.py"}
    subprocess.run(["make", "--silent", "clean"], cwd=tmp_path, check=True)
    assert {one.name for one in tmp_path.iterdir()} == {
        "Makefile",
        "quorate_compiled.py",
        "storage",
        "actors",
        "net",
        "quorate",
    }


def make(target: str, *variables: str) -> str:
    """Make it in the checkout, with this Python and what is set up; what it printed."""
    words = ["make", "--silent", *(f"--old-file=.venv/{one}" for one in (".installed", ".compiled", ".spark"))]
    outer = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}  # those of the make that runs the tests
    done = subprocess.run(
        [*words, f"RUN={sys.executable}", *variables, target],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
        env={name: value for name, value in os.environ.items() if name not in outer},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout
