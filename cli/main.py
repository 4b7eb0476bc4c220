"""The qctl command: its groups."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

import quorate_compiled
from quorate.version import VERSION

GROUPS: Final = ("node", "cluster", "queue", "access", "msg", "log", "config", "data")
"""The modules of this package whose `app` has the commands behind their names, as the help lists them."""
ALONE: Final = ("bench", "console")
"""Those that are one command each."""


class Commands(MutableMapping[str, Any]):
    """What qctl has, by name: a module is imported when its name is asked for, as most calls are of one of them."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = dict.fromkeys(GROUPS + ALONE)

    def __getitem__(self, name: str) -> Any:
        made = self._made[name]
        if made is None:
            app = import_module(f"cli.{name}").app
            made = self._made[name] = get_group(app) if name in GROUPS else get_command(app)
            made.name = name
        return made

    def __setitem__(self, name: str, made: Any) -> None:
        self._made[name] = made

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class Groups(TyperGroup):
    """The command itself, with `Commands`."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.commands = Commands()


app = typer.Typer(
    cls=Groups,
    help="Quorate's command line: run a node, look at its queues, steer them.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"qctl {VERSION}, {quorate_compiled.running()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Which one.")] = False,
) -> None:
    """Quorate's command line: run a node, look at its queues, steer them."""


def main() -> None:
    """Run qctl."""
    app()
