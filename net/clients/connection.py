"""What one client has: its codec, the order of its replies, and the limits that keep it from harming others.

No socket here: bytes come in by `receive`, and go out by the transport that it was given. A request without `seq`
is answered in the order of the requests; one with `seq` as soon as its answer is there. A fault is answered like a
request, in its place. After a fatal fault nothing more is read, and the connection closes when all is answered.
"""

from collections import deque
from typing import Final, NamedTuple, Protocol

from net.protocols.codec import Fault
from net.protocols.json_codec import CodecLimits, JsonCodec, encode_reply, fault_reply
from quorate.actions import LONG_REPLIES
from quorate.protocol import Code, ErrorWord, Reply, Request

AT_ONCE: Final = -1
"""The order of a request that may be answered out of order."""


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
        """A request came; answer it by `connection.answer(order, reply)`."""

    def ended(self, connection: "Connection") -> None:
        """The client asks nothing more, and may be gone: do not keep messages waiting for it."""

    def closed(self, connection: "Connection") -> None:
        """The client is gone."""


class Connection:
    """One client of a stream protocol."""

    __slots__ = (
        "_codec",
        "_has_ended",
        "_held",
        "_is_alone",
        "_is_closing",
        "_is_dead",
        "_is_handing_on",
        "_is_paused",
        "_is_stalled",
        "_limits",
        "_next_order",
        "_next_to_send",
        "_open",
        "_quiet_s",
        "_sink",
        "_transport",
        "_waiting",
        "_was_heard",
    )

    def __init__(self, transport: Transport, sink: Sink, limits: ConnectionLimits) -> None:
        self._transport = transport
        self._sink = sink
        self._limits = limits
        self._codec = JsonCodec(limits.codec)
        self._held: dict[int, bytes] = {}
        self._next_order = 0
        self._next_to_send = 0
        self._open = 0
        self._is_paused = False
        self._is_stalled = False
        self._is_closing = False
        self._is_dead = False
        self._has_ended = False
        self._is_handing_on = False
        self._is_alone = False
        self._waiting: deque[Request | Fault] = deque()
        self._was_heard = True
        self._quiet_s = 0.0

    def receive(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._is_closing:
            return
        self._was_heard = True
        found = self._codec.receive(data)
        if found:
            self._quiet_s = 0.0
            if len(found) == 1 and not self._waiting and self._has_room():
                self._take(found[0])
            else:
                self._waiting.extend(found)
                self._hand_on()

    def _take(self, found: Request | Fault) -> None:
        """Give one request to the sink, or answer one fault."""
        if self._is_closing:
            return
        self._open += 1
        if not isinstance(found, Fault) and (found.count is not None or found.action in LONG_REPLIES):
            self._is_alone = True  # its reply may be long: what comes behind it waits, so that one is held at a time
        if isinstance(found, Fault):
            order = self._next_order
            self._next_order = order + 1
            self.answer(order, fault_reply(found))
            if found.is_fatal:
                self.close_when_answered()
        elif found.seq is not None:
            self._sink.received(self, AT_ONCE, found)
        else:
            order = self._next_order
            self._next_order = order + 1
            self._sink.received(self, order, found)

    def _has_room(self) -> bool:
        if self._is_stalled or self._is_alone:
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
        if should_pause != self._is_paused and not self._is_closing:
            self._is_paused = should_pause
            if should_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if self._has_ended and not waiting:
            self.close_when_answered()

    def answer(self, order: int, reply: Reply) -> None:
        """Send a reply now, or when those before it have been sent."""
        self._open -= 1
        if not self._open:
            self._is_alone = False
        if self._is_dead:
            return
        data = encode_reply(reply)
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
        if self._is_closing and not self._open:
            self._transport.close()

    def close_when_answered(self) -> None:
        """Read nothing more, and close when every request is answered."""
        if not self._is_closing:
            self._is_closing = True
            self._transport.pause_reading()
            if not self._open:
                self._transport.close()

    def end(self) -> None:
        """The client sends nothing more; it may still read what is open (`nc` works so)."""
        self._has_ended = True
        self._sink.ended(self)
        self._hand_on()

    def stall(self, is_stalled: bool) -> None:
        """The client leaves its replies unread (or reads again): until it reads, nothing is read from it."""
        self._is_stalled = is_stalled
        self._quiet_s = 0.0
        self._hand_on()

    def lost(self) -> None:
        """The stream is closed."""
        if not self._is_dead:
            self._is_dead = self._is_closing = True
            self._held.clear()
            self._waiting.clear()
            self._sink.closed(self)

    def sweep(self, passed_s: float) -> None:
        """Called every now and then with the seconds since the last time: enforce the limits that are of time."""
        if self._was_heard and not self._is_stalled and not self._codec.has_partial:
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
        elif self._codec.has_partial:
            if self._quiet_s > limits.partial_s_max and not self._is_closing:
                self._refuse(ErrorWord.TOO_SLOW, f"the request was not whole after {limits.partial_s_max:g} s")
        elif limits.idle_s_max and not self._open and self._quiet_s > limits.idle_s_max:
            self._refuse(ErrorWord.TOO_SLOW, f"no request for {limits.idle_s_max:g} s")

    def refuse_all(self, error: str, reason: str) -> None:
        """Tell the client why it can't be served, and close."""
        self._refuse(error, reason)

    def _refuse(self, error: str, reason: str) -> None:
        order = self._next_order
        self._next_order = order + 1
        self._open += 1
        self.answer(order, Reply(action=0, code=Code.ERROR, error=error, reason=reason))
        self.close_when_answered()
