"""What a person may do from a page: each action says what it is about to do, and tells afterwards what came of it."""

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from quorate import AsyncClient, RefusedError, UnknownOutcomeError
from quorate.errors import QuorateError
from quorate.protocol import BATCH_MAX

IDS_MAX: Final = BATCH_MAX
DATA_MAX: Final = 60_000
SETTINGS: Final = ("max_size", "default_ttl", "default_retry", "max_deliveries", "expires_after", "dead_letter")


class Asked(NamedTuple):
    """What a form says. `ids` are messages; `fields` everything else."""

    queue: str
    ids: list[int]
    fields: dict[str, str]


class Done(NamedTuple):
    """What came of it. `is_well`: all that was asked."""

    said: str
    is_well: bool = True


class Act(NamedTuple):
    """`says` what it will do; `is_grave`: the queue's name has to be typed. `fields`: what else the form asks for."""

    title: str
    says: Callable[[Asked], str]
    do: Callable[[AsyncClient, Asked], Awaitable[Done]]
    is_grave: bool = False
    fields: tuple[str, ...] = ()


def _those(asked: Asked) -> str:
    return f"{len(asked.ids):,} message{'' if len(asked.ids) == 1 else 's'}"


async def _pause(client: AsyncClient, asked: Asked) -> Done:
    await client.configure(asked.queue, paused=True)
    return Done("It is paused: nobody is given a message of it.")


async def _resume(client: AsyncClient, asked: Asked) -> Done:
    await client.configure(asked.queue, paused=False)
    return Done("It goes on.")


async def _clear(client: AsyncClient, asked: Asked) -> Done:
    return Done(f"{await client.clear(asked.queue):,} messages are gone.")


async def _remove(client: AsyncClient, asked: Asked) -> Done:
    return Done(f"The queue is gone, with {await client.remove(asked.queue):,} messages.")


