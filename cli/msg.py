"""qctl msg: put messages into queues and take them out by hand."""

import asyncio
import os
import sys
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from cli.completing import queue_names
from cli.following import Following
from cli.job_ids import MessageIds, message_id, message_ids
from cli.message_view import about, facts_of, text_of, why_dead
from cli.output import (
    NOTHING_THERE,
    AsJson,
    asked_nodes,
    asking,
    client,
    console,
    credentials,
    fail,
    print_json,
    print_table,
    told_error,
)
from cli.quantities import clock, duration, from_now, until
from cli.sending import send
from console.life import Life, life_of
from quorate import AsyncClient, Client, RefusedError
from quorate.expiry import expiry_of
from quorate.messages import NEVER, RETRY_S, Message, Produced
from quorate.protocol import ErrorWord

app = typer.Typer(help="Put messages into queues and take them out by hand.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The queue.", autocompletion=queue_names)]


@app.command()
@asking
def produce(
    queue: Name,
    data: Annotated[
        str | None, typer.Argument(help="The message's text; - reads it from standard input, also bytes that are none.")
    ] = None,
    delay: Annotated[float | None, typer.Option(parser=until, metavar="WHEN", help="5s, 1h30m, or a time.")] = None,
    ttl: Annotated[
        float | None,
        typer.Option(parser=until, metavar="WHEN", help="When it expires: 1h, or a time; without it, never."),
    ] = None,
    retry: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Until an unconfirmed delivery is repeated; 0: delivered at most once.",
            show_default="1m",
        ),
    ] = RETRY_S,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    key: Annotated[str | None, typer.Option(help="Refused while a message of the queue has it.")] = None,
    on_duplicate: Annotated[
        str | None, typer.Option(help="What a message that has the key already makes of it: refuse, keep or replace.")
    ] = None,
    of_all: Annotated[bool, typer.Option("--of-all", help="The key is one among all queues' messages.")] = False,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="NAME: TEXT, kept with it.")] = None,
    parse: Annotated[bool, typer.Option("--parse", help="DATA, or each line, is JSON, not a text.")] = False,
    from_file: Annotated[
        str | None, typer.Option("--from-file", help="Produce each line of this file; - is standard input.")
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="With --from-file: leave out so many lines at its beginning.")] = 0,
) -> None:
    """Produce one message; prints its id when it is on disk.

    With --on-duplicate keep that may be the id of a message that was there: standard error says so then. With
    --from-file prints how many lines are on disk; a batch whose answer was lost is produced again.
    """
    if (data is None) == (from_file is None):
        raise fail("what is to be produced? A text, - for standard input, or --from-file")
    if on_duplicate not in (None, "refuse", "keep", "replace"):
        raise fail(f"--on-duplicate is {on_duplicate!r}: one of refuse, keep, replace")
    if on_duplicate is not None and key is None:
        raise fail("--on-duplicate is about a key: --key is missing")
    options: dict[str, Any] = {"delay": delay, "retry": retry, "priority": priority}
    options |= {"ttl": NEVER if ttl is None else ttl, "headers": headers_of(header or [])}
    with client() as connection:
        if from_file is not None:
            if key is not None:
                raise fail("--key is for one message, and --from-file produces many")
            sent = send(connection, queue, from_file, skip, lambda line: value_of(line, parse=parse), **options)
            print(f"{sent.lines} lines are on disk")
            if sent.repeated:
                told_error(f"answers were lost: up to {sent.repeated} of them may be there twice")
            return
        options |= {"key": key, "scope": "all" if of_all else None, "on_duplicate": on_duplicate}
        text = sys.stdin.buffer.read() if data == "-" else os.fsencode(data or "")
        produced = connection.produce(queue, value_of(text, parse=parse), **options)
        print(produced)
        if isinstance(produced, Produced) and produced.is_duplicate:
            print(f"a message had the key {key!r} already, and was kept", file=sys.stderr)


