"""Compiles the server's modules with mypyc where that can be done; everything else is in pyproject.toml.

Which modules, and what QUORATE_COMPILE does, is said in quorate_compiled.py. What is told goes to standard error:
`pip install -v` shows it, and `qctl --version` tells afterwards which code it is.
"""

import os
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.errors import CCompilerError, DistutilsError
from setuptools._distutils.sysconfig import customize_compiler

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # a build does not begin with the folder it builds

from quorate_compiled import GROUP, MODULES, VARIABLE, source_of  # noqa: E402

ONLY_ASKED = {"egg_info", "dist_info", "sdist", "--version", "--name", "clean"}
"""Commands that build nothing."""


def why_not() -> str | None:
    """Why nothing can be compiled here; None if it can."""
    if sys.implementation.name != "cpython":
        return f"mypyc compiles for CPython, and this is {sys.implementation.name}"
    if find_spec("mypyc") is None:
        return "mypy, which has the compiler mypyc, is not installed"
    compiler = new_compiler()
    customize_compiler(compiler)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <Python.h>\nint probe(void) { return PY_MAJOR_VERSION; }\n")
        silent = os.open(os.devnull, os.O_WRONLY)
        saved = os.dup(2)
        os.dup2(silent, 2)
        try:
            compiler.compile([str(source)], output_dir=folder, include_dirs=[sysconfig.get_path("include")])
        except (CCompilerError, DistutilsError, OSError):
            return "there is no C compiler that finds Python.h (on Debian: apt install gcc python3-dev)"
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            os.close(silent)
    return None


def extensions() -> list[Extension]:
    """What to compile: all of the list, or nothing."""
    if ONLY_ASKED & set(sys.argv):
        return []
    wanted = os.environ.get(VARIABLE)
    reason = f"{VARIABLE} is 0" if wanted == "0" else why_not()
    if reason is not None:
        if wanted == "1":
            sys.exit(f"Quorate can't be compiled: {reason}")
        print(f"Quorate is installed interpreted: {reason}", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    is_strict = wanted == "1" or "--inplace" in sys.argv  # who works on it wants to know
    os.chdir(HERE)
    try:
        made = mypycify([source_of(module) for module in MODULES], group_name=GROUP, opt_level="1", debug_level="0")
    except SystemExit:
        if is_strict:
            raise
        print("Quorate is installed interpreted: mypyc does not take it, for the reasons above", file=sys.stderr)
        return []
    print(f"Quorate is compiled: {len(MODULES)} modules", file=sys.stderr)
    for extension in made:
        extension.optional = not is_strict
        extension.extra_compile_args.append("-Wno-all")  # gcc's warnings about generated code take half of the time
    return made


setup(ext_modules=extensions())
