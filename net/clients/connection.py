"""What one client has: its codec, the order of its replies, and the limits that keep it from harming others.

No socket here: bytes come in by `receive`, and go out by the transport that it was given. A request without `seq`
is answered in the order of the requests; one with `seq` as soon as its answer is there. A fault is answered like a
request, in its place. After a fatal fault nothing more is read, and the connection closes when all is answered.

| state | bytes come | the client ends its side | all is answered | the stream is closed |
|---|---|---|---|---|
| OPEN | requests | ENDED | | DEAD |
| ENDED: it may still read | | | closes | DEAD |
| CLOSING: nothing more is looked at | dropped | | LINGERING, or closes if the client has ended | DEAD |
| LINGERING: all was said, the client may still send | dropped | closes | | DEAD |
| DEAD | dropped | | answers are dropped | |

Beside that it may be *stalled* (the client does not read) or *full* (as much as it may have is open); in both nothing
is taken from it, and so it is not read from.
"""

from collections import deque
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from net.clients.reply_length import LONG, ONE_MESSAGE, reply_length
from net.protocols.codec import Codec, CodecLimits, Fault
from quorate.protocol import Code, ErrorWord, Reply, Request

AT_ONCE: Final = -1
"""The order of a request that may be answered out of order."""

NOBODYS: Final = Request(action=0)
"""Stands for the request of a reply that answers none: a fault, or a refusal of the whole client."""

MESSAGES_MAX: Final = 16
"""Consumes that do not wait, open at once: each may bring a message of the largest size."""

LINGER_S: Final = 3.0
"""For so long bytes are read and dropped: to close with some unread would throw away the refusal that was just sent."""

LINGER_BYTES_MAX: Final = 128 << 20


class ConnectionLimits(NamedTuple):
    """Counts and seconds. `pipelined_max`: requests a client may have open; more of them wait, and
    it is not read meanwhile.

    `partial_s_max`: how long a request may take to come in whole. `stalled_s_max`: how long a client may leave its
    replies unread. `idle_s_max`: how long it may say nothing at all, with nothing open; 0: for ever.
    """

    codec: CodecLimits = CodecLimits()
    pipelined_max: int = 128
    partial_s_max: float = 30.0
    stalled_s_max: float = 60.0
    idle_s_max: float = 0.0


class Transport(Protocol):
    """The client's end of a stream."""

    def write(self, data: bytes) -> None:
        """Send, now or when there is room."""

    def get_write_buffer_size(self) -> int:
        """How much waits to be sent (bytes)."""

    def write_eof(self) -> None:
        """Say that nothing more will be sent, when all that was written has left."""

    def pause_reading(self) -> None:
        """Take nothing more from the client."""

    def resume_reading(self) -> None:
        """Take from the client again."""

    def close(self) -> None:
        """Close when all that was written has left."""

    def abort(self) -> None:
        """Close at once."""


class Sink(Protocol):
    """Where requests go."""

    def received(self, connection: "Connection", order: int, request: Request) -> None:
        """A request came; answer it by `connection.answer(order, request, reply)`."""

    def ended(self, connection: "Connection") -> None:
        """The client asks nothing more, and may be gone: do not keep messages waiting for it."""

    def closed(self, connection: "Connection") -> None:
        """The client is gone."""

    def stalled(self, connection: "Connection", is_stalled: bool) -> None:
        """The client leaves its replies unread, or reads again."""

    def settled(self, connection: "Connection") -> None:
        """All is answered, of a client that `is_moving`."""

    def partial(self, connection: "Connection", grown: int) -> None:
        """A request that is not whole yet takes so many bytes more (or less)."""


class State(Enum):
    """See the table above."""

    OPEN = "open"
    ENDED = "ended"
    CLOSING = "closing"
    LINGERING = "lingering"
    DEAD = "dead"


_OPEN: Final = State.OPEN
_ENDED: Final = State.ENDED
_CLOSING: Final = State.CLOSING
_LINGERING: Final = State.LINGERING
_DEAD: Final = State.DEAD
"""An enum's members cost several times as much to look up, and these are on every request's way."""


