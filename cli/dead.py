"""qctl queue dead and move: dead letters by queue and reason, and back with those of one reason."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Final, NamedTuple

import typer

from cli.completing import queue_names
from cli.output import NOTHING_THERE, AsJson, asking, client, console, print_json, print_table, told_error
from cli.quantities import from_now
from quorate import Client, RefusedError
from quorate.messages import ShownMessage
from quorate.protocol import BATCH_MAX, ErrorWord

LOOKED_MAX: Final = 10_000
"""So many dead letters of one queue are counted by reason."""

REASON_SHOWN: Final = 200
STATES: Final = ("ready", "delayed", "in_flight")
AT_REST: Final = ("ready", "delayed")


class Group(NamedTuple):
    """Dead letters that came from one queue, for one reason. `since`: when the first of them died (Unix seconds)."""

    dead_letters: str
    queue: str
    reason: str
    letters: int
    since: float


@asking
def dead(
    pattern: Annotated[str | None, typer.Option("--pattern", help="Of dead letter queues: as in ls.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count all dead letters by the queue that they came from and the reason. An empty list is well: exit code 0."""
    found: list[Group] = []
    with client() as connection:
        for name in _dead_letter_queues(connection):
            if pattern is not None and name not in set(connection.queues(pattern)):
                continue
            found += _groups(connection, name)
    for group in found if as_json else ():
        print_json(group._asdict())
    if not as_json:
        print_table(
            ["dead letters", "from", "count", "first", "reason"],
            [[one.dead_letters, one.queue, one.letters, from_now(one.since), one.reason] for one in found],
        )


def _dead_letter_queues(connection: Client) -> list[str]:
    """Give their names, those with the most letters first."""
    rows = connection.queue_rows(sort="dead_letters", descending=True, system=True)
    names: dict[str, None] = {}
    for row in rows:
        if row.dead_letter is not None and row.dead_letters:
            names[row.dead_letter] = None
    return [*names]


def _groups(connection: Client, name: str) -> list[Group]:
    counts: dict[tuple[str, str], tuple[int, float]] = {}
    looked = 0
    for message in islice(_letters(connection, name, STATES), LOOKED_MAX):
        looked += 1
        its = message.dead
        if its is None:
            continue  # somebody has produced it there
        key = (str(its["queue"]), (its.get("reason") or "not said")[:REASON_SHOWN])
        count, since = counts.get(key, (0, float(its["at"])))
        counts[key] = (count + 1, min(since, float(its["at"])))
    if looked == LOOKED_MAX:
        told_error(f"{name}: its first {LOOKED_MAX} messages are counted, and there are more")
    groups = [Group(name, queue, reason, *its) for (queue, reason), its in counts.items()]
    return sorted(groups, key=lambda one: -one.letters)


def _letters(connection: Client, name: str, states: tuple[str, ...]) -> Iterator[ShownMessage]:
    for state in states:
        try:
            yield from connection.browse(name, state)
        except RefusedError as refused:
            if refused.error != ErrorWord.NO_SUCH_QUEUE:  # it is gone by now
                raise


@asking
def move(
    queue: Annotated[str, typer.Argument(help="The queue with the dead letters.", autocompletion=queue_names)],
    reason: Annotated[str, typer.Option(help="Those whose reason contains this text; empty: all.")],
    to: Annotated[str | None, typer.Option(help="Where to; else each goes back to its queue.")] = None,
) -> None:
    """Move dead letters of one reason that nobody has in hand. Exit code 3 if there are none, or some stay."""
    with client() as connection:
        connection.monitor(queue)
        found = [
            one.msg_id
            for one in _letters(connection, queue, AT_REST)
            if one.dead is not None and reason in (one.dead.get("reason") or "")
        ]
        moved = stayed = 0
        why: str | None = None
        for at in range(0, len(found), BATCH_MAX):
            done = connection.move(queue, to, messages=found[at : at + BATCH_MAX])
            moved, stayed, why = moved + done.moved, stayed + done.stayed, why or done.reason
    console.print(f"{moved} moved" + (f", {stayed} stayed: {why}" if stayed else ""))
    if not found:
        told_error(f"{queue} has no dead letter at rest whose reason contains {reason!r}")
    if not found or moved < len(found):
        raise typer.Exit(NOTHING_THERE)
