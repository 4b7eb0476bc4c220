"""What a request passes is compiled: a module that was forgotten runs, and nothing but its slowness says so."""

from pathlib import Path
from typing import Final

from quorate_compiled import MODULES, source_of

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("actors/queues", "actors/shard", "storage")
OF_STRUCTS: Final = {
    *("storage.blocks", "storage.entry", "storage.records", "storage.kinds", "storage.topic_rows", "storage.vote_file"),
}
"""They define Structs or tables of them, which mypyc leaves to the interpreter."""
OF_TOPICS: Final = {"storage.block_rows", "storage.producers", "storage.topic_loading"}
"""What appends and reads of topics pass, and queues do not: interpreted. Compiled, producers and blocks come back from
msgpack with other types than they are declared with."""
SELDOM: Final = {
    "actors.queues.machines",
    "actors.shard.failed_calls",
    "storage.disk",
    "storage.errors",
    "storage.facts",
    "storage.log_reader",
    "storage.renewal",
    "storage.repair",
    "storage.sections",
    "storage.snapshot_check",
}
"""No request passes them: contracts, errors, and what is done at a start, for a reader of the log or a trim."""


def test_all_modules_are_compiled_but_those_that_are_named() -> None:
    there = {
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for folder in FOLDERS
        for path in (ROOT / folder).glob("*.py")
        if path.stem != "__init__"
    }
    assert there - set(MODULES) == OF_STRUCTS | OF_TOPICS | SELDOM


def test_each_module_that_is_to_be_compiled_is_there() -> None:
    assert [module for module in MODULES if not (ROOT / source_of(module)).exists()] == []
