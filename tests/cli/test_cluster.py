"""What `qctl cluster status` says of members that it asks."""

import socket

import typer
from typer.testing import CliRunner

from cli.cluster import _member_row
from cli.output import asking, console

app = typer.Typer()


@app.command()
@asking
def row(client_port: int) -> None:
    """Print the state and fault of a member whose clients' port that is."""
    member = {"node_id": 2, "host": "h", "port": 2, "role": "voter"}
    shown = _member_row(
        member | {"client_host": "127.0.0.1", "client_port": client_port}, {"leader_node_id": 1, "cluster_id": "9"}
    )
    console.print(f"{shown['state']}|{shown['fault']}")


def test_a_member_that_does_not_run_is_down_and_one_that_answers_otherwise_says_why() -> None:
    """Each member that was down had "[Errno 111] Connection refused" as its fault."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    assert CliRunner().invoke(app, [str(port)]).output == "down|\n"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert CliRunner().invoke(app, [str(port)]).output.startswith(f"down|127.0.0.1:{port}: ")
