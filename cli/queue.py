"""qctl queue: look at queues and steer them."""

import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
import typer
from msgspec import UNSET

from cli.completing import queue_names
from cli.dead import dead, move
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
from cli.quantities import clock, duration, written
from quorate import Client, RefusedError
from quorate.protocol import Action
from quorate.queue_replies import QueueRow, QueueSettings

app = typer.Typer(help="Look at queues and steer them.", no_args_is_help=True)

PAUSES = ("in", "out", "all", "none")
COLUMNS: Final = (
    "queue",
    "size",
    "ready",
    "delayed",
    "in_flight",
    "oldest",
    "in/s",
    "out/s",
    "dead",
    "consumers",
    "paused",
)
OF_ROW: Final = {"in/s": "came", "out/s": "left", "dead": "dead_letters", "consumers": "wait_status", "queue": "name"}
CAME: Final = ("produced", "arrived")
LEFT: Final = ("confirmed", "taken", "expired", "buried", "moved", "cleared")
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"
NOT_KNOWN: Final = "-"
Name = Annotated[str, typer.Argument(help="The queue.", autocompletion=queue_names)]


@app.command()
@asking
def ls(
    pattern: Annotated[str | None, typer.Option("--pattern", help="Shell wildcards, or a part of the name.")] = None,
    sort: Annotated[str | None, typer.Option(help="By what: ready, oldest, dead_letters, produced...")] = None,
    descending: Annotated[bool, typer.Option("--descending", help="The greatest first.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="So many at most.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also system queues: results, bindings.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(parser=duration, metavar="DURATION", help="With --watch: so often.", show_default="2s")
    ] = 2.0,
    as_json: AsJson = False,
) -> None:
    """List queues with their counts, in the order of their names or of what they are sorted by.

    oldest: for how long the message that is ready for longest is so. in/s, out/s: messages that came and left in a
    second, where somebody has looked before. dead: its dead letters, where it has a queue for them.
    """
    columns = [*COLUMNS]
    if sort is not None and sort not in ("name", "size", *OF_ROW.values(), *COLUMNS):
        columns.append(sort)
    asked = {"sort": sort, "descending": descending, "system": everything, "full": True}
    before: dict[str, QueueRow] = {}
    with client() as connection, suppress(KeyboardInterrupt):
        while True:
            asked_at = time.time()
            rows, incomplete = _rows(connection, pattern, limit, asked)
            for row in rows:
                _rate(row, before.get(row.name), interval)
            if as_json:
                for row in rows:
                    print_json({"queue": row.name, **msgspec.to_builtins(row)})
            elif rows or incomplete is None:
                if watch and console.is_terminal:
                    print(CLEAR_SCREEN, end="")
                print_table(columns, [[_cell(row, column) for column in columns] for row in rows])
            if incomplete is not None:
                raise incomplete
            if not watch:
                return
            before = {row.name: row for row in rows}
            if not as_json and not console.is_terminal:
                print(flush=True)
            time.sleep(max(asked_at + interval - time.time(), 0))


def _rows(
    connection: Client, pattern: str | None, limit: int | None, asked: dict[str, Any]
) -> tuple[list[QueueRow], RefusedError | None]:
    """Give the rows, and why some may be missing."""
    rows: list[QueueRow] = []
    try:
        rows.extend(islice(connection.queue_rows(pattern, **asked), limit))
    except RefusedError as refused:
        return rows, refused
    return rows, None


def _rate(row: QueueRow, before: QueueRow | None, seconds: float) -> None:
    """Make its rates those since the look before; not where another leader counts now."""
    if row.totals is None or before is None or before.totals is None or before.totals.since != row.totals.since:
        return
    row.came = max(_sum(row, CAME) - _sum(before, CAME), 0) / seconds
    row.left = max(_sum(row, LEFT) - _sum(before, LEFT), 0) / seconds


def _sum(row: QueueRow, names: Iterable[str]) -> int:
    return sum(getattr(row.totals, name) for name in names)


def _cell(row: QueueRow, column: str) -> Any:
    """Show what stands there: an age for `oldest`; what is not known, or there is none of, is a dash."""
    name = OF_ROW.get(column, column)
    value = getattr(row, name) if hasattr(row, name) else getattr(row.totals, name, None)
    if name == "oldest":
        return written(max(time.time() - value, 0)) if value else NOT_KNOWN
    if value is None:
        return NOT_KNOWN
    return round(value, 1) if isinstance(value, float) else value


@app.command()
@asking
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one queue's counts, its settings, and what has become of its messages; nothing is made or changed."""
    with client() as connection:
        reply = {**connection.request(Action.MONITOR, queue=name, full=True)}
    if as_json:
        print_json(reply)
        return
    row = msgspec.convert(reply["row"], QueueRow)
    settings = msgspec.convert(reply["settings"], QueueSettings)
    print_table([*COLUMNS], [[_cell(row, column) for column in COLUMNS]])
    console.print()
    print_table(["setting", "value"], [[key, value] for key, value in said_settings(settings).items()])
    if row.totals is not None:
        console.print()
        console.print(f"since {clock(row.totals.since)}, when its leader began to lead:")
        totals = {key: value for key, value in msgspec.structs.asdict(row.totals).items() if key != "since"}
        print_table(["total", "messages"], [[key, value] for key, value in totals.items()])


def said_settings(settings: QueueSettings) -> dict[str, str]:
    """Write a queue's settings for people."""
    return {
        "max_size": f"{settings.max_size}" if settings.max_size else "any",
        "default_ttl": written(settings.default_ttl),
        "default_retry": written(settings.default_retry) if settings.default_retry else "0s: delivered at most once",
        "max_deliveries": f"{settings.max_deliveries}" if settings.max_deliveries else "any",
        "dead_letter": settings.dead_letter or "none: what is dead is dropped",
        "paused": "no" if settings.paused is False else "yes" if settings.paused is True else settings.paused,
        "expires_after": written(settings.expires_after) if settings.expires_after else "never",
        "system": "yes" if settings.system else "no",
    }


@app.command()
@asking
def configure(
    name: Name,
    max_size: Annotated[int | None, typer.Option(help="Messages it takes; 0: no limit.")] = None,
    default_ttl: Annotated[
        float | None, typer.Option(parser=duration, metavar="DURATION", help="Of messages that name none: 1h30m.")
    ] = None,
    default_retry: Annotated[
        float | None, typer.Option(parser=duration, metavar="DURATION", help="The same; 0: at most once.")
    ] = None,
    max_deliveries: Annotated[int | None, typer.Option(help="0: no limit.")] = None,
    dead_letter: Annotated[str | None, typer.Option(help="A queue's name; empty: none.")] = None,
    expires_after: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="DURATION", help="It goes when nobody has used it so long. 0: never."),
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Accept but do not deliver.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Deliver again.")] = False,
    paused: Annotated[str | None, typer.Option(help="in, out, all or none: what is not to go on.")] = None,
    system: Annotated[
        bool | None, typer.Option("--system/--no-system", help="Whether lists leave it out unless asked.")
    ] = None,
    as_json: AsJson = False,
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
    if as_json:
        print_json({"queue": name, **msgspec.to_builtins(settings)})
        return
    print_table(["setting", "value"], [[key, value] for key, value in said_settings(settings).items()])


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


app.command()(dead)
app.command()(move)
