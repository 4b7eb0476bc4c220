"""Messages: calls."""

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pykka

from quorate.protocol import Reply, Request


class Client(Protocol):
    """Where a reply goes: a connection, or the sender of a datagram."""

    def answer(self, order: int, reply: Reply) -> None:
        """Send `reply` to the request that came with `order`."""


class Call(msgspec.Struct, gc=False):
    """A request on its way: who asked, and the `order` by which its client knows which request is answered.

    The answer goes to the actor `reply_to`; it should not be larger than `reply_bytes_max`, but for one message.
    `is_single`: its client has this call alone, and is not said to be gone. `returns`: how often it came back undone.
    """

    request: Request
    client: Client
    order: int
    reply_to: "pykka.ActorRef[Any]"
    reply_bytes_max: int = 4 << 20
    is_single: bool = False
    returns: int = 0


Answer = tuple[Call, Reply]
"""A reply behind the call that it answers."""


@dataclass(slots=True)
class Execute:
    """Do these requests; all that one turn of the loop read."""

    calls: list[Call]


@dataclass(slots=True)
class Answered:
    """These requests are done."""

    answers: list[Answer]


@dataclass(slots=True)
class ClientGone:
    """Nobody reads this client's replies any more: consumers that wait for it need no message."""

    client: Client


@dataclass(slots=True)
class LogAsked:
    """A client wants to read the log."""

    call: Call


@dataclass(slots=True)
class Returned:
    """These requests were not done, since this node does not lead (any more)."""

    calls: list[Call]


@dataclass(slots=True)
class ClusterAsked:
    """A client asks about, or for, the cluster."""

    call: Call


def send_answers(answers: list[Answer]) -> None:
    """Tell each actor its answers, in one message."""
    if not answers:
        return
    first = answers[0][0].reply_to
    for call, _ in answers:
        if call.reply_to is not first:
            break
    else:
        first.tell(Answered(answers))
        return
    by_actor: dict[str, list[Answer]] = {}
    for answer in answers:
        by_actor.setdefault(answer[0].reply_to.actor_urn, []).append(answer)
    for group in by_actor.values():
        group[0][0].reply_to.tell(Answered(group))
