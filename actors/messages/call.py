"""A request on its way through the actors, and who waits for its reply."""

from typing import Any, Final, Protocol

from msgspec.structs import replace

from actors.messages.mailbox import Mailbox
from actors.messages.measures import ActionCounts
from actors.messages.rights import ANONYMOUS, ITSELF, Principal
from quorate.actions import UNLESS_GONE, WAITS
from quorate.protocol import BATCH_MAX, Action, ErrorWord, Reply, Request, done, refusal
from quorate.stream_replies import GroupReply, ReadReply

GIVEN_UP: Final = "it was not done: its client ended its side of the connection before the request's turn came"


class Client(Protocol):
    """Where a reply goes: a connection, or the sender of a datagram."""

    @property
    def has_left(self) -> bool:
        """Whether it asks nothing more (half-closed): it may still read, but does not wait for messages."""

    @property
    def has_ended(self) -> bool:
        """Whether its end of the stream is closed by now, though that may not have been read yet. A system call."""

    @property
    def is_gone(self) -> bool:
        """Whether its stream is closed, so that nobody reads its replies: nothing of it is begun any more."""

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Send `reply` to `request`, which came with `order`."""


Receiver = Mailbox[Any]
"""Whoever takes the answer."""

REPLY_BYTES_MAX: Final = 4 << 20
"""What a reply has at most, or one message."""


class Call:
    """A request on its way: who asked, and the `order` by which its client knows which request is answered.

    The answer goes to the actor `reply_to`; it should not be larger than `reply_bytes_max`, but for one message.
    `is_single`: its client has this call alone, and is not said to be gone. `returns`: how often it came back undone.
    `is_part`: of a request that several shards do a part of, so its client can't be sent elsewhere for it.
    `was_forwarded`: another node or worker has done it, and its reply came over a link.
    `read_at`: when a client's was read (monotonic s); 0 where nobody measures how long it takes.
    `elsewhere`: this node can't answer it, though any node is asked: the leader is to.
    `was_late`: it was held, came back undone, or was read by a loop that had stood still: see `is_given_up`.
    `counts`: where the Listener counts what becomes of it; None: nobody does.
    `principal` asks: what the request names was looked at, but not the queues of messages that it names by their ids.

    A plain class, since one is made for each request: compiled, it costs half of a Struct.
    """

    __slots__ = (
        "client",
        "counts",
        "elsewhere",
        "is_part",
        "is_single",
        "order",
        "principal",
        "read_at",
        "reply_bytes_max",
        "reply_to",
        "request",
        "returns",
        "was_forwarded",
        "was_late",
    )

    def __init__(
        self,
        request: Request,
        client: Client,
        order: int,
        reply_to: Receiver,
        reply_bytes_max: int = REPLY_BYTES_MAX,
        *,
        is_single: bool = False,
        returns: int = 0,
        is_part: bool = False,
        principal: Principal = ITSELF,
    ) -> None:
        self.request = request
        self.client = client
        self.order = order
        self.reply_to = reply_to
        self.reply_bytes_max = reply_bytes_max
        self.is_single = is_single
        self.returns = returns
        self.is_part = is_part
        self.principal = principal
        self.was_forwarded = self.elsewhere = False
        self.was_late = returns > 0
        self.read_at = 0.0
        self.counts: ActionCounts | None = None


def consumes(call: Call) -> bool:
    """Whether it takes messages, or waits for one."""
    return call.request.action in WAITS


def is_given_up(call: Call) -> bool:
    """Whether a call that has made no record is not to be done any more, since its client may have given it up.

    A client is *gone* when its stream is closed or a write to it failed: nothing that it asked for is begun any more.
    It is *half-closed* when it has ended its side: it may read on, so all that it asked for is done and answered. But
    it may as well have closed, and have asked for something else since. So what sets or clears something
    (`unless_gone`) is not done for a half-closed client if it was late. What a client closed is often read a turn
    later than what it had asked before; so for these the system is asked.
    """
    client = call.client
    if client.is_gone:
        return True
    return call.was_late and call.request.action in UNLESS_GONE and (client.has_left or client.has_ended)


def note_late(calls: list[Call]) -> None:
    """Note that these were late: see `is_given_up`."""
    for call in calls:
        call.was_late = True


def given_up(request: Request) -> Reply:
    """Make the refusal of a call that is given up: it is certain that it was not done."""
    return refusal(request, ErrorWord.GIVEN_UP, GIVEN_UP)


def may_consume(call: Call) -> bool:
    """Whether a consumer whose client asks nothing more still takes a message: if it reads, but it waits for none."""
    if call.client.is_gone:
        return False
    if call.request.wait:
        call.request = replace(call.request, wait=0.001)  # not None: its connection knows the reply as one that waits
    return True


def nothing_for(request: Request) -> Reply:
    """Make the reply to what waited in vain: a consume, a watch, a show of a key, or a read of a topic."""
    if request.action == Action.SHOW:
        return refusal(request, ErrorWord.NO_SUCH_MESSAGE, f"there is no message with the key {request.key!r}")
    if request.action == Action.READ:
        at = request.offset if isinstance(request.offset, int) else 0
        return done(request, ReadReply, partition=request.partition or 0, messages=[], next=at, first=0, end=at)
    if request.action == Action.GROUP:
        return done(request, GroupReply, group=request.group, member=request.member)
    return done(request, Reply)


Answer = tuple[Call, Reply]
"""A reply behind the call that it answers."""


ROW_REPLY_BYTES: Final = 500
"""The longest row of a list: its name has at most 255 bytes, escaped twice as many, and the counts."""

FULL_ROW_REPLY_BYTES: Final = 1500
"""With its dead letter queue and its totals."""


def is_strangers(call: Call) -> bool:
    """Whether nobody knows whose it is, where that can be known."""
    return call.principal is not ITSELF and call.principal.name == ANONYMOUS


def rows_in_reply(call: Call) -> int:
    """How many rows the reply to a list has at most."""
    row = FULL_ROW_REPLY_BYTES if call.request.full else ROW_REPLY_BYTES
    return min(call.request.count or BATCH_MAX, max(call.reply_bytes_max // row, 1))
