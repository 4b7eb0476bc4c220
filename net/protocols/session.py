"""What a wire protocol is to the rest: a client's bytes in, what it asks and what is wrong out, answers to bytes.

A session has no socket, no clock and no loop. One serves one client's stream; a connection is handed it from outside,
so that any protocol runs on any listener. A protocol is a class here and a row in `net.protocols`.

| a client's bytes make | which the connection |
|---|---|
| `Request` | asks the node; `answered` makes bytes of the reply, or the next request for the same place |
| `Ask` | the same, with a note for `answered` |
| `Say` | answers in its place, without the node: a ping, a version, who else there is |
| `Close` | takes for the client's last word: it closes when all before it is answered, silently |
| `Fault` | answers in its place; a fatal one is the last thing that is read |
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from quorate.protocol import Reply, Request

LARGE_BYTES: Final = 2048
"""A request of more bytes counts against what clients may make a worker hold, as long as it is open."""


class Fault(NamedTuple):
    """Input that is no request: the reply's fixed word and sentence; `is_fatal`: nothing after it can be read."""

    error: str
    reason: str
    is_fatal: bool = False
    body: bytes = b""


class Ask:
    """A request, and what the session wants to be told again with its reply: which command it is a part of, say.

    A plain class, since one is made for nearly each request: a named tuple's is made by interpreted code.
    """

    __slots__ = ("note", "request")

    def __init__(self, request: Request, note: Any) -> None:
        self.request = request
        self.note = note


class Awaited:
    """A note that makes the answer itself, for what is asked with nearly each request: compiled, its method is called
    at once. What a subclass lacks raises when it is called, as with `Session`.
    """

    def told(self, reply: Reply) -> "bytes | Request | Ask":
        """Give the reply's bytes, or what is asked next."""
        raise NotImplementedError  # abstract: the class says why there is a body

    def __repr__(self) -> str:
        return type(self).__name__


class Say(NamedTuple):
    """An answer that needs no node."""

    data: bytes


class Close(NamedTuple):
    """The client's last word; nothing after it is read."""


Found = Request | Ask | Say | Close | Fault


class RequestLimits(NamedTuple):
    """Sizes in bytes, nesting in levels."""

    request_bytes_max: int = 4 << 20
    depth_max: int = 32


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(ABC):
    """One client's stream, or, for datagrams, one at a time.

    A base class, and no Protocol: compiled code calls what it knows the place of, and this is called with each request.
    `is_ordered`: answers leave in the order of the requests, but for those with `seq`; else each when it is there.
    `partial_bytes`: how much is held of a request that is not whole yet. `large`: of what `receive` has just returned,
    by place, the bytes of those that had more than `LARGE_BYTES`. A subclass calls `super().__init__()`.
    What it raises ends its client's connection, and nothing else.
    What a subclass lacks raises when it is called: mypyc lets an incomplete one be made, and a body that is a docstring
    alone would give undefined memory.
    """

    def __init__(self, *, is_ordered: bool = True) -> None:
        self.is_ordered = is_ordered
        self.partial_bytes = 0
        self.large: dict[int, int] = {}

    def discard(self) -> None:
        """Nothing more is received: what is held of a request that is not whole may go."""
        self.partial_bytes = 0

    @property
    def has_more(self) -> bool:
        """Whether `receive` has not looked at all that has come, since that would take long: it is asked again, with
        b""."""
        return False

    @property
    @abstractmethod
    def state(self) -> bytes | None:
        """What another worker's session of this protocol needs to go on from here; None: only this one can, now.

        Asked when nothing is open. Little: it goes with the client's socket in one datagram.
        """
        raise NotImplementedError  # abstract: the class says why there is a body

    def resume(self, state: bytes) -> None:
        """Go on where another has stopped, as its `state` says, if that is not empty. Before the first byte."""
        raise NotImplementedError("this protocol remembers nothing")

    @abstractmethod
    def receive(self, data: bytes) -> list[Found]:
        """Find what `data` completes, in order; any piece of the stream will do."""
        raise NotImplementedError  # abstract: the class says why there is a body

    @abstractmethod
    def answered(self, request: Request | None, reply: Reply, note: Any = None) -> bytes | Request | Ask:
        """Make the reply as the client gets it, or what is to be asked next, to be answered in its place.

        `request` None: the reply is to a fault, or to nobody's request, and bytes are made of it. `note`: the `Ask`'s.
        """
        raise NotImplementedError  # abstract: the class says why there is a body

    @abstractmethod
    def fault_reply(self, fault: Fault) -> Reply:
        """Make the reply to a fault, with what can be read of its request."""
        raise NotImplementedError  # abstract: the class says why there is a body


MakeSession = Callable[[RequestLimits], Session]
"""Makes the session of one client: a `SessionOf`, once it is told of the node."""
