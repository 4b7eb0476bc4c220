"""The qctl command: its groups."""

from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

import quorate_compiled
from quorate.version import VERSION

GROUPS: Final = ("node", "cluster", "queue", "topic", "group", "client", "access", "msg", "log", "config", "data")
"""The modules of this package whose `app` has the commands behind their names, as the help lists them."""
ALONE: Final = ("health", "bench", "console")
"""Those that are one command each."""


class Groups(TyperGroup):
    """What qctl has, by name: a module is imported when its name is asked for, as a call is of one of them."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.commands: Any = dict[str, Any].fromkeys((*GROUPS, *ALONE))

    def list_commands(self, ctx: Any) -> list[str]:
        """Give the names, in the order of the help."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import what stands behind a name; None if there is nothing."""
        if cmd_name not in self.commands:
            return None
        made: Any = self.commands[cmd_name]
        if made is None:
            behind = import_module(f"cli.{cmd_name}").app
            made = self.commands[cmd_name] = get_group(behind) if cmd_name in GROUPS else get_command(behind)
            made.name = cmd_name
        return made


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
