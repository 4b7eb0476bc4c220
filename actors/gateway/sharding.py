"""Which shards a request concerns, and what each of them is asked. A machine.

A queue is in one shard (`quorate.shards`), and so is a message. What concerns several shards is asked of each, and
the answers make one reply: see the gathers in `actors.gateway.gathers`, and `actors.gateway.scatter_gather` for a
consume.
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from actors.messages.naming import delivery_fault
from quorate.actions import COMMAND_OF, OF_ALL_TOPICS, OF_TOPICS, About, Command, about
from quorate.protocol import Action, ErrorWord, Reply, Request, TransactionRequest, goes_to, refusal
from quorate.shards import shard_of_message, shard_of_queue

SEVERAL: Final = -1
"""Stands for the shard of a request that concerns more than one, or none that there is."""

EVERY_SHARD: Final = about(About.EVERY_SHARD)
BY_NUMBER: Final = about(About.LOG, About.SHARD)
"""What names its shard itself."""

BY_MESSAGE: Final = about(About.MESSAGE, About.MESSAGES)
MESSAGES: Final = about(About.MESSAGES)
OVER_QUEUES: Final = about(About.QUEUES)
OF_NODE: Final = about(About.NODE)
OF_LEADERS: Final = about(About.LEADER)
OF_CLUSTER: Final = about(About.CLUSTER)
OF_WAITS: Final = about(About.WAIT)
"""Sets, not rows: each is looked at for each request."""

UNKNOWN_COMMAND: Final = Command("")

GATHER_PATIENCE_S: Final = 1.0
"""So long a shard without a leader is waited for by what tells of all of them; the reply says that it is missing."""


MAP_PATIENCE_S: Final = 0.1
"""The same for the map, which is only advice: a client that learns it in passing has better things to do."""


def _lists_topics(request: Request) -> bool:
    """Whether a request is about the topics of all shards."""
    return request.action == Action.TOPIC and request.command == OF_ALL_TOPICS


def short_patience(request: Request) -> float:
    """For how long a part of the request waits for its shard's leader (s)."""
    longest_s = MAP_PATIENCE_S if request.action in OF_LEADERS else GATHER_PATIENCE_S
    return longest_s if request.patience is None else min(request.patience, longest_s)


class Part(NamedTuple):
    """What one shard is asked of a request that concerns several."""

    shard: int
    request: Request


