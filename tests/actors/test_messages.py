"""The tables of messages are true: each stands in one, and who sends and takes it is what the code does."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Final, get_args

import msgspec

import actors.messages
from actors.messages import mailboxes

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


ROOT: Final = Path(actors.__file__).parent
ACTORS: Final = ("LoopActor", "BlockingActor")
PARTS: Final = {"LogWriter": "Replicator", "WriteWays": "Replicator", "_Stopper": "Stopper"}
"""Whose table of handlers is another's, or who is called otherwise."""

THE_WORKER: Final = "the worker"
ANSWERS: Final = "send_answers"
"""By this function `Answered` is said."""


class Code:
    """What the modules of actors say: who `takes` a message, by its table of handlers, and who `sends` it.

    A module belongs to each actor that reaches it by imports within its room; so what it makes, that actor sends.
    """

    def __init__(self) -> None:
        trees = {_module(path): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
        self.messages = {name for module in MODULES for name in defined_in(module)}
        self.bases: dict[str, list[str]] = {}
        self.takes: dict[str, set[str]] = {name: set() for name in self.messages}
        self.sends: dict[str, set[str]] = {name: set() for name in self.messages}
        hosts: dict[str, set[str]] = {}
        for module, tree in trees.items():
            for found in ast.walk(tree):
                if isinstance(found, ast.ClassDef):
                    self._look_at(found, hosts.setdefault(module, set()))
        hosts = {module: named for module, named in hosts.items() if named}
        for module, named in self._owners(trees, hosts).items():
            for name in self._made_in(trees[module]):
                self.sends[name] |= named

    def _look_at(self, kind: ast.ClassDef, hosts: set[str]) -> None:
        bases = [ast.unparse(base) for base in kind.bases]
        if not any(base.split("[")[0] in ACTORS for base in bases) and kind.name not in PARTS:
            return
        actor = PARTS.get(kind.name, kind.name)
        self.bases[actor] = bases or self.bases.get(actor, [])
        hosts.add(actor)
        keys = [key for one in ast.walk(kind) if isinstance(one, ast.Dict) for key in one.keys]
        named = [one.id for one in keys if isinstance(one, ast.Name)]
        if kind.name == "Auditor":  # it takes one kind, and has no table
            named = [one.id for one in ast.walk(kind) if isinstance(one, ast.Name)]
        for name in self.messages.intersection(named):
            self.takes[name].add(actor)

    def _owners(self, trees: dict[str, ast.Module], hosts: dict[str, set[str]]) -> dict[str, set[str]]:
        owners: dict[str, set[str]] = {}
        for module, named in hosts.items():
            seen, todo = {module}, [module]
            while todo:
                for one in _imported(trees[todo.pop()]):
                    if one in trees and one not in seen | hosts.keys() and _room(one) == _room(module):
                        seen.add(one)
                        todo.append(one)
            for one in seen:
                owners.setdefault(one, set()).update({THE_WORKER} if _room(one) == "actors.node" else named)
        return owners

    def _made_in(self, tree: ast.Module) -> set[str]:
        called = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
        named = {one.id for one in called if isinstance(one, ast.Name)}
        return (named & self.messages) | ({"Answered"} if ANSWERS in named else set())


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _imported(tree: ast.Module) -> set[str]:
    return {one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and one.module}


def _actors_in(cell: str) -> set[str]:
    return {one.strip() for one in cell.split(",")}


CODE: Final = Code()


def test_who_sends_and_takes_a_message_is_what_its_table_says() -> None:
    for module in MODULES:
        rows = [line for line in (inspect.getdoc(module) or "").splitlines() if line.startswith("| ")]
        for row in rows[1:]:
            named, senders, takers, _ = (cell.strip() for cell in row.split("|")[1:5])
            for name in _actors_in(named):
                sent_by, taken_by = CODE.sends[name], CODE.takes[name] or set()
                taken_by = {THE_WORKER if one == "Stopper" else one for one in taken_by}
                if takers == "the other":
                    assert len(sent_by) == len(taken_by) == 1, (name, sent_by, taken_by)
                    assert sent_by | taken_by == _actors_in(senders), (name, sent_by, taken_by)
                    continue
                assert taken_by == _actors_in(takers), (name, taken_by)
                for_itself = taken_by - _actors_in(senders)  # as a value, not as a message
                assert sent_by - for_itself == _actors_in(senders), (name, sent_by)


def test_a_mailbox_takes_what_its_actor_does() -> None:
    named = {name.removeprefix("To"): kinds for name, kinds in vars(mailboxes).items() if name.startswith("To")}
    assert named.keys() == {actor for takers in CODE.takes.values() for actor in takers}
    for actor, kinds in named.items():
        listed = {kind.__name__ for kind in get_args(kinds) or (kinds,)}
        assert listed == {name for name, takers in CODE.takes.items() if actor in takers}, actor
        if CODE.bases.get(actor, []) not in ([], ["BlockingActor"]):
            assert CODE.bases[actor] == [f"LoopActor[To{actor}]"], "what its mailbox is typed by where actors meet"


def test_every_message_is_sent_and_taken() -> None:
    assert [name for name in CODE.messages if not CODE.sends[name] or not CODE.takes[name]] == []
