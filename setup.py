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
from setuptools._distutils._modified import newer_group
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.errors import CCompilerError, DistutilsError
from setuptools._distutils.sysconfig import customize_compiler
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # a build does not begin with the folder it builds

from quorate_compiled import GROUP, MODULES, PACKAGES, VARIABLE, source_of  # noqa: E402

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
        made = mypycify([source_of(module) for module in MODULES], group_name=GROUP, opt_level="1", debug_level="0")
    except (Exception, SystemExit) as error:
        if is_strict:
            raise
        print(f"Quorate is installed interpreted: mypyc does not take it ({error}; see above)", file=sys.stderr)
        return []
    for extension in made:
        extension.optional = not is_strict
        # gcc's warnings about generated code take half of the time; what nobody else sees is called without a detour
        extension.extra_compile_args.extend(["-Wno-all", "-fvisibility=hidden"])
    return made


class Build(build_ext):
    """Leaves nothing behind of what was compiled before, and says what came of it."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True  # all code is in one file; beside it, each module has a small one

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
