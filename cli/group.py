"""qctl group: who reads a topic, how far behind, and where it goes on."""

from typing import Annotated

import typer

from cli.output import AsJson, asking, client, console, fail, print_json, print_table
from cli.quantities import start
from cli.topic import print_groups, shown_time

app = typer.Typer(help="The groups that read a topic: who, how far, and where they go on.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="The topic.")]
Name = Annotated[str, typer.Argument(help="The group.")]
Force = Annotated[bool, typer.Option("--force", help="Also while members read.")]


@app.command()
@asking
def ls(topic: Topic, as_json: AsJson = False) -> None:
    """List a topic's groups, with how far behind each is, in messages and seconds."""
    with client() as connection:
        rows = connection.groups(topic)
    if as_json:
        for row in rows:
            print_json(row)
        return
    table = [
        [row.group, row.members, row.lag, "" if row.lag_s is None else row.lag_s, shown_time(row.at)] for row in rows
    ]
    print_table(["group", "members", "lag", "lag_s", "last_commit"], table)


@app.command()
@asking
def show(topic: Topic, name: Name, as_json: AsJson = False) -> None:
    """Show where a group is in each partition, and which member reads it."""
    with client() as connection:
        row = connection.group(topic, name)
    if as_json:
        print_json(row)
    else:
        print_groups([row])


@app.command()
@asking
def reset(
    topic: Topic,
    name: Name,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an OFFSET, 10m (ago), or a time: 2026-05-01T12:00.")
    ],
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    force: Force = False,
) -> None:
    """Have a group go on elsewhere: back, to read again, or forward. Refused while members read, unless forced."""
    where = start(to)
    if isinstance(where, int) and partition is None:
        raise fail(f"--to {where} is an offset of one partition: --partition says which")
    with client() as connection:
        positions = connection.reset_group(topic, name, where, partition=partition, force=force)
    print_table(["partition", "position"], [[index, at] for index, at in sorted(positions.items())])


@app.command()
@asking
def remove(topic: Topic, name: Name, force: Force = False) -> None:
    """Remove a group with its positions: one that reads under its name again begins anew."""
    with client() as connection:
        connection.remove_group(topic, name, force=force)
    console.print(f"{name} of {topic} removed")
