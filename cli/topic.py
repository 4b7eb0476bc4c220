"""qctl topic: make topics, append to them, read and steer them."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer

from cli.message_view import text_of
from cli.msg import headers_of, value_of
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
    told_error,
    without_escapes,
)
from cli.quantities import seconds, size, start
from quorate import Client, RefusedError, TopicMessage
from quorate.stream_replies import GroupRow, PartitionRow, PreparedRow, TopicRow
from quorate.streams import EARLIEST, TopicView

app = typer.Typer(help="Topics: messages that stay, and are read by groups.", no_args_is_help=True)
prepared = typer.Typer(help="Transactions in two phases (XA) that wait for a decision.", no_args_is_help=True)
app.add_typer(prepared, name="prepared")

LINES_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 64 * 1024
"""Of lines that are appended in one request."""

Name = Annotated[str, typer.Argument(help="The topic.")]
Xid = Annotated[str, typer.Argument(help="The transaction, as ls shows it.")]
Partition = Annotated[int | None, typer.Option(min=0, help="Only this one.")]
Partitions = Annotated[int | None, typer.Option(min=1, help="How many; they can be added later, never removed.")]
Keep = Annotated[str | None, typer.Option(help="For how long messages stay: 7d, 12h, forever.")]
KeepBytes = Annotated[str | None, typer.Option(help="How much of each partition stays: 1GB, 500MiB; 0: all.")]
KeepForGroups = Annotated[
    bool | None, typer.Option("--keep-for-groups/--no-keep-for-groups", help="What a group has not read stays.")
]
KeepForGroupsBytes = Annotated[str | None, typer.Option(help="So much of each partition at most, for groups.")]
AcceptAppend = Annotated[
    bool | None, typer.Option("--accept-append/--no-accept-append", help="Whether messages may be appended.")
]
AcceptRead = Annotated[bool | None, typer.Option("--accept-read/--no-accept-read", help="Whether it may be read.")]


@app.command()
@asking
def ls(
    pattern: Annotated[str | None, typer.Option("--pattern", help="Shell wildcards, or a part of the name.")] = None,
    as_json: AsJson = False,
) -> None:
    """List topics with what they hold, in the order of their names. `lag`: of the group that is furthest behind."""
    rows: list[TopicRow] = []
    incomplete: RefusedError | None = None
    with client() as connection:
        try:
            rows.extend(connection.topics(pattern))
        except RefusedError as refused:
            incomplete = refused
    if as_json:
        for row in rows:
            print_json(row)
    elif rows or incomplete is None:
        columns = ["topic", "partitions", "messages", "bytes", "groups", "lag", "keep", "keep_bytes"]
        print_table(columns, [_row(row) for row in rows])
    if incomplete is not None:
        raise incomplete


def _row(row: TopicRow) -> list[Any]:
    counts = [row.name, row.partitions, row.messages, row.bytes, row.groups, row.lag]
    return [*counts, shown_seconds(row.keep_s), row.keep_bytes or "all"]


@app.command()
@asking
def create(
    name: Name,
    partitions: Partitions = None,
    keep: Keep = None,
    keep_bytes: KeepBytes = None,
    keep_for_groups: KeepForGroups = None,
    keep_for_groups_bytes: KeepForGroupsBytes = None,
) -> None:
    """Make a topic, of 8 partitions unless told otherwise. One that is there as it is wanted is no fault."""
    settings = _settings(keep, keep_bytes, keep_for_groups, keep_for_groups_bytes)
    with client() as connection:
        _print_settings(name, connection.create_topic(name, partitions=partitions, **settings))


@app.command()
@asking
def configure(
    name: Name,
    partitions: Partitions = None,
    keep: Keep = None,
    keep_bytes: KeepBytes = None,
    keep_for_groups: KeepForGroups = None,
    keep_for_groups_bytes: KeepForGroupsBytes = None,
    accept_append: AcceptAppend = None,
    accept_read: AcceptRead = None,
    close: Annotated[list[int] | None, typer.Option(min=0, help="A partition to which nothing more goes.")] = None,
    reopen: Annotated[list[int] | None, typer.Option("--open", min=0, help="One to which it goes again.")] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help="GROUP=paid,refund*: the attributes that a group reads.")
    ] = None,
    no_filter: Annotated[list[str] | None, typer.Option("--no-filter", help="A group that reads all again.")] = None,
) -> None:
    """Change a topic's settings, and show all of them."""
    settings = _settings(keep, keep_bytes, keep_for_groups, keep_for_groups_bytes)
    settings |= {"accept_append": accept_append, "accept_read": accept_read, "partitions": partitions}
    new = dict(_filter(text) for text in filters or ())
    if not (close or reopen or new or no_filter or any(value is not None for value in settings.values())):
        raise fail("no setting is named, so there is nothing to change; qctl topic show shows a topic")
    with client() as connection:
        if close or reopen or new or no_filter:
            view = connection.topic(name)
            settings["closed"] = sorted({*view.closed, *(close or ())} - {*(reopen or ())})
            kept = {group: its for group, its in view.filters.items() if group not in (no_filter or ())}
            settings["filters"] = {**kept, **new}
        view = connection.configure_topic(name, **settings)
    _print_settings(name, view)
    if partitions is not None:
        told_error("keys go to other partitions from now on, where their number has changed")


