"""qctl msg: put messages into queues and take them out by hand."""

import sys
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from cli.job_ids import MessageIds, message_id, message_ids
from cli.output import (
    NOTHING_THERE,
    AsJson,
    asking,
    client,
    console,
    fail,
    print_json,
    print_table,
    without_escapes,
)
from quorate import Client, RefusedError
from quorate.expiry import expiry_of
from quorate.messages import NEVER, RETRY_S, Produced
from quorate.payload import from_wire
from quorate.protocol import ErrorWord

app = typer.Typer(help="Put messages into queues and take them out by hand.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The queue.")]


@app.command()
@asking
def produce(
    queue: Name,
    data: Annotated[str, typer.Argument(help="The message's text; - reads it from standard input.")],
    delay: Annotated[float | None, typer.Option(help="Seconds from now, or Unix seconds.")] = None,
    ttl: Annotated[
        float | None, typer.Option(help="Seconds from now, or Unix seconds; without it, it never expires.")
    ] = None,
    retry: Annotated[
        float, typer.Option(help="Seconds until an unconfirmed delivery is repeated; 0: delivered at most once.")
    ] = RETRY_S,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    key: Annotated[str | None, typer.Option(help="Refused while a message of the queue has it.")] = None,
    on_duplicate: Annotated[
        str | None, typer.Option(help="What a message that has the key already makes of it: refuse, keep or replace.")
    ] = None,
    of_all: Annotated[bool, typer.Option("--of-all", help="The key is one among all queues' messages.")] = False,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="NAME: TEXT, kept with it.")] = None,
    parse: Annotated[bool, typer.Option("--parse", help="DATA is JSON, not a text.")] = False,
) -> None:
    """Produce one message; prints its id when it is on disk.

    With --on-duplicate keep that may be the id of a message that was there: standard error says so then.
    """
    if on_duplicate not in (None, "refuse", "keep", "replace"):
        raise fail(f"--on-duplicate is {on_duplicate!r}: one of refuse, keep, replace")
    if on_duplicate is not None and key is None:
        raise fail("--on-duplicate is about a key: --key is missing")
    text = sys.stdin.read() if data == "-" else data
    value = value_of(text, parse=parse)
    with client() as connection:
        options: dict[str, Any] = {"delay": delay, "retry": retry, "priority": priority, "key": key}
        options["scope"] = "all" if of_all else None
        options["ttl"] = NEVER if ttl is None else ttl
        options["on_duplicate"] = on_duplicate
        produced = connection.produce(queue, value, headers=headers_of(header or []), **options)
        print(produced)
        if isinstance(produced, Produced) and produced.is_duplicate:
            print(f"a message had the key {key!r} already, and was kept", file=sys.stderr)


