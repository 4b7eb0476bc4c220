"""How qctl speaks: tables and lines for people, JSON lines with --json, faults to standard error with exit code 1."""

import inspect
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, ParamSpec, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from actors.node.config_file import ConfigError
from actors.node.data_folder import HeldError
from quorate import Client, QuorateError, RefusedError
from quorate.credentials import Credentials
from quorate.nodes import Address, node_address
from quorate.protocol import ErrorWord
from quorate.urls import PORT_VARIABLE, found
from storage.errors import StorageError

console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
UNWELL: Final = 3
"""The exit code of a status that tells of something that does not work."""
NOTHING_THERE: Final = 3
"""The exit code that tells "there is none" from a wrong option (2) and a fault (1)."""
NOT_THERE: Final = frozenset(
    {
        ErrorWord.NO_SUCH_QUEUE,
        ErrorWord.NO_SUCH_MESSAGE,
        ErrorWord.NO_SUCH_READER,
        ErrorWord.NO_SUCH_TOPIC,
        ErrorWord.NO_SUCH_GROUP,
    }
)
"""The refusals that say that what the command names is not there."""

NO_NODE: Final = ": no node listens there; `qctl node start` starts one, --host and --port name another"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask: for scripts.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def was_refused(error: object) -> bool:
    """Whether the system of the other end has refused the connection: no program listens at that address."""
    seen: set[int] = set()
    while isinstance(error, Exception) and id(error) not in seen:  # an error that was raised again is its own cause
        if isinstance(error, ConnectionRefusedError):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False


def fail(reason: object) -> typer.Exit:
    """Print the reason on standard error; the caller raises what is returned."""
    print(f"qctl: {reason}{NO_NODE if was_refused(reason) else ''}", file=sys.stderr)
    is_none = isinstance(reason, RefusedError) and reason.error in NOT_THERE
    return typer.Exit(NOTHING_THERE if is_none else 1)


Host = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="The node's address, or an URL (quorate://...); else QUORATE_URL, QUORATE_HOST, 127.0.0.1.",
        show_default=False,
    ),
]
Port = Annotated[
    int | None,
    typer.Option("--port", help="The node's port; else QUORATE_PORT, 1111.", show_default=False),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar="QUORATE_TOKEN_FILE", help="A file with the token; else QUORATE_TOKEN has it."),
]
Tls = Annotated[bool, typer.Option("--tls", envvar="QUORATE_TLS", help="Speak TLS.")]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", envvar="QUORATE_CA", help="The authority that the node's certificate is of; speaks TLS."),
]
OF_A_NODE: Final = {
    "host": (Host, None),
    "port": (Port, None),
    "token_file": (TokenFile, None),
    "tls": (Tls, False),
    "ca": (Ca, None),
}
"""The options that every command has which asks a node: which one, and what is shown to it."""

OTHERS: Final = 0o077
"""Of a file's mode: what those may who do not own it."""

_asked: ContextVar[tuple[list[Address], Credentials]] = ContextVar("asked")
"""What a command's options say: it has none before `asking` has read them, and a thread has what it is given."""


def speaking(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a command whose expected errors become one line and exit code 1, or 3 where what it names is not there."""

    @wraps(command)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return command(*arguments, **named)
        except BrokenPipeError:  # of standard output, whose reader has what it wants: typer ends this silently
            raise
        except (QuorateError, ConfigError, StorageError, HeldError, OSError, UnicodeError, ValueError) as error:
            raise fail(error) from error

    return run


def asking(command: Callable[..., Result]) -> Callable[..., Result]:
    """Make a command that asks a node, as `speaking` does: it has the options of `OF_A_NODE`; `client` goes by them."""
    signature = inspect.signature(command)

    @speaking
    @wraps(command)
    def run(*arguments: Any, **named: Any) -> Result:
        given: list[Any] = [named.pop(name, default) for name, (_, default) in OF_A_NODE.items()]
        _asked.set(_who_is_asked(*given))
        return command(*arguments, **named)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in OF_A_NODE.items()
    ]
    read_by_typer: Any = run
    read_by_typer.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])
    run.__annotations__ = {**run.__annotations__, **{name: kind for name, (kind, _) in OF_A_NODE.items()}}
    return run


def _who_is_asked(
    host: str | None, port: int | None, token_file: Path | None, tls: bool, ca: Path | None
) -> tuple[list[Address], Credentials]:
    """Read the options of `OF_A_NODE`, and for what they leave out the environment. Raises ValueError."""
    try:
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
        if token_file is not None and token_file.stat().st_mode & OTHERS:
            told_error(f"warning: {token_file} can be read by others: chmod 600 {token_file}")
    except OSError as error:
        raise ValueError(f"--token-file {token_file}: {error.strerror}") from error
    if host is not None and "://" in host and ":" in host.partition("://")[2].rpartition("@")[0]:
        told_error(
            "warning: a token on the command line is seen by all who list this machine's processes: put it into "
            "--token-file, QUORATE_TOKEN or QUORATE_URL"
        )
    if token is not None and not token:
        raise ValueError(f"{token_file} holds no token")
    shown = Credentials.of(token, tls=tls, ca=ca)
    beside = os.environ.get(PORT_VARIABLE)  # the library goes by it with QUORATE_HOST alone; here it fills in, as ever
    if host is not None and port is None and beside and "://" not in host:
        if not beside.isdigit():
            raise ValueError(f"{PORT_VARIABLE} is {beside!r}: a number from 1 to 65535 is wanted")
        return [node_address(host, int(beside))], shown
    return found(host, port, None, shown)


def told_error(text: str) -> None:
    """Say something beside a command's output."""
    typer.echo(f"qctl: {text}", err=True)


def make_sure(what: str) -> None:
    """Ask a person whether that is to be done. Raises typer.Exit: 2 where nobody can be asked."""
    if not sys.stdin.isatty():
        told_error(f"{what}? Nobody can be asked here: --yes does it")
        raise typer.Exit(2)
    if not typer.confirm(f"{what}?"):
        console.print("nothing was done")
        raise typer.Exit(1)


def asked_nodes() -> list[Address]:
    """Give the addresses that the command is to ask one of."""
    return _asked.get()[0]


def shown_asked() -> str:
    """Give them as a person reads them."""
    return ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in asked_nodes())


def credentials() -> Credentials:
    """Read what the command's options say that this client shows."""
    return _asked.get()[1]


def client(timeout: float = 10.0) -> Client:
    """Open a client of the node that the options name. Where nobody listens there is nothing to wait for."""
    return Client(nodes=asked_nodes(), timeout=timeout, credentials=credentials(), retry_connect=False)


def client_at(host: str, port: int, timeout: float) -> Client:
    """Open one of another node, to which the same is shown."""
    return Client(host, port, timeout=timeout, credentials=credentials(), retry_connect=False)


def without_escapes(text: str) -> str:
    """Make a message's text what a terminal may show: control characters would move its cursor, or worse."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def print_json(value: Any) -> None:
    """One line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_table(columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table: texts left, numbers right; its header even when it has no rows.

    In a pipe a row is a line, however long, and a tab stands between its cells: for grep, cut and awk.
    """
    if not console.is_terminal:
        for row in (columns, *rows):
            print("\t".join([_line(_cell(value)) for value in row]))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and isinstance(rows[0][index], int | float) and not isinstance(rows[0][index], bool)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(without_escapes(_cell(value))) for value in row))
    console.print(table)


def _line(text: str) -> str:
    return text.replace("\t", " ").replace("\r", " ").replace("\n", " ")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return "" if value is None else str(value)