class Connection:
    """One client of a stream protocol, which `codec` speaks.

    Notes of others: `protocol`, its name; `habit`; `visitor`, who is there, and the `principal` that its requests have;
    `is_moving`: somebody waits for it to be quiet.
    """

    __slots__ = (
        "_codec",
        "_dropped",
        "_has_ended",
        "_held",
        "_is_alone",
        "_is_handing_on",
        "_is_paused",
        "_is_stalled",
        "_limits",
        "_messages",
        "_next_order",
        "_next_to_send",
        "_open",
        "_partial",
        "_quiet_s",
        "_sink",
        "_state",
        "_transport",
        "_waiting",
        "_was_heard",
        "habit",
        "is_moving",
        "principal",
        "protocol",
        "visitor",
    )

    def __init__(self, transport: Transport, sink: Sink, codec: Codec, limits: ConnectionLimits) -> None:
        self.protocol = ""
        self.habit: Any = None
        self.visitor: Any = None
        self.principal: Any = None
        self.is_moving = False
        self._transport = transport
        self._sink = sink
        self._limits = limits
        self._codec = codec
        self._state = _OPEN
        self._held: dict[int, bytes] = {}
        self._next_order = 0
        self._next_to_send = 0
        self._open = 0
        self._messages = 0
        self._partial = 0
        self._is_paused = False
        self._is_stalled = False
        self._is_handing_on = False
        self._is_alone = self._has_ended = False
        self._waiting: deque[Request | Fault] = deque()
        self._was_heard = True
        self._quiet_s = 0.0
        self._dropped = 0

    @property
    def has_left(self) -> bool:
        """Whether the client asks nothing more; it may still read."""
        return self._state is not _OPEN

    @property
    def is_gone(self) -> bool:
        """Whether the stream is closed."""
        return self._state is _DEAD

    @property
    def transport(self) -> Transport:
        """The client's end of the stream."""
        return self._transport

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way: a new connection on the same stream could go on from here."""
        is_held_up = self._open or self._waiting or self._is_stalled or self._is_paused
        return self._state is _OPEN and not is_held_up and self._codec.is_idle and not self.unsent_bytes

    @property
    def unsent_bytes(self) -> int:
        """Replies that the client has not taken (bytes)."""
        return 0 if self._state is _DEAD else self._transport.get_write_buffer_size()

    def receive(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._state is not _OPEN:
            self._drop(len(data))
            return
        self._was_heard = True
        found = self._codec.receive(data)
        partial = self._codec.partial_bytes
        if partial != self._partial:
            self._note_partial(partial)
        if found:
            self._quiet_s = 0.0
            if len(found) == 1 and not self._waiting and self._has_room():
                self._take(found[0])
            else:
                self._waiting.extend(found)
                self._hand_on()

    def _drop(self, size: int) -> None:
        """Bytes that nobody looks at."""
        self._dropped += size
        if self._dropped > LINGER_BYTES_MAX and self._state is not _DEAD:
            self._transport.abort()

    def _note_partial(self, partial: int) -> None:
        grown, self._partial = partial - self._partial, partial
        self._sink.partial(self, grown)

    def _take(self, found: Request | Fault) -> None:
        """Give one request to the sink, or answer one fault."""
        if self._state is not _OPEN and self._state is not _ENDED:
            return
        self._open += 1
        if isinstance(found, Fault):
            order = self._next_order
            self._next_order = order + 1
            self.answer(order, NOBODYS, self._codec.fault_reply(found))
            if found.is_fatal:
                self.close_when_answered()
            return
        length = reply_length(found)
        if length == LONG:
            self._is_alone = True  # what comes behind it waits, so that one such reply is held at a time
        elif length == ONE_MESSAGE:
            self._messages += 1
        if found.seq is not None:
            self._sink.received(self, AT_ONCE, found)
        else:
            order = self._next_order
            self._next_order = order + 1
            self._sink.received(self, order, found)

    def _has_room(self) -> bool:
        if self._is_stalled or self._is_alone or self._messages >= MESSAGES_MAX:
            return False
        return self._open < self._limits.pipelined_max

    def _hand_on(self) -> None:
        """Take what waits while there is room, and read on when nothing waits any more."""
        if self._is_handing_on:
            return
        self._is_handing_on = True
        waiting = self._waiting
        while waiting and self._has_room():
            self._take(waiting.popleft())
        self._is_handing_on = False
        should_pause = bool(waiting) or self._is_stalled
        if should_pause != self._is_paused and self._state in (_OPEN, _ENDED):
            self._is_paused = should_pause
            if should_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if self._state is _ENDED and not waiting:
            self.close_when_answered()

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Send a reply now, or when those before it have been sent."""
        self._open -= 1
        if self._is_alone or self._messages:
            length = reply_length(request)
            if length == LONG:
                self._is_alone = False
            elif length == ONE_MESSAGE:
                self._messages -= 1
        if self._state is _DEAD:
            return
        data = self._codec.encode(request, reply)
        if order == AT_ONCE:
            self._transport.write(data)
        elif order != self._next_to_send:
            self._held[order] = data
        else:
            self._transport.write(data)
            order += 1
            held = self._held
            while held and order in held:
                self._transport.write(held.pop(order))
                order += 1
            self._next_to_send = order
        if self._waiting or self._is_paused:
            self._hand_on()
        if self._state is _CLOSING and not self._open:
            self._close()
        elif self.is_moving and not self._open:
            self._sink.settled(self)

    def _close(self) -> None:
        """All is answered: close, or leave that to a client that may be in the middle of sending."""
        if self._has_ended:
            self._transport.close()
        else:
            self._state = _LINGERING
            self._quiet_s = 0.0
            self._transport.write_eof()
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()

    def close_when_answered(self) -> None:
        """Look at nothing more, and close when every request is answered."""
        if self._state in (_OPEN, _ENDED):
            self._state = _CLOSING
            self._waiting.clear()
            if not self._open:
                self._close()

    def end(self) -> None:
        """The client sends nothing more; it may still read what is open (`nc` works so)."""
        self._has_ended = True
        if self._state is _LINGERING:
            self._transport.close()
        elif self._state is _OPEN:
            self._state = _ENDED
            self._sink.ended(self)
            self._hand_on()

    def stall(self, is_stalled: bool) -> None:
        """The client leaves its replies unread (or reads again): until it reads, nothing is read from it."""
        self._is_stalled = is_stalled
        self._quiet_s = 0.0
        self._sink.stalled(self, is_stalled)
        self._hand_on()

    def lost(self) -> None:
        """The stream is closed."""
        if self._state is not _DEAD:
            self._state = _DEAD
            self._held.clear()
            self._waiting.clear()
            if self._partial:
                self._note_partial(0)
            self._sink.closed(self)

    def abort(self) -> None:
        """Close at once: this client costs the others too much."""
        self._transport.abort()

    def sweep(self, passed_s: float) -> None:
        """Called every now and then with the seconds since the last time: enforce the limits that are of time."""
        if self._state is _LINGERING:
            self._quiet_s += passed_s
            if self._quiet_s > LINGER_S:
                self._transport.abort()
            return
        if self._was_heard and not self._is_stalled and not self._partial:
            self._was_heard = False
            self._quiet_s = 0.0
            return
        self._was_heard = False
        self._quiet_s += passed_s
        limits = self._limits
        if self._is_stalled:
            if self._quiet_s > limits.stalled_s_max:
                self._transport.abort()
        elif self._is_paused:
            self._quiet_s = 0.0  # it is us who do not read
        elif self._partial:
            if self._quiet_s > limits.partial_s_max and self._state is _OPEN:
                self.refuse_all(ErrorWord.TOO_SLOW, f"the request was not whole after {limits.partial_s_max:g} s")
        elif limits.idle_s_max and not self._open and self._quiet_s > limits.idle_s_max:
            self.refuse_all(ErrorWord.TOO_SLOW, f"no request for {limits.idle_s_max:g} s")

    def refuse_all(self, error: str, reason: str) -> None:
        """Tell the client why it can't be served, and close."""
        if self._state is not _OPEN and self._state is not _ENDED:
            return
        order = self._next_order
        self._next_order = order + 1
        self._open += 1
        self.answer(order, NOBODYS, Reply(action=0, code=Code.ERROR, error=error, reason=reason))
        self.close_when_answered()
