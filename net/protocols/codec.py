"""What a wire protocol's codec is to the rest: bytes in, requests and faults out, and replies back to bytes.

A codec has no socket, no clock and no loop. One serves one client's stream; a connection is handed it from outside, so
that any protocol runs on any listener. It is handed the request with its reply: most protocols answer in a form that
depends on what was asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple

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


class CodecLimits(NamedTuple):
    """Sizes in bytes, nesting in levels."""

    request_bytes_max: int = 4 << 20
    depth_max: int = 32


@mypyc_attr(allow_interpreted_subclasses=True)
class Codec(ABC):
    """One client's stream, or, for datagrams, one at a time.

    A base class, and no Protocol: compiled code calls what it knows the place of, and this is called with each request.
    `partial_bytes`: how much is held of a request that is not whole yet. `large`: of what `receive` has just returned,
    by place, the bytes of those that had more than `LARGE_BYTES`. A subclass calls `super().__init__()`.
    What it raises ends its client's connection, and nothing else.
    What a subclass lacks raises when it is called: mypyc lets an incomplete one be made, and a body that is a docstring
    alone would give undefined memory.
    """

    def __init__(self) -> None:
        self.partial_bytes = 0
        self.large: dict[int, int] = {}

    def discard(self) -> None:
        """Nothing more is received: what is held of a request that is not whole may go."""
        self.partial_bytes = 0

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nothing is remembered of what has come: another codec could go on from here."""
        raise NotImplementedError  # abstract: the class says why there is a body

    @abstractmethod
    def receive(self, data: bytes) -> list[Request | Fault]:
        """The requests and faults that `data` completes, in order; any piece of the stream will do."""
        raise NotImplementedError  # abstract: the class says why there is a body

    @abstractmethod
    def encode(self, request: Request | None, reply: Reply) -> bytes:
        """The reply to `request`, None: to a fault or to nobody's request, as the client gets it."""
        raise NotImplementedError  # abstract: the class says why there is a body

    @abstractmethod
    def fault_reply(self, fault: Fault) -> Reply:
        """The reply to a fault, with what can be read of its request."""
        raise NotImplementedError  # abstract: the class says why there is a body


MakeCodec = Callable[[CodecLimits], Codec]
"""Makes the codec of one client. A protocol's name stands for one of these, in `net.protocols.PROTOCOLS`."""
