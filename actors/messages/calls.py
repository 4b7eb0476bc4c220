"""Requests on their way, and their answers.

| message | from | to | meaning |
|---|---|---|---|
| Execute | Listener | Router, and from there QueueOwner | do these requests, all that one turn of the loop read |
| Answered | whoever did it | Listener or Router, whoever the call names | these requests are done |
| ClientGone | Listener | Router, QueueOwner | keep no message waiting for this client |
| Rejudge | Listener | Router, QueueOwner | what this client may do has changed |
| Returned | QueueOwner | Router | these were not done: this node does not lead |
| LogAsked, ClusterAsked | QueueOwner | Replicator | requests that are about the log or the cluster |
| StatusAsked | QueueOwner | Replicator | a status that wants the log's part added |
| CountsWanted | Router | Listener | a status for another worker wants what this one's clients are added |
"""

from typing import Final, Protocol

import msgspec

from actors.messages.rights import ITSELF, Principal
from quorate.protocol import BATCH_MAX, Reply, Request, StatusReply


class Client(Protocol):
    """Where a reply goes: a connection, or the sender of a datagram."""

    @property
    def has_left(self) -> bool:
        """Whether it asks nothing more: it may still read, but does not wait for messages."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody reads its replies any more: no message should be taken for it."""

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Send `reply` to `request`, which came with `order`."""


class Receiver(Protocol):
    """Whoever takes messages: an actor's reference. To a machine it is a key, and no more."""

    def tell(self, message: "Answered") -> None:
        """Send a message."""


REPLY_BYTES_MAX: Final = 4 << 20
"""What a reply has at most, or one message."""


class Call(msgspec.Struct, gc=False):
    """A request on its way: who asked, and the `order` by which its client knows which request is answered.

    The answer goes to the actor `reply_to`; it should not be larger than `reply_bytes_max`, but for one message.
    `is_single`: its client has this call alone, and is not said to be gone. `returns`: how often it came back undone.
    `is_part`: of a request that several shards do a part of, so its client can't be sent elsewhere for it.
    `principal` asks: what the request names was looked at, but not the queues of messages that it names by their ids.
    """

    request: Request
    client: Client
    order: int
    reply_to: Receiver
    reply_bytes_max: int = REPLY_BYTES_MAX
    is_single: bool = False
    returns: int = 0
    is_part: bool = False
    principal: Principal = ITSELF


Answer = tuple[Call, Reply]
"""A reply behind the call that it answers."""


class Execute(msgspec.Struct):
    """Do these requests; all that one turn of the loop read."""

    calls: list[Call]


class Answered(msgspec.Struct):
    """These requests are done."""

    answers: list[Answer]


class ClientGone(msgspec.Struct):
    """Nobody reads this client's replies any more: consumers that wait for it need no message."""

    client: Client


class Rejudge(msgspec.Struct):
    """This client may do what `principal` may, from now on: also as far as it waits for something."""

    client: Client
    principal: Principal


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
    """A client asks how this node is: `reply` has the queues' part, and lacks the log's."""

    call: Call
    reply: StatusReply


class CountsWanted(msgspec.Struct):
    """`reply` lacks what the Listener counts; answered by `Answered`, as the call says."""

    call: Call
    reply: StatusReply


ROW_REPLY_BYTES: Final = 500
"""The longest row of a list: its name has at most 255 bytes, escaped twice as many, and the counts."""


def rows_in_reply(call: Call) -> int:
    """How many rows the reply to a list has at most."""
    return min(call.request.count or BATCH_MAX, max(call.reply_bytes_max // ROW_REPLY_BYTES, 1))


def send_answers(answers: list[Answer]) -> None:
    """Tell each actor its answers, in one message; nearly always that is one actor."""
    if not answers:
        return
    first = answers[0][0].reply_to
    for call, _ in answers:
        if call.reply_to is not first:
            break
    else:
        first.tell(Answered(answers))
        return
    by_actor: dict[int, list[Answer]] = {}
    for answer in answers:
        by_actor.setdefault(id(answer[0].reply_to), []).append(answer)
    for group in by_actor.values():
        group[0][0].reply_to.tell(Answered(group))
