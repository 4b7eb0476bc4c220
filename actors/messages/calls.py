"""Requests on their way, their answers, and what is written down of who did what.

| message | from | to | meaning |
|---|---|---|---|
| Execute | Listener, Router | Router, QueueOwner | do these requests, all that one turn read |
| Answered | QueueOwner, Replicator, Router | Listener, Router | these are done: to whom the call names |
| ClientGone | Listener, Router | Router, QueueOwner | keep no message waiting for this client |
| RightsChanged | Listener, Router | Router, QueueOwner | what this client may do has changed |
| StrangersForwarded | Router | Listener | so many requests of strangers have left for other nodes, or other workers |
| Returned | QueueOwner | Router | these were not done: this node does not lead |
| LogAsked, ClusterAsked | QueueOwner | Replicator | requests that are about the log or the cluster |
| StatusAsked | QueueOwner | Replicator | a status, with the queues' part of it |
| Audit | Listener | Auditor | write these lines |
| RefusedForwarded | Router | Listener | what another node forwarded, this one did not allow |
"""

from typing import Any

import msgspec

from actors.messages.call import Answer, Call, Client
from actors.messages.rights import Principal


class Execute(msgspec.Struct):
    """Do these requests; all that one turn of the loop read."""

    calls: list[Call]


class Answered(msgspec.Struct):
    """These requests are done."""

    answers: list[Answer]


class ClientGone(msgspec.Struct):
    """Nobody reads this client's replies any more: consumers that wait for it need no message."""

    client: Client


class RightsChanged(msgspec.Struct):
    """This client may do what `principal` may, from now on: also as far as it waits for something."""

    client: Client
    principal: Principal


class StrangersForwarded(msgspec.Struct):
    """So many requests of clients that have proved nothing have left for others, each of which has work with them."""

    count: int


class Returned(msgspec.Struct):
    """These requests were not done, since this node does not lead (any more)."""

    calls: list[Call]


class LogAsked(msgspec.Struct):
    """A client wants to read the log."""

    call: Call


class ClusterAsked(msgspec.Struct):
    """A client asks about, or for, the cluster."""

    call: Call


class StatusAsked(msgspec.Struct):
    """A client asks how this node is: `shard` has what the queues' owner tells of its shard."""

    call: Call
    shard: dict[str, Any]


class Audit(msgspec.Struct):
    """Each a JSON object: when (`at`, Unix s), who (`principal`), from where, what, and whether it was allowed."""

    lines: list[dict[str, Any]]


class RefusedForwarded(msgspec.Struct):
    """Each call with the right that was missing; node `node_id` had forwarded them."""

    node_id: int
    refused: list[tuple[Call, str]]
