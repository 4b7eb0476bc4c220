"""How qctl speaks: tables and lines for people, JSON lines with --json, faults to standard error with exit code 1."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Final, ParamSpec, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from actors.node.config import ConfigError
from actors.node.node_lock import HeldError
from quorate import Client, QuorateError
from storage.errors import StorageError

console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
UNWRAPPED: Final = 100_000
UNWELL: Final = 3
"""The exit code of a status that tells of something that does not work."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Host = Annotated[str, typer.Option("--host", envvar="QUORATE_HOST", help="The node's address.")]
Port = Annotated[int, typer.Option("--port", envvar="QUORATE_PORT", help="The node's port.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def fail(reason: object) -> typer.Exit:
    """Say why on standard error; raise what is returned."""
    print(f"qctl: {reason}", file=sys.stderr)
    return typer.Exit(1)


def speaking(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A command whose expected errors become one line and exit code 1."""

    @wraps(command)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return command(*arguments, **named)
        except (QuorateError, ConfigError, StorageError, HeldError, OSError, UnicodeError, ValueError) as error:
            raise fail(error) from error

    return run


def client(host: str, port: int) -> Client:
    """A client of the node that the options name."""
    return Client(host, port)


def without_escapes(text: str) -> str:
    """A message's text as a terminal may show it: control characters would move its cursor, or worse."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def print_json(value: Any) -> None:
    """One line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_table(columns: list[str], rows: list[list[Any]]) -> None:
    """A table: texts left, numbers right; its header even when it has no rows."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and isinstance(rows[0][index], int | float) and not isinstance(rows[0][index], bool)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    if console.is_terminal:
        console.print(table)
    else:  # for grep and awk: a row is a line
        Console(highlight=False, markup=False, emoji=False, width=UNWRAPPED).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