class Sharding:
    """For one worker, which has shard `own` of `shards`."""

    def __init__(self, shards: int, own: int) -> None:
        self.shards = shards
        self.own = own

    def shard_of(self, request: Request) -> int:
        """Find the one shard that does the request, or `SEVERAL`. What names nothing is refused by any shard.

        The action says which of the fields counts: others may be there, and mean nothing.
        """
        action = request.action
        if action in BY_MESSAGE and (request.msg_ids is not None or request.msg_id is not None):
            if request.msg_ids is not None and action in MESSAGES:
                return SEVERAL
            shard = self.own if request.msg_id is None else shard_of_message(request.msg_id)
            return shard if shard < self.shards else self.own
        if action in OF_WAITS or (request.scope is not None and action in BY_MESSAGE):  # a key may be in any
            return SEVERAL
        if isinstance(request, TransactionRequest):
            shards = {*self.of_operations(request)}
            return shards.pop() if len(shards) == 1 else SEVERAL
        if action in OF_TOPICS:
            if _lists_topics(request):
                return SEVERAL
            if request.topic is None:
                return self.own
            return shard_of_queue(request.topic, self.shards)
        if action in EVERY_SHARD or (action in OVER_QUEUES and request.queues is not None):
            return SEVERAL
        if action in BY_NUMBER:
            shard = request.shard or 0
            return shard if shard < self.shards else SEVERAL
        if action in OF_NODE:
            return 0
        if action in OF_CLUSTER:
            command = COMMAND_OF.get(request.command, UNKNOWN_COMMAND)
            if command.has_shard:
                return SEVERAL if request.shard is None or request.shard >= self.shards else request.shard
            return SEVERAL if command.gathered else 0
        if request.queue is None:
            return SEVERAL if action in OF_LEADERS else self.own
        shard = shard_of_queue(request.queue, self.shards)
        other = goes_to(request)
        return shard if not other or shard_of_queue(other, self.shards) == shard else SEVERAL

    def of_operations(self, request: TransactionRequest) -> dict[int, str]:
        """Find the shards that a transaction's operations concern, each with the first thing named that is in it."""
        found: dict[int, str] = {}
        for one in request.operations:
            ids = (
                [*([] if one.msg_id is None else [one.msg_id]), *(one.msg_ids or ())] if one.action in MESSAGES else []
            )
            for msg_id in ids:
                shard = shard_of_message(msg_id)
                found.setdefault(shard if shard < self.shards else self.own, f"message {msg_id}")
            name = one.topic if one.action in OF_TOPICS else one.queue
            if not ids and (name is not None or one.scope is not None):
                found.setdefault(self.shard_of(one), repr(name))
        return found or {self.own: ""}

    def groups(self, request: Request) -> list[tuple[int, list[str]]]:
        """Group the queues that a consume names, in its order of preference; neighbours in one shard are together.

        All of a shard's are where one of each is to be taken, again and again: nobody is preferred then.
        """
        names = [*([] if request.queue is None else [request.queue]), *(request.queues or ())]
        groups: list[tuple[int, list[str]]] = []
        for name in dict.fromkeys(names):
            shard = shard_of_queue(name, self.shards)
            there = [group for group in (groups if request.in_turn else groups[-1:]) if group[0] == shard]
            if there:
                there[0][1].append(name)
            else:
                groups.append((shard, [name]))
        return groups

    def of_messages(self, request: Request) -> list[Part]:
        """Split a request about messages, for each shard that has some of them; by a key, for all: any may have it."""
        if request.msg_id is None and request.msg_ids is None:
            return [Part(shard, request) for shard in range(self.shards)]
        ids = [*([] if request.msg_id is None else [request.msg_id]), *(request.msg_ids or ())]
        by_shard: dict[int, list[int]] = {}
        for msg_id in dict.fromkeys(ids):
            shard = shard_of_message(msg_id)
            by_shard.setdefault(shard if shard < self.shards else self.own, []).append(msg_id)
        parts = [Part(shard, replace(request, msg_id=None, msg_ids=ids)) for shard, ids in by_shard.items()]
        if isinstance(request.delivery, list):  # one for each of its ids: see `fault`
            counts = dict(zip(reversed(ids), reversed(request.delivery), strict=True))
            for part in parts:
                part.request.delivery = [counts[msg_id] for msg_id in part.request.msg_ids or ()]
        return parts

    def every(self, request: Request) -> list[Part]:
        """Split a request about all shards, for each of them."""
        asked = replace(request, patience=short_patience(request))
        return [Part(shard, asked) for shard in range(self.shards)]

    def fault(self, request: Request) -> Reply | None:
        """Why what concerns several shards can't be done; None if it can."""
        if request.delivery is not None and request.action in MESSAGES and (why := delivery_fault(request)):
            return refusal(request, ErrorWord.FIELD, f"delivery {why}")
        if request.action in OF_CLUSTER and COMMAND_OF.get(request.command, UNKNOWN_COMMAND).has_shard:
            reason = f"shard: which one is to be led by another node? There are {self.shards}, from 0 on"
            return refusal(request, ErrorWord.FIELD, reason)
        if isinstance(request, TransactionRequest):
            found = self.of_operations(request)
            named = ", ".join(
                f"{name} in shard {shard}" if shard != SEVERAL else "a key that is unique among all in any shard"
                for shard, name in sorted(found.items())
            )
            reason = f"a transaction is of one shard: {named}; names with the same {{tag}} are in one shard"
            return refusal(request, ErrorWord.SEVERAL_SHARDS, reason)
        other = goes_to(request)
        if other is not None and request.queue is not None:
            mine, its = (shard_of_queue(name, self.shards) for name in (request.queue, other))
            if mine != its:
                field = "to" if request.action == Action.MOVE else "dead_letter"
                reason = (
                    f"{field}: {other!r} is in shard {its} and {request.queue!r} in shard {mine}, "
                    "and no message moves between shards: queues whose names have the same {tag} are in one shard"
                )
                return refusal(request, ErrorWord.NOT_SUPPORTED, reason)
        if request.action in BY_NUMBER:
            reason = f"shard: there is no shard {request.shard}; there are {self.shards}"
            return refusal(request, ErrorWord.FIELD, reason)
        return None
