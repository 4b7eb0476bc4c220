"""Small programs of ours that Spark starts in the place of others; each changes what they are called with."""

import os
import sys
from pathlib import Path
from shlex import quote
from typing import Final
from zlib import crc32

PYTHON: Final = """#!/bin/sh
# Spark has a packed copy of pyspark, and puts it before the one that is installed. Of what is packed Python keeps no
# bytecode: each of the six Pythons of a job compiled it again, for a second of a processor.
kept=
set -f
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in
    */python/lib/pyspark.zip | */python/lib/py4j-*.zip) ;;
    *) kept="$kept:$entry" ;;
  esac
done
PYTHONPATH="${kept#:}" exec %s "$@"
"""


def shim(name: str, text: str) -> Path | None:
    """Have a program of that name and text in this environment, or in the user's cache; None if neither can be."""
    is_environment = sys.prefix != sys.base_prefix
    for folder in ([Path(sys.prefix)] if is_environment else []) + [Path.home() / ".cache" / "quorate"]:
        made = folder / name
        try:
            made.parent.mkdir(parents=True, exist_ok=True)
            if not made.exists() or made.read_text() != text:
                part = made.with_name(f"{made.name}.{os.getpid()}")
                part.write_text(text)
                part.chmod(0o755)
                part.replace(made)
        except OSError:
            continue
        if os.access(made, os.X_OK):  # not where nothing may be run
            return made
    return None


def python_for_spark() -> str:
    """Give a program that starts this Python, for a Spark that was installed with it."""
    own = crc32(sys.executable.encode())  # the cache may be of several
    made = shim(f"spark-python-{own:08x}", PYTHON % quote(sys.executable))
    return sys.executable if made is None else str(made)
