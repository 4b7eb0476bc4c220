"""What a reader has to hold in mind at once is bounded: attributes and methods of a class, parameters, lines of a file.

Parameters that can only be given by their names do not count, nor do options of commands.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.lines import lines_of_code

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("actors", "net", "quorate", "storage", "data", "console")
ATTRIBUTES, METHODS, PARAMETERS, LINES = 16, 30, 6, 600

DOORS: Final = {"quorate/Client", "quorate/AsyncClient", "quorate/Channel"}
"""They have a method for each thing that an application (or kombu) asks: those do not count."""

MADE_FOR_EACH_MESSAGE: Final = {"Message", "Kept"}
"""Its fields are its parameters, by place: keywords cost as much again."""

OF_NO_MODULE: Final = {"test_session_kit"}
"""Tests of what tests use."""


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def own_functions(kind: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [one for one in kind.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def attributes(kind: ast.ClassDef) -> set[str]:
    stored = [one for function in own_functions(kind) for one in ast.walk(function) if isinstance(one, ast.Attribute)]
    of_self = [one for one in stored if isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name)]
    return {one.attr for one in of_self if isinstance(one.value, ast.Name) and one.value.id == "self"}


def test_a_class_has_few_attributes_and_methods() -> None:
    sizes = {
        f"{path.parent.name}/{kind.name}": (len(attributes(kind)), len(own_functions(kind)))
        for path, tree in trees()
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef)
    }
    over = {
        name: size for name, size in sizes.items() if size[0] > ATTRIBUTES or (size[1] > METHODS and name not in DOORS)
    }
    assert over == {}


def test_a_function_has_few_parameters_that_are_given_by_place() -> None:
    over = []
    for path, tree in trees():
        for kind in ast.walk(tree):
            if not isinstance(kind, ast.ClassDef | ast.Module) or getattr(kind, "name", "") in MADE_FOR_EACH_MESSAGE:
                continue
            for one in kind.body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                    names = [
                        arg.arg for arg in [*one.args.posonlyargs, *one.args.args] if arg.arg not in ("self", "cls")
                    ]
                    if len(names) > PARAMETERS:
                        over.append(f"{path.name}: {one.name} takes {len(names)}")
    assert over == []


def test_a_file_is_not_long() -> None:
    files = [path for folder in (*FOLDERS, "cli", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in files if len(path.read_text().splitlines()) > LINES] == []


def test_tests_are_found_by_the_name_of_their_module() -> None:
    """A test of a room's module is called after it, and may say of what: `test_broker_jobs.py`."""
    lost = []
    for room in [ROOT / "quorate", ROOT / "storage", *(ROOT / "actors").iterdir(), *(ROOT / "net").iterdir()]:
        modules = tuple(f"test_{path.stem.strip('_')}" for path in room.glob("*.py"))
        tests = (ROOT / "tests" / room.relative_to(ROOT)).glob("test_*.py")
        lost += [path.stem for path in tests if path.stem not in OF_NO_MODULE and not path.stem.startswith(modules)]
    assert lost == []


def test_a_line_counts_if_a_token_stands_on_it_that_is_no_comment_and_no_docstring(tmp_path: Path) -> None:
    lines = ['"""What it is.', "", 'More."""', "", "X = (  # why", "    1,", "", "    2,", ")", "", "def f():"]
    lines += ['    """Do."""', '    return """a', "", 'b"""', "# the end"]
    file = tmp_path / "some.py"
    file.write_text("\n".join(lines))
    assert lines_of_code(file) == 4 + 1 + 3