@app.command()
@asking
def consume(
    queues: Annotated[list[str], typer.Argument(help="Queues, in order of preference.")],
    wait: Annotated[float, typer.Option(help="Seconds to wait for a message.", min=0.0)] = 0.0,
    count: Annotated[int, typer.Option(help="Up to so many messages, of one queue.")] = 1,
    confirm: Annotated[bool, typer.Option("--confirm", help="Confirm what was printed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take messages: prints msg_id, deliveries and data of each.

    Exit code 3 if there is none, with a line on standard error for each queue that is not there at all.
    """
    with client() as connection:
        messages = connection.consume_many(queues, count, wait=wait)
        for message in messages:
            if as_json:
                print_json(message.as_dict())
            else:
                print(message.msg_id, message.deliveries, text_of(message.data))
        sys.stdout.flush()
        if confirm:
            connection.confirm(messages)
        if not messages:
            for absent in _absent(connection, queues):
                fail(absent)
            raise typer.Exit(NOTHING_THERE)


@app.command()
@asking
def confirm(
    msg_ids: MessageIds,
) -> None:
    """Acknowledge messages; says how many were there. Exit code 3 if some were not."""
    with client() as connection:
        confirmed = connection.confirm(message_ids(connection, msg_ids))
    _told(confirmed, msg_ids, "confirmed")


@app.command()
@asking
def bury(
    msg_ids: MessageIds,
    reason: Annotated[str | None, typer.Option(help="Why; the dead letters say so.")] = None,
) -> None:
    """Move messages to the dead letter queue of their queue. Exit code 3 if some were not in flight."""
    with client() as connection:
        buried = connection.bury(message_ids(connection, msg_ids), reason)
    _told(buried, msg_ids, "buried")


@app.command()
@asking
def move(
    queue: Annotated[str, typer.Argument(help="The queue that they are in.")],
    msg_ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of messages that nobody has in hand; or --all.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="Where to; else each dead letter goes back to its queue.")] = None,
    count: Annotated[int | None, typer.Option(help="The first so many; 1000 at most.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of the queue.")] = False,
    create: Annotated[bool, typer.Option(help="Make the other queue if it is not there.")] = False,
) -> None:
    """Move messages that nobody has in hand, or dead letters back to where they came from. Exit code 3 if some stay."""
    if [bool(msg_ids), count is not None, everything].count(True) != 1:
        raise fail("which messages? Give their ids, --count, or --all")
    with client() as connection:
        named = message_ids(connection, msg_ids or []) or None
        moved = connection.move(queue, to, messages=named, count=count, create=create)
    console.print(f"{moved.moved} moved" + (f", {moved.stayed} stayed: {moved.reason}" if moved.stayed else ""))
    if moved.stayed or moved.moved < len(set(msg_ids or ())):
        raise typer.Exit(NOTHING_THERE)


@app.command()
@asking
def release(
    msg_ids: MessageIds,
    delay: Annotated[float, typer.Option(help="Seconds until they are due.")] = 0.0,
) -> None:
    """Give messages back to their queue, or end their delay. Exit code 3 if some were neither in flight nor delayed."""
    with client() as connection:
        released = connection.release(message_ids(connection, msg_ids), delay=delay)
    _told(released, msg_ids, "released")


@app.command()
@asking
def withhold(
    msg_ids: MessageIds,
    delay: Annotated[float | None, typer.Option(help="Seconds; without it each one's retry time.")] = None,
) -> None:
    """Let ready messages wait, without giving them to anybody. Exit code 3 if some were not ready."""
    with client() as connection:
        withheld = connection.withhold(message_ids(connection, msg_ids), delay)
    _told(withheld, msg_ids, "withheld")


@app.command()
@asking
def peek(
    queue: Annotated[str, typer.Argument(help="The queue.")],
    count: Annotated[int, typer.Option(help="So many messages at most.")] = 10,
    state: Annotated[str | None, typer.Option(help="Only these: ready, delayed or in_flight.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages without taking them: the next to be delivered, or those of one state. Exit code 3: none."""
    with client() as connection:
        found = connection.peek(queue, count) if state is None else islice(connection.browse(queue, state), count)
        messages = [message.as_dict() for message in found]
    for message in messages:
        if as_json:
            print_json({**message, "expiry": expiry_of(message)})
    if not as_json:
        columns = ["msg_id", "state", "deliveries", "priority", "due_at", "data"]
        print_table(
            columns, [[*(message[one] for one in columns[:-1]), text_of(from_wire(message))] for message in messages]
        )
    if not messages:
        raise typer.Exit(NOTHING_THERE)


@app.command()
@asking
def show(
    msg_id: Annotated[str | None, typer.Argument(help="The message's id, or a job's (D-...).")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue, for --key.")] = None,
    key: Annotated[str | None, typer.Option(help="Its key in that queue, or, alone, among all.")] = None,
) -> None:
    """All that there is of one live message, as JSON, and when it expires (`expiry`), and what happens then.

    Exit code 3 if there is no such message.
    """
    with client() as connection:
        named = None if msg_id is None else message_id(connection, msg_id)
        message = connection.show(named, queue=queue, key=key)
    print_json(message.as_dict())


def _told(there: int, msg_ids: list[str], what: str) -> None:
    """How many of the messages it was done to; those that were not there are what the exit code says."""
    console.print(f"{there} of {len(msg_ids)} {what}")
    if there < len(msg_ids):
        raise typer.Exit(NOTHING_THERE)


def value_of(text: str, *, parse: bool) -> Any:
    """Give what a text is as data: itself, or the JSON that it says."""
    if not parse:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise fail(f"--parse: {error}") from error


def headers_of(given: list[str]) -> dict[str, str]:
    """Read what --header says, each "NAME: TEXT"."""
    headers: dict[str, str] = {}
    for one in given:
        name, colon, text = one.partition(":")
        if not colon or not name.strip():
            raise fail(f"--header {one!r}: NAME: TEXT is wanted")
        headers[name.strip()] = text.strip()
    return headers


def _absent(connection: Client, queues: list[str]) -> list[RefusedError]:
    """Ask what the node says of each queue that is not there: it was mistyped, or nothing was ever put into it."""
    said: list[RefusedError] = []
    for name in queues:
        try:
            connection.monitor(name)
        except RefusedError as refused:  # who may consume need not be let look
            if refused.error == ErrorWord.NO_SUCH_QUEUE:
                said.append(refused)
    return said


def text_of(data: Any) -> str:
    """Show data as a terminal may."""
    if isinstance(data, bytes):
        return without_escapes(data.decode("utf-8", "backslashreplace"))
    return without_escapes(data if isinstance(data, str) else msgspec.json.encode(data).decode())
