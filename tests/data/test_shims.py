"""What Spark starts in the place of others."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data import shims

SAY = "import os, sys; print(os.environ['PYTHONPATH']); print(sys.argv[1:])"


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/s/python/lib/pyspark.zip:/s/python/lib/py4j-0.10.9.9-src.zip:/own dir:/*", "/own dir:/*"),
        ("/own::/s/python/lib/pyspark.zip", "/own:"),
        ("/s/jars/spark-core_2.13-4.2.0.jar:/lib/pyspark.zip", "/s/jars/spark-core_2.13-4.2.0.jar:/lib/pyspark.zip"),
        ("", ""),
    ],
)
def test_pythons_start_without_what_is_packed_and_with_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kept: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    program = shims.python_for_spark()
    assert Path(program).is_relative_to(tmp_path)
    done = subprocess.run(
        [program, "-c", SAY, "a b", "*"], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert done.stdout.splitlines() == [kept, "['a b', '*']"]
    assert shims.python_for_spark() == program, "made once"


def test_where_nothing_can_be_written_python_starts_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert shims.python_for_spark() == sys.executable


def test_outside_of_an_environment_nothing_is_put_beside_the_systems_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "usr"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "usr"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Path(shims.python_for_spark()).parent == tmp_path / "home" / ".cache" / "quorate"
    assert not (tmp_path / "usr").exists()


def test_sparks_pythons_have_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    import pyspark

    def where(_: Any) -> Any:
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [pyspark.__file__]
