"""What Spark starts in the place of others."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data import session, shims

SAY = "import os, sys; print(os.environ['PYTHONPATH']); print(sys.argv[1:])"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pyspark's folder, with a packed copy in it; what is written goes elsewhere than beside this Python."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    packed = tmp_path / "it's pyspark" / "python" / "lib" / "pyspark.zip"
    packed.parent.mkdir(parents=True)
    packed.touch()
    return tmp_path / "it's pyspark"


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("LIB/pyspark.zip:LIB/py4j-0.10.9.9-src.zip:/own dir:/*", "/own dir:/*"),
        ("/own::LIB/pyspark.zip", "/own:"),
        ("/own:", "/own:"),
        (":", ":"),
        ("LIB/spark-core.jar:/s/python/lib/pyspark.zip", "LIB/spark-core.jar:/s/python/lib/pyspark.zip"),
        ("", ""),
    ],
)  # fmt: skip
def test_pythons_start_without_what_is_packed_and_with_all_else(home: Path, path: str, kept: str) -> None:
    program = shims.python_for_spark(home)
    lib = str(home / "python" / "lib")
    done = subprocess.run(
        [program, "-c", SAY, "a b", "*"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": path.replace("LIB", lib)},
    )
    assert done.stdout.splitlines() == [kept.replace("LIB", lib), "['a b', '*']"]


def test_it_is_written_once_and_again_when_it_is_another(home: Path) -> None:
    program = Path(shims.python_for_spark(home))
    assert program.is_relative_to(home.parent / "an environment")
    before = program.stat().st_ino
    assert shims.python_for_spark(home) == str(program)
    assert program.stat().st_ino == before
    program.write_text("#!/bin/sh\nfalse\n")
    assert shims.python_for_spark(home) == str(program)
    assert subprocess.run([program, "-c", "print(1)"], capture_output=True, text=True, check=True).stdout == "1\n"
    assert list(program.parent.iterdir()) == [program], "nothing is left of what was written"


def test_where_nothing_can_be_written_beside_it_the_cache_has_it_and_else_python_starts_as_it_is(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    assert Path(shims.python_for_spark(home)).parent == tmp_path / "home" / ".cache" / "quorate"
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert shims.python_for_spark(home) == sys.executable


def test_a_spark_that_pip_did_not_install_gets_python_as_it_is(tmp_path: Path) -> None:
    assert shims.python_for_spark(tmp_path) == sys.executable


def test_what_spark_starts_as_python_is_for_this_machine_and_for_what_is_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*session.PYTHONS, "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(session, "python_for_spark", lambda home: f"shim of {home.name}")
    assert session._pythons(is_local=True) == dict.fromkeys(session.PYTHONS, "shim of pyspark")
    assert session._pythons(is_local=False) == dict.fromkeys(session.PYTHONS, sys.executable)
    monkeypatch.setenv(session.PYTHONS[0], "python3.13")
    assert session._pythons(is_local=True) == {session.PYTHONS[1]: "shim of pyspark"}
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert session._pythons(is_local=True) == {session.PYTHONS[1]: sys.executable}


def test_sparks_pythons_have_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    import pyspark

    def where(_: Any) -> Any:
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [pyspark.__file__]
    assert not any("spark-python" in os.environ.get(name, "") for name in session.PYTHONS), "it is told to Spark alone"
