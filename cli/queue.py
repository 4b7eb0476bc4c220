"""qctl queue: look at queues and steer them."""

import time
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET

from cli.output import (
    AsJson,
    Yes,
    asking,
    client,
    console,
    fail,
    make_sure,
    print_json,
    print_table,
    without_escapes,
)
from quorate import RefusedError

app = typer.Typer(help="Look at queues and steer them.", no_args_is_help=True)

PAUSES = ("in", "out", "all", "none")
COLUMNS = ["queue", "size", "ready", "delayed", "in_flight", "wait_status", "max_size", "paused"]
Name = Annotated[str, typer.Argument(help="The queue.")]


@app.command()
@asking
def ls(
    pattern: Annotated[str | None, typer.Option("--pattern", help="Shell wildcards, or a part of the name.")] = None,
    sort: Annotated[str | None, typer.Option(help="By what: ready, oldest, dead_letters, produced...")] = None,
    descending: Annotated[bool, typer.Option("--descending", help="The greatest first.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="So many at most.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also system queues: results, bindings.")] = False,
    as_json: AsJson = False,
) -> None:
    """List queues with their counts, in the order of their names or of what they are sorted by."""
    rows: list[dict[str, Any]] = []
    incomplete: RefusedError | None = None
    with client() as connection:
        try:
            found = connection.queue_rows(pattern, sort=sort, descending=descending, system=everything)
            rows.extend(msgspec.to_builtins(row) for row in islice(found, limit))
        except RefusedError as refused:
            incomplete = refused
    columns = COLUMNS if sort is None or sort in ("name", *COLUMNS) else [*COLUMNS, sort]
    if as_json:
        for row in rows:
            print_json({COLUMNS[0]: row["name"], **row})
    elif rows or incomplete is None:
        print_table(columns, [[row["name"], *(_cell(row, column) for column in columns[1:])] for row in rows])
    if incomplete is not None:
        raise incomplete


def _cell(row: dict[str, Any], column: str) -> Any:
    """Show what stands there: an age for `oldest`, and what is left out is 0, or not known."""
    value = row.get(column, row.get("totals", {}).get(column, ""))
    return f"{max(time.time() - value, 0):.1f} s" if column == "oldest" and value else value


@app.command()
@asking
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one queue's counts; nothing is made or changed."""
    with client() as connection:
        reply: dict[str, Any] = {**connection.monitor(name)}
    if as_json:
        print_json(reply)
    else:
        print_table(COLUMNS, [[reply[column] for column in COLUMNS]])


@app.command()
@asking
def configure(
    name: Name,
    max_size: Annotated[int | None, typer.Option(help="Messages it takes; 0: no limit.")] = None,
    default_ttl: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    default_retry: Annotated[float | None, typer.Option(help="Seconds; 0: at most once.")] = None,
    max_deliveries: Annotated[int | None, typer.Option(help="0: no limit.")] = None,
    dead_letter: Annotated[str | None, typer.Option(help="A queue's name; empty: none.")] = None,
    expires_after: Annotated[
        float | None, typer.Option(help="Seconds; it goes when nobody has used it for so long. 0: never.")
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Accept but do not deliver.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Deliver again.")] = False,
    paused: Annotated[str | None, typer.Option(help="in, out, all or none: what is not to go on.")] = None,
    system: Annotated[
        bool | None, typer.Option("--system/--no-system", help="Whether lists leave it out unless asked.")
    ] = None,
) -> None:
    """Change a queue's settings, and show all of them. A queue that is not there is made."""
    if [pause, resume, paused is not None].count(True) > 1:
        raise fail("--pause, --resume and --paused exclude each other")
    if paused is not None and paused not in PAUSES:
        raise fail(f"--paused: {paused!r} is none of {', '.join(PAUSES)}")
    word: bool | str | None = True if pause else False if resume else paused
    changes = (max_size, default_ttl, default_retry, max_deliveries, dead_letter, word, expires_after, system)
    if all(change is None for change in changes):
        raise fail("no setting is named, so there is nothing to change; qctl queue show shows a queue")
    with client() as connection:
        settings = connection.configure(
            name,
            max_size=max_size,
            default_ttl=default_ttl,
            default_retry=default_retry,
            max_deliveries=max_deliveries,
            dead_letter=UNSET if dead_letter is None else dead_letter,
            paused=word,
            expires_after=expires_after,
            system=system,
        )
    columns = ["queue", "max_size", "default_ttl", "default_retry", "max_deliveries", "dead_letter", "paused"]
    columns += ["expires_after", "system"]
    print_table(columns, [[name, *(getattr(settings, column) for column in columns[1:])]])


@app.command()
@asking
def clear(name: Name, yes: Yes = False) -> None:
    """Remove all messages of a queue. It asks first, on a terminal."""
    with client() as connection:
        if not yes:
            make_sure(f"clear the queue {without_escapes(name)} with {connection.monitor(name)['size']} messages")
        console.print(f"{connection.clear(name)} messages removed from {name}")


@app.command()
@asking
def remove(name: Name, yes: Yes = False) -> None:
    """Remove a queue and all in it. It asks first, on a terminal."""
    with client() as connection:
        if not yes:
            make_sure(f"remove the queue {without_escapes(name)} with {connection.monitor(name)['size']} messages")
        console.print(f"{name} removed with {connection.remove(name)} messages")
