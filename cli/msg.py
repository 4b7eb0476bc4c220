"""qctl msg: put messages into queues and take them out by hand."""

import sys
from typing import Annotated, Any

import msgspec
import typer

from cli.output import AsJson, Host, Port, client, console, fail, print_json, speaking

app = typer.Typer(help="Put messages into queues and take them out by hand.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The queue.")]


@app.command()
@speaking
def produce(
    queue: Name,
    data: Annotated[str, typer.Argument(help="The message's text; - reads it from standard input.")],
    delay: Annotated[float | None, typer.Option(help="Seconds from now, or Unix seconds.")] = None,
    ttl: Annotated[float | None, typer.Option(help="Seconds from now, or Unix seconds.")] = None,
    retry: Annotated[float | None, typer.Option(help="Seconds until an unconfirmed delivery is repeated.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    key: Annotated[str | None, typer.Option(help="Refused while a message of the queue has it.")] = None,
    parse: Annotated[bool, typer.Option("--parse", help="DATA is JSON, not a text.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 1111,
) -> None:
    """Produce one message; prints its id when it is on disk."""
    text = sys.stdin.read() if data == "-" else data
    value: Any = text
    if parse:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise fail(f"--parse: {error}") from error
    with client(host, port) as connection:
        print(connection.produce(queue, value, delay=delay, ttl=ttl, retry=retry, priority=priority, key=key))


@app.command()
@speaking
def consume(
    queues: Annotated[list[str], typer.Argument(help="Queues, in order of preference.")],
    wait: Annotated[float, typer.Option(help="Seconds to wait for a message.")] = 0.0,
    count: Annotated[int, typer.Option(help="Up to so many messages, of one queue.")] = 1,
    confirm: Annotated[bool, typer.Option("--confirm", help="Confirm what was printed.")] = False,
    as_json: AsJson = False,
    host: Host = "127.0.0.1",
    port: Port = 1111,
) -> None:
    """Take messages: prints msg_id, deliveries and data of each. Exit code 2 if there is none."""
    with client(host, port) as connection:
        messages = connection.consume_many(queues, count, wait=wait)
        for message in messages:
            if as_json:
                print_json(message)
            else:
                data = message.data if isinstance(message.data, str) else msgspec.json.encode(message.data).decode()
                print(message.msg_id, message.deliveries, data)
        sys.stdout.flush()
        if confirm:
            connection.confirm(messages)
    if not messages:
        raise typer.Exit(2)


@app.command()
@speaking
def confirm(
    msg_ids: Annotated[list[int], typer.Argument(help="Messages' ids.")], host: Host = "127.0.0.1", port: Port = 1111
) -> None:
    """Acknowledge messages; says how many were there."""
    with client(host, port) as connection:
        console.print(f"{connection.confirm(msg_ids)} of {len(msg_ids)} confirmed")
