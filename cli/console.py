"""qctl console: pages, metrics and health of a node or a cluster, in a process of its own."""

import logging
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from cli.output import console as out
from cli.output import fail, speaking
from quorate.credentials import Credentials
from quorate.urls import found

app = typer.Typer(add_completion=False)


@app.command()
@speaking
def console(
    url: Annotated[
        str | None, typer.Option(help="quorate://host:port,... ; else QUORATE_URL, _HOST and _PORT.")
    ] = None,
    http_host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="0: any that is free.")] = 1180,
    serves: Annotated[
        str, typer.Option(help="Some of console, metrics, health, gmq-monitor.")
    ] = "console,metrics,health",
    http_hosts: Annotated[list[str] | None, typer.Option(help="Other names by which browsers may ask for it.")] = None,
    cert: Annotated[Path | None, typer.Option(help="A certificate (PEM): it speaks TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its key, where that is in another file.")] = None,
    queues_max: Annotated[int, typer.Option(help="Queues that /metrics/queues tells of by name.")] = 1000,
    insecure_http: Annotated[bool, typer.Option(help="In the clear elsewhere than on loopback, all the same.")] = False,
) -> None:
    """Serve the console of a node or a cluster until it is stopped. Who looks logs in with a token of their own."""
    from console.server import HttpListener, ListenerError, serve

    nodes, shown = found(url, None, None, Credentials.of())
    if shown.token is not None:
        raise fail(
            "the console has no token of its own: each who looks logs in (unset QUORATE_TOKEN, or take it off the URL)"
        )
    listener = HttpListener(
        http_host,
        http_port,
        frozenset(one.strip() for one in serves.split(",") if one.strip()),
        tuple(http_hosts or ()),
        None if cert is None else str(cert),
        None if key is None else str(key),
        insecure_http,
    )

    def said(one: HttpListener, port: int) -> None:
        scheme = "http" if one.cert is None else "https"
        out.print(f"{', '.join(sorted(one.serves))} at {scheme}://{one.host}:{port}/")

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        uvloop.run(serve(nodes, shown, [listener], said, queues_max=queues_max))
    except ListenerError as error:
        raise fail(error) from error
