"""Compiles the server's modules with mypyc where that can be done; everything else is in pyproject.toml.

Which modules, and what QUORATE_COMPILE does, is said in quorate_compiled.py. What is told goes to standard error:
`pip install -v` shows it, and `qctl --version` tells afterwards which code it is.
"""

import os
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools._distutils._modified import newer, newer_group
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.errors import CCompilerError, DistutilsError
from setuptools._distutils.sysconfig import customize_compiler
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # a build does not begin with the folder it builds

from quorate_compiled import GROUP, MODULES, PACKAGES, VARIABLE, source_of  # noqa: E402

PARTS = 6
"""C files that all modules are compiled in."""

OF_OTHERS = """#include <Python.h>
#include <frameobject.h>
#include <structmember.h>
#include <assert.h>
#include <ctype.h>
#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#pragma GCC visibility push(hidden)
"""
"""What stands before each part: all else is in the same library, and is called and read without a detour."""

AT_ONCE = 2
"""Compilers at a time: each takes some 400 MB."""

BUILDING = {"build", "build_ext", "bdist_wheel", "editable_wheel", "install", "develop"}
"""Commands that compile; the others only ask."""


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
    """Say what to compile: all of the list, or nothing."""
    if not BUILDING & set(sys.argv):
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
        paths = [source_of(module) for module in MODULES]
        made = mypycify(paths, group_name=GROUP, opt_level="1", debug_level="0", multi_file=True)
    except (Exception, SystemExit) as error:
        if is_strict:
            raise
        print(f"Quorate is installed interpreted: mypyc does not take it ({error}; see above)", file=sys.stderr)
        return []
    for extension in made:
        extension.sources = in_parts(extension.sources)
        extension.optional = not is_strict
        # gcc's warnings about generated code take half of the time; what nobody else sees is called without a detour
        extension.extra_compile_args.extend(["-Wno-all", "-fvisibility=hidden"])
    return made


def in_parts(sources: list[str]) -> list[str]:
    """Make a few C files of many, which each include some: as one they take one compiler, and 1.5 GB of memory; one by
    one, each reads the same headers again.

    Modules of one folder stay together: calls within a file are the quick ones.
    """
    if len(sources) <= PARTS:
        return sources
    sizes = {source: os.path.getsize(source) for source in sources}
    ordered, limit = sorted(sources), sum(sizes.values()) / PARTS
    parts: list[list[str]] = [[]]
    for source in ordered:
        if len(parts) < PARTS and sum(sizes[one] for one in parts[-1]) + sizes[source] / 2 > limit:
            parts.append([])
        parts[-1].append(source)
    made = []
    for number, part in enumerate(parts):
        path = Path(sources[0]).parent / f"part_{number}.c"
        text = OF_OTHERS + "".join(f'#include "{Path(one).resolve()}"\n' for one in part)
        if not path.exists() or path.read_text() != text or any(newer(one, str(path)) for one in part):
            path.write_text(text)
        made.append(str(path))
    return made


class Build(build_ext):
    """Leaves nothing behind of what was compiled before, and says what came of it."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or AT_ONCE

    def build_extensions(self) -> None:
        """Compile the parts two at a time, and say how far that is. Beside them go the small files of each module."""
        compile_some, done = self.compiler.compile, []

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            def compile_one(source: str) -> list[str]:
                objects = compile_some([source], **options)
                if len(sources) > 1:
                    done.append(source)
                    print(f"Quorate: {len(done)} of {len(sources)} parts are compiled", file=sys.stderr, flush=True)
                return objects

            with ThreadPoolExecutor(AT_ONCE) as pool:
                return [one for objects in pool.map(compile_one, sources) for one in objects]

        self.compiler.compile = compile_all
        super().build_extensions()

    def run(self) -> None:
        made = {Path(self.get_ext_filename(one.name)): one for one in self.extensions}
        folders = [Path(self.build_lib), *([HERE] if self.inplace else [])]
        for folder in folders:
            for package in PACKAGES:
                for path in (folder / package).rglob("*.so"):
                    if path.relative_to(folder) not in made:
                        path.unlink()
        for path, one in made.items():
            there = Path(self.build_lib) / path
            if there.exists() and newer_group([*one.sources, *one.depends], str(there)):
                there.unlink()  # so that none is left where the new one can't be made
        super().run()
        group = Path(self.get_ext_filename(f"{GROUP}__mypyc"))
        if not all((Path(self.build_lib) / path).exists() for path in made):
            print("Quorate is installed interpreted: the C compiler failed, see above", file=sys.stderr)
            for path in made:
                (Path(self.build_lib) / path).unlink(missing_ok=True)
            return
        print(f"Quorate is compiled: {len(MODULES)} modules", file=sys.stderr)
        if self.inplace:
            os.utime(HERE / group)  # it is what these sources make, also where that was the same as before


class BuildFiles(build_py):
    """Leaves no file in what is built that is not there any more."""

    def run(self) -> None:
        folder = Path(self.build_lib)
        for path in folder.rglob("*.py"):
            if not (HERE / path.relative_to(folder)).exists():
                path.unlink()
        super().run()


made = extensions()
setup(ext_modules=made, cmdclass={"build_py": BuildFiles} | ({"build_ext": Build} if made else {}))
