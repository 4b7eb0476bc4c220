"""The qctl command: its groups."""

import typer

from cli import bench, cluster, config, log, msg, node, queue

app = typer.Typer(
    help="Quorate's command line: run a node, look at its queues, steer them.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(node.app, name="node")
app.add_typer(cluster.app, name="cluster")
app.add_typer(queue.app, name="queue")
app.add_typer(msg.app, name="msg")
app.add_typer(log.app, name="log")
app.add_typer(config.app, name="config")
app.command(name="bench")(bench.bench)


def main() -> None:
    """Run qctl."""
    app()