@app.command()
@asking
def consume(
    queues: Annotated[list[str], typer.Argument(help="Queues, in order of preference.", autocompletion=queue_names)],
    wait: Annotated[
        float, typer.Option(parser=duration, metavar="DURATION", help="Wait so long for a message.", show_default="0s")
    ] = 0.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Up to so many messages, of one queue (1); with --follow: then end.")
    ] = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Confirm what was printed; --follow always does.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on, until Ctrl-C.")] = False,
    command: Annotated[
        str | None,
        typer.Option("--exec", help="Follow, and run this for each, its data on standard input: 0 confirms it."),
    ] = None,
    hands: Annotated[int, typer.Option(min=1, max=100, help="With --exec: so many at once.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Take messages: prints msg_id, deliveries and data of each.

    Exit code 3 if there is none, with a line on standard error for each queue that is not there at all. With --exec the
    command is a line for /bin/sh, with QUORATE_QUEUE, QUORATE_MSG_ID and QUORATE_DELIVERIES. While it works the lease
    is extended; when it ends otherwise than with 0 the message goes back to its queue, and rests longer each time.
    """

    def line(message: Message) -> str:
        if as_json:
            return msgspec.json.encode(message.as_dict()).decode()
        return f"{message.msg_id} {message.deliveries} {text_of(message.data)}"

    with client() as connection:
        if follow or command is not None:
            Following(connection, queues, line, count=count, command=command, hands=hands).run()
            return
        messages = connection.consume_many(queues, count or 1, wait=wait)
        for message in messages:
            print(line(message))
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
    queue: Annotated[str, typer.Argument(help="The queue that they are in.", autocompletion=queue_names)],
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
    delay: Annotated[
        float, typer.Option(parser=duration, metavar="DURATION", help="Until they are due.", show_default="0s")
    ] = 0.0,
) -> None:
    """Give messages back to their queue, or end their delay. Exit code 3 if some were neither in flight nor delayed."""
    with client() as connection:
        released = connection.release(message_ids(connection, msg_ids), delay=delay)
    _told(released, msg_ids, "released")


@app.command()
@asking
def withhold(
    msg_ids: MessageIds,
    delay: Annotated[
        float | None, typer.Option(parser=duration, metavar="DURATION", help="Without it each one's retry time.")
    ] = None,
) -> None:
    """Let ready messages wait, without giving them to anybody. Exit code 3 if some were not ready."""
    with client() as connection:
        withheld = connection.withhold(message_ids(connection, msg_ids), delay)
    _told(withheld, msg_ids, "withheld")


@app.command()
@asking
def peek(
    queue: Name,
    count: Annotated[int, typer.Option(help="So many messages at most.")] = 10,
    state: Annotated[str | None, typer.Option(help="Only these: ready, delayed or in_flight.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages without taking them: the next to be delivered, or those of one state. Exit code 3: none."""
    with client() as connection:
        found = connection.peek(queue, count) if state is None else islice(connection.browse(queue, state), count)
        messages = [*found]
    for message in messages if as_json else ():
        print_json({**message.as_dict(), "expiry": expiry_of(message.as_dict())})
    if not as_json:
        columns = ["msg_id", "state", "deliveries", "priority", "due", "data"]
        has_dead = any(message.dead is not None for message in messages)
        rows: list[list[Any]] = []
        for one in messages:
            due = "" if one.state == "ready" else from_now(one.due_at)
            rows.append([one.msg_id, one.state, one.deliveries, one.priority, due, text_of(one.data)])
            if has_dead:
                rows[-1].append(why_dead(one))
        print_table([*columns, *(["dead"] if has_dead else [])], rows)
    if not messages:
        raise typer.Exit(NOTHING_THERE)


@app.command()
@asking
def show(
    msg_id: Annotated[str | None, typer.Argument(help="The message's id, or a job's (D-...).")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue, for --key.")] = None,
    key: Annotated[str | None, typer.Option(help="Its key in that queue, or, alone, among all.")] = None,
    as_json: AsJson = False,
) -> None:
    """All that there is of one live message, and when it expires, and what happens then.

    Exit code 3 if there is no such message.
    """
    with client() as connection:
        named = None if msg_id is None else message_id(connection, msg_id)
        message = connection.show(named, queue=queue, key=key)
    if as_json:
        print_json({**message.as_dict(), "expiry": expiry_of(message.as_dict())})
        return
    print_table(["msg_id", str(message.msg_id)], [[name, value] for name, value in facts_of(message)])
    print(text_of(message.data))


@app.command()
@asking
def trace(
    msg_id: Annotated[str, typer.Argument(help="The message's id, or a job's (D-...).")],
    as_json: AsJson = False,
) -> None:
    """Tell a message's life from the change log: produced, given to whom, released, buried, moved, confirmed.

    Also of one that is gone, as far back as the log goes. Exit code 3 if nothing is known of it.
    """
    with client() as connection:
        named = message_id(connection, msg_id)
        newest: int | None = None
        try:
            newest = connection.show(named).trans_id
        except RefusedError as refused:
            if refused.error != ErrorWord.NO_SUCH_MESSAGE:
                raise
    life = asyncio.run(_life(named, newest))
    for event in life.events if as_json else ():
        print_json(event._asdict())
    if not as_json and life.events:
        rows = [[clock(one.at), one.kind, one.queue, about(one), one.trans_id] for one in life.events]
        print_table(["when", "what", "queue", "more", "record"], rows)
    if life.note:
        told_error(life.note)
    if not life.events:
        told_error(f"there is no message {named}, and the log knows nothing of it")
        raise typer.Exit(NOTHING_THERE)


async def _life(msg_id: int, newest: int | None) -> Life:
    async with AsyncClient(nodes=asked_nodes(), credentials=credentials(), retry_connect=False) as connection:
        return await life_of(connection, msg_id, newest)


def _told(there: int, msg_ids: list[str], what: str) -> None:
    """How many of the messages it was done to; those that were not there are what the exit code says."""
    console.print(f"{there} of {len(msg_ids)} {what}")
    if there < len(msg_ids):
        raise typer.Exit(NOTHING_THERE)


def value_of(text: bytes, *, parse: bool) -> Any:
    """Give what bytes are as data: a text, or the JSON that they say; what is no UTF-8 stays bytes."""
    if parse:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise fail(f"--parse: {error}") from error
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


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
