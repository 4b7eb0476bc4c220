"""Well-formed nonsense: requests with any combination of the fields that an action reads, valid and invalid values.

What a codec refuses field by field never reaches a queue's owner; what is wrong only as a combination does. Cases are
given as dicts, ready for JSON; those with valid values alone fit a `Request`, and can be forwarded over a link.
"""

import random
from collections.abc import Iterator
from itertools import combinations, product
from math import comb
from typing import Any, Final

from quorate.action_fields import NAMING, READS
from quorate.protocol import Action

TOGETHER_MAX: Final = 4
"""So many fields at most stand in a case beside `action`."""

CASES_MAX: Final = 20_000
"""Actions with more cases than that have so many drawn, but for those of the fields that name messages."""

SETTLING: Final = (Action.CONFIRM, Action.RELEASE, Action.EXTEND, Action.BURY, Action.WITHHOLD)
"""Actions about messages: all combinations of the fields that name them are tried."""

UNREAD: Final[dict[str, Any]] = {"host": "127.0.0.1", "port": 1, "value": "x", "raw": True, "max_ready": 7}
"""Fields that few actions read: one that an action does not read stands in some of its cases."""

IDS: Final = (4096, 2**53 - 1)


def values(field: str, ids: tuple[int, ...] = IDS) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Give two valid values of a field, and two that are not; `ids`: messages that may be there."""
    first, last = ids[0], ids[-1]
    invalid: tuple[Any, Any] = (-1, [])
    named: dict[str, tuple[tuple[Any, Any], tuple[Any, Any]]] = {
        "msg_id": ((first, last), (0, "x")),
        "msg_ids": (([first], list(ids)), ([], [0])),
        "delivery": ((1, [1] * len(ids)), (-1, [])),
        "queue": (("a", "none"), ("", 7)),
        "queues": ((["a", "b"], ["none"]), ([], [""])),
        "key": (("k", "none"), ("", 7)),
        "scope": (("all", "all"), ("", 7)),
        "on_duplicate": (("keep", "replace"), ("", 7)),
        "unless": ((first, last), (-1, "x")),
        "data": (("text", {"a": [1]}), (None, 1)),
        "messages": (([{"data": 1}], [{"data": 1, "key": "k"}, {"data": 2, "key": "k"}]), ([], [{"no": 1}])),
        "dead_letter": (("b", None), (7, [])),
        "headers": (({"a": "b"}, {}), ({"": "b"}, 7)),
        "encoding": (("utf8", "base64"), ("none", 7)),
        "expire": (("drop", "bury"), ("", 7)),
        "paused": ((True, "in"), ("no", 7)),
        "state": (("ready", "in_flight,delayed"), (7, [])),
        "sort": (("due", "oldest"), (7, [])),
        "after": ((5, "a"), (-1, [])),
        "command": (("status", "add"), (7, [])),
        "pattern": (("a*", "["), (7, [])),
        "to": (("b", "none"), ("", 7)),
        "reader": (("r", "s"), ("", 7)),
        "reason": (("because", ""), (7, [])),
        "value": (("x", ""), (7, [])),
        "host": (("127.0.0.1", "::1"), ("", 7)),
        "token": (("t", "none"), (7, [])),
        "delay": ((0, 5), (-1, "x")),
        "ttl": ((0, 60), (-1, "x")),
        "retry": ((0, 30), (-1, "x")),
        "wait": ((0, 0.05), (-1, "x")),
        "count": ((1, 1000), (0, 1001)),
        "replicate": ((1, 64), (0, 65)),
        "shard": ((0, 7), (-1, 1024)),
        "port": ((1, 65535), (0, 65536)),
        "node_id": ((1, 1_000_000), (0, "x")),
        "priority": ((-1, 5), (2**31, "x")),
    }
    if field in named:
        return named[field]
    if field in (
        "keep",
        "full",
        "held",
        "early",
        "discard",
        "create",
        "raw",
        "in_turn",
        "nack",
        "as_job",
        "sums",
        "system",
    ):
        return (True, False), (7, "x")
    if field == "descending":
        return (True, False), (7, "x")
    return (1, 3600), invalid


def _fields_of(action: int) -> tuple[str, ...]:
    own = READS[action]
    unread = next(name for name in UNREAD if name not in own)
    return (*own, unread)


def _cases(
    action: int, fields: tuple[str, ...], ids: tuple[int, ...], *, valid_alone: bool
) -> Iterator[dict[str, Any]]:
    choices = {name: [v for part in values(name, ids)[: 1 if valid_alone else 2] for v in part] for name in fields}
    for count in range(TOGETHER_MAX + 1):
        for names in combinations(fields, count):
            for chosen in product(*(choices[name] for name in names)):
                yield {"action": action, **dict(zip(names, chosen, strict=True))}


def _count(fields: int, choices: int) -> int:
    return sum(comb(fields, count) * choices**count for count in range(TOGETHER_MAX + 1))


def cases(
    action: int, seed: int, ids: tuple[int, ...] = IDS, *, most: int = CASES_MAX, valid_alone: bool = False
) -> Iterator[dict[str, Any]]:
    """Give the cases of an action: all where they are at most `most`, else so many that `seed` draws.

    Of the fields that name messages, all cases are given in any case, for the actions that settle messages.
    `valid_alone`: no value is invalid by itself.
    """
    fields = _fields_of(action)
    choices = 2 if valid_alone else 4
    if _count(len(fields), choices) <= most:
        yield from _cases(action, fields, ids, valid_alone=valid_alone)
        return
    if action in SETTLING:
        naming = (*NAMING, *(name for name in READS[action] if name == "held"))
        yield from _cases(action, naming, ids, valid_alone=valid_alone)
    draw = random.Random(f"{seed}/{action}")
    for _ in range(most):
        names = draw.sample(fields, min(draw.randint(1, TOGETHER_MAX), len(fields)))
        chosen = {}
        for name in names:
            valid, invalid = values(name, ids)
            chosen[name] = draw.choice(valid if valid_alone else (*valid, *invalid))
        yield {"action": action, **chosen}