def number(text: str, name: str) -> float:
    """Read a number of a form. Raises ValueError."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{name} is {text[:40]!r}, and a number is wanted")
    return found


async def _configure(client: AsyncClient, asked: Asked) -> Done:
    settings: dict[str, Any] = {}
    for name in SETTINGS:
        text = asked.fields.get(name)
        if text is None or (not text.strip() and name != "dead_letter"):
            continue
        if name == "dead_letter":
            settings[name] = text.strip()
        else:
            value = number(text, name)
            settings[name] = int(value) if name.startswith("max") else value
    await client.configure(asked.queue, **settings)
    return Done("These settings hold from now on.")


async def _produce(client: AsyncClient, asked: Asked) -> Done:
    text = asked.fields.get("data", "")
    if len(text) > DATA_MAX:
        raise ValueError(f"data has {len(text)} characters, and a form takes {DATA_MAX}")
    data: Any = text
    if asked.fields.get("as_json"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"data is no JSON: {error}") from None
    more: dict[str, Any] = {}
    for name in ("delay", "priority"):
        if value := asked.fields.get(name, "").strip():
            more[name] = int(number(value, name)) if name == "priority" else number(value, name)
    msg_id = await client.produce(asked.queue, data, key=asked.fields.get("key") or None, **more)
    return Done(f"It is message {msg_id}.")


def _of(count: int, asked: Asked, what: str) -> Done:
    said = f"{count:,} of {_those(asked)} {what}."
    return Done(
        said if count == len(asked.ids) else f"{said} The others are not there any more.", count == len(asked.ids)
    )


async def _release(client: AsyncClient, asked: Asked) -> Done:
    return _of(await client.release(asked.ids), asked, "are due now")


async def _confirm(client: AsyncClient, asked: Asked) -> Done:
    return _of(await client.confirm(asked.ids), asked, "are done, and gone")


async def _bury(client: AsyncClient, asked: Asked) -> Done:
    count = await client.bury(asked.ids, asked.fields.get("reason") or "by hand")
    return _of(count, asked, "are dead letters now")


async def _move(client: AsyncClient, asked: Asked) -> Done:
    to, create = asked.fields.get("to", "").strip() or None, bool(asked.fields.get("create"))
    moved = await client.move(asked.queue, to, messages=asked.ids or None, create=create)
    there = "where they came from" if to is None else to
    said = f"{moved.moved:,} moved to {there}."
    if asked.ids and moved.moved + moved.stayed < len(asked.ids):
        said += f" {len(asked.ids) - moved.moved - moved.stayed:,} are in somebody's hands, gone, or in another queue."
    if moved.stayed:
        said += f" {moved.stayed:,} stayed: {moved.reason}."
    return Done(said, not moved.stayed)


def _moves(asked: Asked) -> str:
    which = _those(asked) if asked.ids else "All messages that nobody has in hand"
    to = asked.fields.get("to", "").strip()
    return f"{which} of this queue go {f'to {to}' if to else 'back to where they came from'}, undelivered."


def _whole(asked: Asked, name: str) -> int:
    return int(number(asked.fields.get(name, ""), name))


async def _close(client: AsyncClient, asked: Asked) -> Done:
    topic = asked.fields.get("topic", "")
    view = await client.topic(topic)
    await client.configure_topic(topic, closed=sorted({*view.closed, _whole(asked, "partition")}))
    return Done("It is closed: nothing more is appended to it.")


async def _open(client: AsyncClient, asked: Asked) -> Done:
    topic = asked.fields.get("topic", "")
    view = await client.topic(topic)
    await client.configure_topic(topic, closed=sorted({*view.closed} - {_whole(asked, "partition")}))
    return Done("It is open again.")


async def _skip(client: AsyncClient, asked: Asked) -> Done:
    places = await client.reset_group(asked.fields.get("topic", ""), asked.fields.get("group", ""), "latest")
    return Done(f"It goes on at the end of {len(places):,} partitions.")


def _partition(asked: Asked) -> str:
    return f"partition {asked.fields.get('partition', '')} of the topic {asked.fields.get('topic', '')}"


OF_TOPICS: Final = ("topic", "partition", "group")
"""What names the topic that is acted upon; not asked for."""

ACTS: Final[dict[str, Act]] = {
    "close": Act(
        *("Close", lambda asked: f"Nothing more is appended to {_partition(asked)}.", _close),
        fields=("topic", "partition"),
    ),
    "open": Act(
        *("Open", lambda asked: f"Messages are appended to {_partition(asked)} again.", _open),
        fields=("topic", "partition"),
    ),
    "skip": Act(
        "Skip to the end",
        lambda asked: (
            f"The group {asked.fields.get('group', '')} passes over all that it has not read of the topic "
            f"{asked.fields.get('topic', '')}. It is refused while members read."
        ),
        _skip,
        fields=("topic", "group"),
    ),
    "pause": Act("Pause", lambda asked: "Nobody is given a message of it until it is resumed.", _pause),
    "resume": Act("Resume", lambda asked: "Its messages are given out again.", _resume),
    "clear": Act("Clear", lambda asked: "All its messages are lost for good.", _clear, is_grave=True),
    "remove": Act("Remove", lambda asked: "It goes, with all its messages and settings.", _remove, is_grave=True),
    "configure": Act("Change settings", lambda asked: "These settings hold from then on.", _configure, fields=SETTINGS),
    "produce": Act(
        *("Produce a message", lambda asked: "One message is put into it.", _produce),
        fields=("data", "as_json", "key", "delay", "priority"),
    ),
    "release": Act(
        "Make due now", lambda asked: f"{_those(asked)}: in flight or delayed, they are due at once.", _release
    ),
    "confirm": Act("Confirm", lambda asked: f"{_those(asked)} are done and gone, whoever works on them.", _confirm),
    "bury": Act(
        "Bury", lambda asked: f"{_those(asked)} in flight go to the dead letter queue.", _bury, fields=("reason",)
    ),
    "move": Act("Move", _moves, _move, fields=("to", "create")),
}


OF_MESSAGES: Final = ("release", "confirm", "bury")
"""What is done with messages, wherever they are."""


async def carried_out(act: Act, client: AsyncClient, asked: Asked) -> Done:
    """Do it, and say what came of it, whatever that is."""
    try:
        return await act.do(client, asked)
    except UnknownOutcomeError as error:
        return Done(f"It may have been done or not: {error}", is_well=False)
    except RefusedError as refused:
        return Done(f"It was refused: {refused.reason or refused.error}", is_well=False)
    except (ValueError, TypeError) as error:
        return Done(f"It was not done: {error}", is_well=False)
    except (QuorateError, OSError) as error:
        return Done(f"It was not done: {error}", is_well=False)