def _filter(text: str) -> tuple[str, list[str]]:
    """Read a group's filter. Exits where it is none."""
    group, equals, attributes = text.partition("=")
    if not group or not equals or not attributes:
        raise fail(f"--filter {text}: GROUP=ATTRIBUTE,ATTRIBUTE... is wanted")
    return group, attributes.split(",")


def _settings(
    keep: str | None, keep_bytes: str | None, for_groups: bool | None, for_groups_bytes: str | None
) -> dict[str, Any]:
    return {
        "keep_s": None if keep is None else seconds(keep),
        "keep_bytes": None if keep_bytes is None else size(keep_bytes),
        "keep_for_groups": for_groups,
        "keep_for_groups_bytes": None if for_groups_bytes is None else size(for_groups_bytes),
    }


def _print_settings(name: str, view: TopicView) -> None:
    columns = ["topic", "partitions", "keep", "keep_bytes", "keep_for_groups", "keep_for_groups_bytes"]
    row = [name, len(view.partitions), shown_seconds(view.keep_s), view.keep_bytes or "all"]
    print_table(columns, [[*row, view.keep_for_groups, view.keep_for_groups_bytes]])
    if not view.accept_append:
        console.print("nothing is appended: --accept-append changes that")
    if not view.accept_read:
        console.print("nothing is read: --accept-read changes that")
    if view.closed:
        console.print(f"closed partitions: {', '.join(map(str, view.closed))}")
    for group, attributes in view.filters.items():
        console.print(f"the group {without_escapes(group)} reads {without_escapes(', '.join(attributes))}")


@app.command()
@asking
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a topic's settings, its partitions, and where each group is in them."""
    with client() as connection:
        view = connection.topic(name)
        groups = [connection.group(name, row.group) for row in view.groups]
    if as_json:
        view.groups = groups
        print_json({"topic": name, **msgspec.to_builtins(view)})
        return
    _print_settings(name, view)
    console.print()
    columns = ["partition", "first", "next", "messages", "bytes", "first_at", "last_at"]
    print_table(columns, [_partition(row) for row in view.partitions])
    if groups:
        console.print()
        print_groups(groups)


def _partition(row: PartitionRow) -> list[Any]:
    counts = [row.partition, row.first, row.next, row.messages, row.bytes]
    return [*counts, shown_time(row.first_at), shown_time(row.last_at)]


def print_groups(groups: Iterable[GroupRow]) -> None:
    """Print where groups are in each partition."""
    columns = ["group", "partition", "position", "lag", "lag_s", "owner"]
    rows: list[list[Any]] = []
    for group in groups:
        for row in group.partitions or ():
            position = "" if row.position is None else row.position
            lag_s = "" if row.lag_s is None else row.lag_s
            rows.append([group.group, row.partition, position, row.lag, lag_s, row.owner or ""])
    print_table(columns, rows)


