"""qctl access: who may do what, in the access file of a node."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.gateway.access import TokenHash, new_token
from actors.messages.rights import ANONYMOUS
from actors.node.private_files import TOKENS_MAX, AccessFile, AccessFileError, principal_fault, read_access, rights_of
from cli.output import AsJson, console, fail, print_json, print_table, speaking

app = typer.Typer(help="Say who may do what: changes the access file, which nodes read again at a reload.")

Name = Annotated[str, typer.Argument(help="Who: a name for a person or a program.")]
File = Annotated[Path, typer.Option("--file", "-f", help="The access file (access_file in the configuration).")]
Allow = Annotated[
    list[str],
    typer.Option(
        "--allow",
        help="RIGHT,RIGHT,... or, for some queues alone, RIGHT,RIGHT,...:PATTERN; may be given several times. Rights: "
        "produce, consume, look, manage (over queues), log, operate (over the node).",
    ),
]


def _rights(allow: list[str]) -> list[str]:
    """`produce,consume:jobs*` is both for those queues. Raises ValueError."""
    found: list[str] = []
    for text in allow:
        rights, colon, pattern = text.partition(":")
        if "," in pattern:
            raise ValueError(f"{text!r}: one pattern for each --allow")
        found += [f"{one.strip()}{colon}{pattern.strip()}" for one in rights.split(",")]
    rights_of(found)
    return found


def _say(found: list[str]) -> None:
    print(f"may: {', '.join(found)}", file=sys.stderr)


def _open(path: Path) -> AccessFile:
    try:
        return AccessFile(path)
    except AccessFileError as error:
        raise fail(error) from error


def _known(file: AccessFile, name: str) -> None:
    if not file.has(name):
        raise fail(f"{file.path} knows nobody called {name!r}")


@app.command()
@speaking
def add(
    name: Name,
    file: File,
    allow: Allow,
    certificate: Annotated[
        list[str] | None, typer.Option("--certificate", help="A name in this client's certificate (tls_client_ca).")
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Known by certificate alone.")] = False,
) -> None:
    """Add somebody; prints the token, alone and once. The file keeps its hash: nobody can tell the token from that."""
    fault = principal_fault(name)
    if fault is not None:
        raise fail(f"the name {name!r} {fault}")
    rights = _rights(allow)
    if no_token and not certificate:
        raise fail("--no-token needs a --certificate: nobody could say that it is they")
    changed = _open(file)
    if changed.has(name):
        raise fail(f"{file} has {name!r} already: qctl access allow changes rights, qctl access token makes a token")
    token = new_token(name)
    changed.add(name, rights, None if no_token else TokenHash.of(token), certificate or [])
    changed.write()
    _say(rights)
    if not no_token:
        print(token)


@app.command()
@speaking
def allow(
    name: Annotated[str, typer.Argument(help=f"Who; {ANONYMOUS} for all who prove nothing.")], file: File, allow: Allow
) -> None:
    """Say anew what somebody may do: this, and nothing else."""
    rights = _rights(allow)
    changed = _open(file)
    if name != ANONYMOUS:
        _known(changed, name)
    changed.allow(name, rights)
    changed.write()
    console.print(f"{name} may {', '.join(rights)}, as soon as the nodes have read {file} again")


@app.command()
@speaking
def token(
    name: Name,
    file: File,
    only: Annotated[bool, typer.Option("--only", help="The tokens of before are not valid any more.")] = False,
) -> None:
    """Make a new token for somebody, and print it, alone and once; the one of before stays valid, too."""
    changed = _open(file)
    _known(changed, name)
    if not only and changed.count_tokens(name) >= TOKENS_MAX:
        raise fail(f"{name} has {TOKENS_MAX} tokens already: --only makes a new one and ends both")
    made = new_token(name)
    changed.add_token(name, TokenHash.of(made), is_only=only)
    changed.write()
    print(made)


@app.command()
@speaking
def rm(name: Name, file: File) -> None:
    """Know somebody no more."""
    changed = _open(file)
    if name != ANONYMOUS:
        _known(changed, name)
    changed.remove(name)
    changed.write()
    console.print(f"{name} is not known any more, as soon as the nodes have read {file} again")


@app.command()
@speaking
def ls(file: File, as_json: AsJson = False) -> None:
    """List who may do what."""
    try:
        table = read_access(file)
    except AccessFileError as error:
        raise fail(error) from error
    known = {name: (entry.rights, len(entry.tokens), entry.certificates) for name, entry in table.entries.items()}
    known[ANONYMOUS] = (table.stranger(is_near=False).principal.rights, 0, ())
    for name, (rights, tokens, certificates) in known.items() if as_json else ():
        print_json({"name": name, "tokens": tokens, "certificates": certificates, "allow": rights.shown()})
    if not as_json:
        rows: list[list[Any]] = [
            [name, tokens, ", ".join(certificates), ", ".join(rights.shown())]
            for name, (rights, tokens, certificates) in known.items()
        ]
        print_table(["name", "tokens", "certificates", "allow"], rows)
