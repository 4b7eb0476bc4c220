"""Every message that actors send stands in the table of exactly one conversation."""

import importlib
import inspect
import pkgutil
import re

import msgspec

import actors.messages

MODULES = [importlib.import_module(f"actors.messages.{m.name}") for m in pkgutil.iter_modules(actors.messages.__path__)]


def named_in(module: object) -> list[str]:
    """The messages in the first column of a module's table."""
    rows = [line for line in (inspect.getdoc(module) or "").splitlines() if line.startswith("| ")]
    return [name for row in rows[1:] for name in re.findall(r"\w+", row.split("|")[1])]


def defined_in(module: object) -> list[str]:
    """The messages that a module defines."""
    found = inspect.getmembers(module, lambda one: isinstance(one, type) and issubclass(one, msgspec.Struct))
    return [name for name, kind in found if kind.__module__ == getattr(module, "__name__", "")]


def test_every_message_stands_in_the_table_of_its_own_module_alone() -> None:
    for module in MODULES:
        assert sorted(named_in(module)) == sorted(defined_in(module)), module.__name__
    everywhere = [name for module in MODULES for name in named_in(module)]
    assert len(everywhere) == len(set(everywhere))