@app.command()
@asking
def append(
    name: Name,
    data: Annotated[str, typer.Argument(help="The message's text; - reads it from standard input.")] = "-",
    key: Annotated[str | None, typer.Option(help="Messages with one key are in one partition, in order.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Where to; else by its key, or in turn.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="NAME: TEXT, kept with it.")] = None,
    attribute: Annotated[str | None, typer.Option(help="A word by which groups filter.")] = None,
    parse: Annotated[bool, typer.Option("--parse", help="DATA is JSON, not a text.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of standard input is a message.")] = False,
) -> None:
    """Append a message; prints its partition and offset when it is on a majority's disks.

    With --lines each line of standard input becomes one, as soon as it is there; then it prints how many.
    """
    if lines:
        if data != "-" or key is not None or header or attribute is not None:
            raise fail("--lines takes its messages from standard input, and they have no key, headers and attribute")
        count = 0
        with client() as connection:
            for batch in _batches(sys.stdin.fileno()):
                count += len(
                    connection.append_many(
                        name, [value_of(os.fsencode(one), parse=parse) for one in batch], partition=partition
                    )
                )
        console.print(f"{count} messages appended")
        return
    value = value_of(sys.stdin.buffer.read() if data == "-" else os.fsencode(data), parse=parse)
    with client() as connection:
        headers = headers_of(header or [])
        done = connection.append(name, value, key=key, partition=partition, headers=headers, attribute=attribute)
    print(f"{done.partition}:{done.offset}")


def _batches(descriptor: int) -> Iterator[list[str]]:
    """Give lines of standard input: as many as are there, and fit into one request."""
    rest = b""
    while chunk := os.read(descriptor, BYTES_AT_ONCE):
        *lines, rest = (rest + chunk).split(b"\n")
        for begin in range(0, len(lines), LINES_AT_ONCE):
            yield [line.decode() for line in lines[begin : begin + LINES_AT_ONCE]]
    if rest:
        yield [rest.decode()]


@app.command()
@asking
def read(
    name: Name,
    since: Annotated[
        str, typer.Option("--from", help="earliest, latest, an OFFSET, 10m (ago), or a time: 2026-05-01T12:00.")
    ] = EARLIEST,
    partition: Partition = None,
    group: Annotated[str | None, typer.Option(help="Read as a member of this group, which goes on behind it.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print messages: partition and offset, when each was appended, its key, its data.

    Each partition is in order; the partitions are read in turn. An offset goes with --partition where there are
    several. With --group the messages are shared with the group's other members, and count as read when they are
    printed.
    """
    if group is not None and partition is not None:
        raise fail("--group and --partition exclude each other: a group's members share its partitions")
    where = start(since)
    with client() as connection:
        if isinstance(where, int) and partition is None and len(connection.topic(name).partitions) > 1:
            raise fail(f"--from {where} is an offset of one partition: --partition says which")
        partitions = None if partition is None else [partition]
        follows = None if group is not None else follow
        with connection.read(name, group=group, partitions=partitions, start=where, follow=follows) as messages:
            try:
                for place, message in enumerate(messages, 1):
                    _print_message(message, as_json=as_json)
                    if place == count:
                        break
            except KeyboardInterrupt:
                return


def _print_message(message: TopicMessage, *, as_json: bool) -> None:
    if as_json:
        print_json(message.as_dict())
    else:
        key = "-" if message.key is None else without_escapes(message.key)
        at = datetime.fromtimestamp(message.produced_at, UTC).isoformat(timespec="milliseconds")
        print(f"{message.partition}:{message.offset} {at} {key} {text_of(message.data)}")
    sys.stdout.flush()


@app.command()
@asking
def trim(
    name: Name,
    before: Annotated[str, typer.Option(help="An OFFSET (with --partition), 7d (ago), a time, or latest: all.")],
    partition: Partition = None,
    yes: Yes = False,
) -> None:
    """Let go of the messages before an offset or a time. It asks first, on a terminal."""
    where = start(before)
    if where == EARLIEST:
        raise fail("--before earliest: nothing is before that")
    if isinstance(where, int) and partition is None:
        raise fail(f"--before {where} is an offset of one partition: --partition says which")
    with client() as connection:
        if not yes:
            make_sure(f"trim the topic {without_escapes(name)} before {before}")
        console.print(f"{connection.trim_topic(name, partition=partition, before=where)} messages gone from {name}")


@app.command()
@asking
def remove(name: Name, yes: Yes = False) -> None:
    """Remove a topic with its messages and groups. It asks first, on a terminal."""
    with client() as connection:
        if not yes:
            messages = sum(row.messages for row in connection.topic(name).partitions)
            make_sure(f"remove the topic {without_escapes(name)} with {messages} messages")
        console.print(f"{name} removed with {connection.remove_topic(name)} messages")


@prepared.command("ls")
@asking
def prepared_ls(as_json: AsJson = False) -> None:
    """List the transactions that are prepared: since when, what they append, and where to."""
    with client() as connection:
        rows = _prepared(connection)
    if as_json:
        for shard, row in rows:
            print_json({"shard": shard, **msgspec.to_builtins(row)})
        return
    columns = ["xid", "shard", "prepared_at", "messages", "bytes", "topics"]
    told = [[row.xid, shard, shown_time(row.at), row.messages, row.bytes, ", ".join(row.topics)] for shard, row in rows]
    print_table(columns, told)


@prepared.command("commit")
@asking
def prepared_commit(xid: Xid, yes: Yes = False) -> None:
    """Commit a transaction whose manager does not come back. It asks first, on a terminal."""
    _decide(xid, commit=True, yes=yes)


@prepared.command("rollback")
@asking
def prepared_rollback(xid: Xid, yes: Yes = False) -> None:
    """Roll a transaction back whose manager does not come back. It asks first, on a terminal."""
    _decide(xid, commit=False, yes=yes)


def _prepared(connection: Client) -> list[tuple[int, PreparedRow]]:
    shards = sorted(int(row["shard"]) for row in connection.status()["shards"])
    return [(shard, row) for shard in shards for row in connection.prepared(shard)]


def _decide(xid: str, *, commit: bool, yes: bool) -> None:
    what = "commit" if commit else "roll back"
    with client() as connection:
        found = next((shard for shard, row in _prepared(connection) if row.xid == xid), None)
        if found is None:
            raise fail(f"there is no prepared transaction {xid}: qctl topic prepared ls lists them")
        if not yes:
            make_sure(f"{what} the transaction {without_escapes(xid)}")
        count = connection.decide_prepared(xid, commit=commit, shard=found)
    console.print(f"{count} messages appended" if commit else "rolled back: nothing is appended")


def shown_seconds(value: float) -> str:
    """Show a duration as people write it: 7d, 12h, 90s; for ever where it is 0."""
    if not value:
        return "forever"
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if value % length == 0:
            return f"{value / length:g}{unit}"
    return f"{value:g}s"


def shown_time(at: float | None) -> str:
    """Show a moment, in this machine's zone; nothing where there is none."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
