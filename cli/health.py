"""qctl health: one line and an exit code, as monitors read them (Nagios plug-ins' convention)."""

import sys
import time
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from cli.node import what_is_wrong
from cli.output import asking, client
from cli.quantities import duration, written
from quorate import Client, QuorateError, RefusedError
from quorate.protocol import Action, ErrorWord

app = typer.Typer(add_completion=False)

WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
WARNING, CRITICAL, UNKNOWN = 1, 2, 3
USAGE_ERROR: Final[Any] = typer.BadParameter.__base__
"""That of the click which typer brings with it."""


class HealthCommand(TyperCommand):
    """A wrong option is "unknown" here: 2 would say that the node is not well."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Exit with 3 where the options can't be read."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except USAGE_ERROR as error:
            error.show()
            sys.exit(UNKNOWN)


class Health:
    """What was found: the worst of it counts."""

    def __init__(self) -> None:
        self.code = 0
        self.said: list[str] = []

    def find(self, code: int, text: str) -> None:
        """Note something that is not well."""
        self.code = max(self.code, code)
        self.said.append(text)


@app.command(cls=HealthCommand)
@asking
def health(
    queue: Annotated[str | None, typer.Option(help="Look at this queue, too.")] = None,
    max_age: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="DURATION", help="A message of it is ready for longer: critical."),
    ] = None,
    max_ready: Annotated[int | None, typer.Option(min=0, help="More are ready: critical.")] = None,
    max_dead: Annotated[int | None, typer.Option(min=0, help="It has more dead letters: critical.")] = None,
) -> None:
    """Say in a line whether a node, its cluster and a queue are well.

    Exit code 0: well; 1: warning; 2: critical; 3: unknown, which wrong options are, too. Needs the right look.
    """
    found = Health()
    limits = (max_age, max_ready, max_dead)
    if queue is None and any(limit is not None for limit in limits):
        print("UNKNOWN: --max-age, --max-ready and --max-dead are about a queue: --queue is missing")
        raise typer.Exit(UNKNOWN)
    try:
        with client(timeout=5.0) as connection:
            well = _look(connection, found)
            if queue is not None:
                well += _look_at(connection, found, queue, limits)
    except QuorateError as error:
        if isinstance(error, RefusedError) and error.error in (ErrorWord.NO_SUCH_QUEUE, ErrorWord.NOT_ALLOWED):
            print(f"UNKNOWN: {error}")
            raise typer.Exit(UNKNOWN) from error
        found.find(CRITICAL, str(error))
        well = ""
    print(f"{WORDS[found.code]}: {'; '.join(found.said) if found.said else well}")
    raise typer.Exit(found.code)


def _look(connection: Client, found: Health) -> str:
    """Look at the node and its cluster; say what is well."""
    status = connection.status()
    for shard in status["shards"]:
        if (wrong := what_is_wrong(shard)) is not None:
            found.find(CRITICAL, f"shard {shard['shard']}: {wrong}")
    for text in (*status.get("warnings", ()), *status.get("limits_reached", ())):
        found.find(WARNING, text)
    members = connection.cluster()["members"]
    away = [member for member in members if "client_port" not in member or "fault" in member]
    if away:
        found.find(WARNING, f"{len(away)} of {len(members)} nodes can't be reached: {[one['node_id'] for one in away]}")
    return f"node {status['node_id']}, {len(status['shards'])} shards, {max(len(members), 1)} nodes"


def _look_at(connection: Client, found: Health, queue: str, limits: tuple[float | None, int | None, int | None]) -> str:
    max_age, max_ready, max_dead = limits
    row = connection.request(Action.MONITOR, queue=queue, full=True)["row"]
    age = max(time.time() - row["oldest"], 0.0) if row.get("oldest") else 0.0
    if max_age is not None and age > max_age:
        found.find(CRITICAL, f"{queue}: a message is ready for {written(age)}")
    if max_ready is not None and row["ready"] > max_ready:
        found.find(CRITICAL, f"{queue}: {row['ready']} are ready")
    dead = row.get("dead_letters", 0)
    if max_dead is not None and dead > max_dead:
        found.find(CRITICAL, f"{queue}: {dead} dead letters")
    return f"; {queue}: {row['ready']} ready, the oldest for {written(age)}, {dead} dead letters"
