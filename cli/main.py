"""The qctl command: its groups."""

from typing import Annotated

import typer

import quorate_compiled
from cli import access, bench, cluster, config, console, data, log, msg, node, queue, secret
from quorate.version import VERSION

app = typer.Typer(
    help="Quorate's command line: run a node, look at its queues, steer them.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(node.app, name="node")
app.add_typer(cluster.app, name="cluster")
cluster.app.command(name="secret")(secret.secret)
app.add_typer(queue.app, name="queue")
app.add_typer(access.app, name="access")
app.add_typer(msg.app, name="msg")
app.add_typer(log.app, name="log")
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.command(name="bench")(bench.bench)
app.command(name="console")(console.console)


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"qctl {VERSION}, {quorate_compiled.running()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Which one.")] = False,
) -> None:
    """Quorate's command line: run a node, look at its queues, steer them."""


def main() -> None:
    """Run qctl."""
    app()
