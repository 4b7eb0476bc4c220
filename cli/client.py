"""qctl client: who is connected to a node."""

from typing import Any

import typer

from cli.output import AsJson, asked_nodes, asking, client, client_at, print_json, print_table
from cli.quantities import written
from quorate.protocol import DOWN, Action

app = typer.Typer(help="Look at a node's clients.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look at a node's clients."""


@app.command()
@asking
def ls(as_json: AsJson = False) -> None:
    """List who is connected: address, the name that it gave itself, for how long, and who it is by its token.

    Each shard's worker has its own; the first 1,000 of each. Needs the right operate.
    """
    with client() as connection:
        status = connection.status()
        found = [(None, connection.request(Action.CLIENT, command="list"))] if len(status["shards"]) == 1 else []
    if not found:
        host = asked_nodes()[0][0]
        for shard in status["shards"]:
            if shard["role"] != DOWN:
                with client_at(host, shard["direct_port"], timeout=10.0) as connection:
                    found.append((shard["shard"], connection.request(Action.CLIENT, command="list")))
    rows: list[dict[str, Any]] = [
        {**({} if shard is None else {"shard": shard}), **row} for shard, reply in found for row in reply["clients"]
    ]
    if as_json:
        for row in rows:
            print_json(row)
        return
    columns = ["number", "address", "name", "age", "protocol", "principal"]
    if len(status["shards"]) > 1:
        columns.insert(0, "shard")
    print_table(
        columns,
        [[written(row["age"]) if one == "age" else row.get(one) or "-" for one in columns] for row in rows],
    )
