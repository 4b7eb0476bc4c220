"""Small programs of ours that Spark starts in the place of others; each changes what they are called with."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final
from zlib import crc32

PYTHON: Final = """#!/bin/sh
# Spark puts its packed copy of pyspark before the one that is installed, and of what is packed Python keeps no
# bytecode: each of the six Pythons of a job compiled it again, for a second of a processor.
PYTHONPATH=$PYTHONPATH:
kept=
set -f
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in
    {packed}/pyspark.zip | {packed}/py4j-*.zip) ;;
    *) kept="$kept:$entry" ;;
  esac
done
PYTHONPATH="${{kept#:}}" exec {python} "$@"
"""


def shim(name: str, text: str) -> Path | None:
    """Have a program of that text beside this Python, or in the user's cache; None if neither can be.

    `{}` in the name becomes a number of the text: environments may share a folder, and each has its own.
    """
    data = os.fsencode(text)
    for folder in _folders():
        made = folder / name.format(f"{crc32(data):08x}")
        if not _is(made, data):
            _write(made, data)
        if _is(made, data) and os.access(made, os.X_OK):  # not where nothing may be run
            return made
    return None


def python_for_spark(home: Path) -> str:
    """Say what Spark is to start as Python: this one, by a shim where pyspark's folder `home` is as pip installs it."""
    packed = home / "python" / "lib"
    if not (packed / "pyspark.zip").exists():
        return sys.executable
    made = shim("spark-python-{}", PYTHON.format(packed=quote(str(packed)), python=quote(sys.executable)))
    return sys.executable if made is None else str(made)


def _folders() -> Iterator[Path]:
    yield Path(sys.prefix) / "share" / "quorate"
    try:
        yield Path.home() / ".cache" / "quorate"
    except RuntimeError:  # a user without a home
        return


def _is(made: Path, data: bytes) -> bool:
    try:
        return made.read_bytes() == data
    except OSError:
        return False


def _write(made: Path, data: bytes) -> None:
    """Whole, or not at all; others may be at it as well."""
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=made.parent)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(part, 0o755)
        os.replace(part, made)
    except OSError:
        os.unlink(part)
