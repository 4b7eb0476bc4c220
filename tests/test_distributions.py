"""The two distributions, built and installed as a user does it, each in an environment of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from quorate.version import VERSION
from tests.node import free_port
from tests.sharing import made_here

ROOT = Path(__file__).parent.parent
FOLDERS = {"actors", "cli", "console", "data", "net", "storage"}
NAMES = FOLDERS | {"quorate_compiled.py", "quorate_server.py", "pyspark_quorate.py"}


def run(*words: object, folder: Path | None = None, **environment: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


CAN_COMPILE = Path(sysconfig.get_path("include"), "Python.h").exists() and shutil.which("gcc") is not None


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The distributions as they are built without saying anything."""
    made_here("wheels", tmp_path_factory)
    return build(tmp_path_factory, "")


def build(tmp_path_factory: pytest.TempPathFactory, how: str) -> dict[str, Path]:
    """Build from copies, so that no build leaves anything in the checkout. `how`: QUORATE_COMPILE.

    The server's wheel from its source distribution, as an index would have it.
    """
    folder = tmp_path_factory.mktemp("wheels")
    copy = folder / "checkout"
    tracked = run("git", "ls-files", folder=ROOT).split("\n") if (ROOT / ".git").exists() else []
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    make = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", make, folder, folder=copy, PYTHONPATH="")
    [archive] = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")
    source = archive.with_name(archive.name.removesuffix(".tar.gz"))
    if (ROOT / "build").exists():  # what the checkout has compiled of the same sources need not be compiled again
        shutil.copytree(ROOT / "build", source / "build", ignore=shutil.ignore_patterns("wheels", "bdist*", "peers"))
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder)
    run(*pip, copy / "quorate", source, QUORATE_COMPILE=how)
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def environment(folder: Path, *installed: Path) -> Path:
    """A fresh environment with these wheels; what they need of others is taken from the one that runs the tests."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", *installed)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def top_level(wheel: Path) -> set[str]:
    """The names that a wheel brings."""
    with zipfile.ZipFile(wheel) as archive:
        return {name.split("/")[0] for name in archive.namelist() if ".dist-info" not in name.split("/")[0]}


@pytest.mark.slow
def test_the_client_brings_one_name_and_needs_one_package(wheels: dict[str, Path], tmp_path: Path) -> None:
    assert top_level(wheels["quorate_client"]) == {"quorate"}
    programs = environment(tmp_path / "venv", wheels["quorate_client"])
    code = "import quorate, sys; print(quorate.__version__, quorate.Client, 'storage' in sys.modules)"
    said = run(programs / "python", "-I", "-c", code)
    assert said.startswith(VERSION)
    assert said.rstrip().endswith("False")
    needed = tomllib.loads((ROOT / "quorate" / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [one.split(">")[0] for one in needed] == ["msgspec"]


@pytest.mark.slow
def test_the_server_runs_whatever_a_users_own_packages_are_called(wheels: dict[str, Path], tmp_path: Path) -> None:
    extensions = {name for name in top_level(wheels["quorate_server"]) if name.endswith(".so")}
    assert top_level(wheels["quorate_server"]) - extensions == NAMES
    assert bool(extensions) is CAN_COMPILE
    with zipfile.ZipFile(wheels["quorate_server"]) as archive:
        assert {"console/templates/base.html", "console/static/console.js"} <= set(archive.namelist())
    runs = "compiled" if CAN_COMPILE else "interpreted (it was not compiled)"
    programs = environment(tmp_path / "venv", *wheels.values())
    for name in FOLDERS:
        (tmp_path / "own" / name).mkdir(parents=True)
        (tmp_path / "own" / name / "__init__.py").write_text("raise ImportError('of somebody else')")
    own = str(tmp_path / "own")
    port = free_port()
    qctl = programs / "qctl"
    assert run(qctl, "--version", folder=tmp_path / "own", PYTHONPATH=own) == f"qctl {VERSION}, {runs}\n"
    run(qctl, "node", "start", "-b", "-p", port, "-d", tmp_path / "node", folder=tmp_path / "own", PYTHONPATH=own)
    try:
        assert f"version {VERSION}, {runs}, " in run(qctl, "node", "status", "--port", port, PYTHONPATH=own)
    finally:
        run(qctl, "node", "stop", "-d", tmp_path / "node", PYTHONPATH=own)
    if CAN_COMPILE:
        said = run(qctl, "--version", PYTHONPATH="", QUORATE_COMPILE="0")
        assert said == f"qctl {VERSION}, interpreted (QUORATE_COMPILE is 0)\n"


@pytest.mark.slow
def test_the_server_is_installed_interpreted_where_that_is_wanted(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    wheels = build(tmp_path_factory, "0")
    assert top_level(wheels["quorate_server"]) == NAMES
    assert wheels["quorate_server"].name.endswith("-none-any.whl")
    programs = environment(tmp_path / "venv", *wheels.values())
    said = run(programs / "qctl", "--version", PYTHONPATH="")
    assert said == f"qctl {VERSION}, interpreted (it was not compiled)\n"
    done = subprocess.run(
        [programs / "qctl", "--version"],
        env={**os.environ, "PYTHONPATH": "", "QUORATE_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    assert "QUORATE_COMPILE is 1, and Quorate can't run compiled: it was not compiled" in done.stderr


def test_one_version_everywhere() -> None:
    for path in (ROOT / "pyproject.toml", ROOT / "quorate" / "pyproject.toml"):
        assert tomllib.loads(path.read_text())["project"]["version"] == VERSION
    assert (
        f"quorate-client=={VERSION}" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    )
