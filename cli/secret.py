"""qctl cluster secret: make the cluster's secret, and change it while the cluster runs."""

from pathlib import Path
from typing import Annotated, Final

import typer

from actors.node.data_folder import holder_of
from actors.node.private_files import SecretError, new_secret, read_secrets, write_secrets
from cli.node import reloaded
from cli.output import console, fail, speaking

SECRET_FILE: Final = "cluster.secret"
"""In the folder of a cluster on this machine."""

UNFINISHED: Final = "it goes on with the secrets that it has: mend that, then --retire with the same --dir"
NEXT: Final = ": copy it to every node, and reload each"


@speaking
def secret(
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The file (cluster_secret_file).")] = None,
    directory: Annotated[Path | None, typer.Option("--dir", "-d", help="Of a cluster on this machine.")] = None,
    rotate: Annotated[bool, typer.Option("--rotate", help="A new one; the one of before stays valid.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="The one of before is not valid any more.")] = False,
) -> None:
    """Make the secret by which the nodes of a cluster know each other, or change it without a stop.

    On several machines: make it, and copy the file to each. To change it: --rotate, copy the file to each, reload each
    node; then --retire, copy, reload. With --dir all of that is done for a cluster on this machine. It is never shown.
    """
    if (file is None) == (directory is None) or (rotate and retire):
        raise fail("either --file or --dir is wanted, and at most one of --rotate and --retire")
    path = file if directory is None else directory / SECRET_FILE
    assert path is not None
    try:
        if not path.exists():
            if rotate or retire:
                raise fail(f"there is no {path}: without --rotate and --retire it is made")
            make_secret(path)
            console.print(f"{path} made: give every node of the cluster this file (cluster_secret_file)")
        elif retire:
            _retire(path)
            console.print(f"{path} holds the new secret alone{NEXT if directory is None else ''}")
        elif rotate:
            _rotate(path)
            console.print(f"{path} holds a new secret, and the one of before{NEXT if directory is None else ''}")
        else:
            count = len(read_secrets(path))
            console.print(f"{path} is fit for use: {count} {'secret is' if count == 1 else 'secrets are'} valid")
            return
    except SecretError as error:
        raise fail(error) from error
    if directory is not None and (rotate or retire):
        _reload_all(directory)
        if rotate:
            _retire(path)
            _reload_all(directory)
            console.print("the new secret alone is valid")


def make_secret(path: Path) -> None:
    """Make a new one, in a new file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_secrets(path, [new_secret()])


def _rotate(path: Path) -> None:
    found = read_secrets(path)
    if len(found) > 1:
        raise fail(f"{path} holds two secrets: --retire the older one first, when every node has both")
    write_secrets(path, [new_secret(), *found])


def _retire(path: Path) -> None:
    write_secrets(path, read_secrets(path)[:1])


def _reload_all(directory: Path) -> None:
    """Every node that runs reads it again, one after the other."""
    for folder in sorted(directory.glob("node-*")):
        data = folder / "data"
        holder = holder_of(data) if data.is_dir() else None
        if holder is not None and "pid" in holder:
            outcome = reloaded(int(holder["pid"]), data)
            if not outcome.is_taken or outcome.without:
                raise fail("\n".join([f"{folder.name} does not go by the file:", *outcome.said, UNFINISHED]))
            console.print(f"{folder.name} has read it again")
