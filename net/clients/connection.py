"""What one client has: its session, the order of its replies, and the limits that keep it from harming others.

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
from typing import Any, Final

from net.clients.connection_contract import ConnectionLimits, Sink, State, Transport
from net.clients.held_bytes import OBJECT_BYTES
from net.clients.reply_length import ALONE, LONG, ONE_MESSAGE, SHORT, reply_length
from net.clients.strangers_time import SMALL_BYTES
from net.protocols.session import LARGE_BYTES, Ask, Close, Fault, Found, Say, Session
from quorate.protocol import Code, ErrorWord, Reply, Request, refusal

UNORDERED: Final = -1
"""The order of a request that may be answered out of order: this, or anything below it."""

NO_REQUEST: Final = Request(action=0)
"""Stands for the request of a reply that answers none: a fault, or a refusal of the whole client."""

DONE_S_PER_BYTE: Final = 3e-9
DONE_TURNS: Final = 4
"""What a large request takes of each of so many turns once it was read: nodes pack it, write it and send it on."""

MESSAGES_MAX: Final = 16
"""Consumes that do not wait, open at once: each may bring a message of the largest size."""

TURN_MAX: Final = 200
"""So many of a client's requests are begun before others have their turn: some 2 ms."""

BEHIND_WAIT_MAX: Final = 128
BEHIND_WAIT_BYTES: Final = 128 << 10
"""Behind a consumer that waits so much is read on, that it is noticed when the client goes."""

LINGER_S: Final = 3.0
"""For so long bytes are read and dropped: to close with some unread would throw away the refusal that was just sent."""

LINGER_BYTES_MAX: Final = 128 << 20


_OPEN: Final = State.OPEN
_ENDED: Final = State.ENDED
_CLOSING: Final = State.CLOSING
_LINGERING: Final = State.LINGERING
_DEAD: Final = State.DEAD
"""An enum's members cost several times as much to look up, and these are on every request's way."""


class Connection:
    """One client of a stream protocol, which `session` speaks.

    Fields that the gateway attaches: `protocol`, its name; `affinity`; `identity`, who is there, and the `principal`
    that its requests have; `is_moving`: somebody waits for it to be quiet. `account`: what it makes this worker hold.
    """

    __slots__ = (
        "_dropped",
        "_has_ended",
        "_has_rested",
        "_held",
        "_is_alone",
        "_is_handing_on",
        "_is_paused",
        "_is_stalled",
        "_limits",
        "_messages",
        "_next_loose",
        "_next_order",
        "_next_to_send",
        "_notes",
        "_open",
        "_owes_s",
        "_quiet_s",
        "_rests",
        "_session",
        "_sink",
        "_sizes",
        "_state",
        "_transport",
        "_unheard",
        "_waiting",
        "_was_heard",
        "account",
        "affinity",
        "identity",
        "is_moving",
        "principal",
        "protocol",
    )  # fmt: skip

    def __init__(self, transport: Transport, sink: Sink, session: Session, limits: ConnectionLimits) -> None:
        self.account = sink.room.account()
        self.protocol = ""
        self.affinity: Any = None
        self.identity: Any = None
        self.principal: Any = None
        self.is_moving = False
        self._transport = transport
        self._sink = sink
        self._limits = limits
        self._session = session
        self._notes: dict[int, Any] = {}
        self._state = _OPEN
        self._held: dict[int, bytes] = {}
        self._next_order = 0
        self._next_loose = UNORDERED
        self._next_to_send = 0
        self._open = 0
        self._sizes: dict[int, int] = {}
        self._messages = 0
        self._is_paused = False
        self._is_stalled = False
        self._rests = 0
        self._has_rested = False
        self._unheard = b""
        self._is_handing_on = False
        self._is_alone = SHORT
        self._has_ended = False
        self._waiting: deque[tuple[Found, int]] = deque()
        self._was_heard = True
        self._quiet_s = 0.0
        self._owes_s = 0.0
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
        is_held_up = self._open or self._waiting or self._is_stalled or self._is_paused or self._rests
        return self._state is _OPEN and not is_held_up and self.session_state is not None and not self.unsent_bytes

    @property
    def session_state(self) -> bytes | None:
        """What its protocol needs to go on elsewhere; None: it can't now."""
        try:
            return self._session.state
        except Exception as error:
            self._sink.broken(self, error)
            return None

    def resume(self, state: bytes) -> None:
        """Go on where another worker's connection has stopped. Before the first byte."""
        try:
            self._session.resume(state)
        except Exception as error:
            self._sink.broken(self, error)
            self.abort()

    @property
    def has_long_open(self) -> bool:
        """Whether a request is open whose reply may hold as much as one can."""
        return self._is_alone == LONG

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
        self.account.ledger.read += len(data)
        if (self._unheard or not self.account.is_known) and self._is_put_off(data):
            return
        self._look_at(data)

    def _is_put_off(self, data: bytes) -> bool:
        """Whether a stranger's bytes wait, since strangers have taken more time than they have; in their order."""
        if not self._unheard and (len(data) <= SMALL_BYTES or not self._rests_first()):
            return False
        if self._state is not _OPEN:
            return True  # it was refused
        self._unheard += data
        self.account.note_partial(self._session.partial_bytes + len(self._unheard))
        if self.account.is_over:
            self._sink.room.overdrawn(self, 0)
        return True

    def _rests_first(self) -> bool:
        """Whether a stranger rests before something large of it is begun; who has rested need not again."""
        if self._has_rested:
            self._has_rested = False
            return False
        return self._rests > 0 or self._sink.strangers.must_rest(self)

    def _look_at(self, data: bytes) -> None:
        session = self._session
        try:
            found = session.receive(data)
        except Exception as error:  # whatever it is: this client alone has made it, and it alone pays for it
            self._sink.broken(self, error)
            found = [Fault(ErrorWord.BAD_JSON, "this can't be read", is_fatal=True)]
        account = self.account
        if session.partial_bytes != account.partial:
            has_grown = session.partial_bytes > account.partial
            account.note_partial(session.partial_bytes)
            if has_grown and account.is_over:
                self._sink.room.overdrawn(self, 0)
        if found:
            self._quiet_s = 0.0
            large = session.large
            if len(found) == 1 and not self._waiting and self._has_room() and self._may_begin(found[0]):
                self._take(found[0], large.get(0, 0) if large else 0)
            else:
                self._wait(found, large)
        if session.has_more:
            self._hand_on()

    def _may_begin(self, found: Found) -> bool:
        return self.account.is_known or not _is_large(found) or not self._rests_first()

    def _wait(self, found: list[Found], large: dict[int, int]) -> None:
        """Several at once, or one behind others: they are taken one by one, as far as there is room."""
        if self._state is not _OPEN and self._state is not _ENDED:
            return
        for index, one in enumerate(found):
            size = large.get(index, 0)
            self._waiting.append((one, size))
            self.account.wait(max(size, OBJECT_BYTES))
        self._hand_on()
        if self._waiting and self.account.is_over:
            self._sink.room.overdrawn(self, 0)

    def _drop(self, size: int) -> None:
        """Bytes that nobody looks at."""
        self._dropped += size
        if self._dropped > LINGER_BYTES_MAX and self._state is not _DEAD:
            self._transport.abort()

    def _take(self, found: Found, size: int) -> None:
        """Give one request, of so many bytes if it is large, to the sink, or answer what needs no node."""
        if self._state is not _OPEN and self._state is not _ENDED:
            return
        note: Any = None
        if not isinstance(found, Request):
            if not isinstance(found, Ask):
                self._say(found)
                return
            note = found.note
            found = found.request
        self._open += 1
        if size and not self.account.may_open(size):
            self._sink.room.overdrawn(self, size)
            if not self.account.may_open(size):
                self._no_room(found, note)
                return
        order = self._order_of(found)
        if size:
            self._sizes[order] = size
            self.account.take(size)
            if not self.account.is_known:
                self._sink.strangers.spent(self, size * DONE_S_PER_BYTE, size, DONE_TURNS)
        self._ask(order, found, note)

    def _ask(self, order: int, request: Request, note: Any) -> None:
        """Give a request to the sink, to be answered in its place."""
        length = reply_length(request)
        if length >= LONG:
            self._is_alone = length  # what comes behind it waits, so that one such reply is held at a time
        elif length == ONE_MESSAGE:
            self._messages += 1
        if note is not None:
            self._notes[order] = note
        self._sink.received(self, order, request)
        if length == LONG and self.has_long_open and not self.account.is_known:  # unless it was refused at once
            self._sink.strangers.asks_long(self)

    def _say(self, found: Say | Close | Fault) -> None:
        """Answer without the node."""
        if isinstance(found, Close):
            self.close_when_answered()
            self._sink.ended(self)  # its consumers wait no longer
        elif isinstance(found, Fault):
            self._open += 1
            self._fault(found)
        else:
            self._send(self._order_of(NO_REQUEST), found.data)

    def _order_of(self, request: Request) -> int:
        if request.seq is not None or not self._session.is_ordered:
            self._next_loose -= 1
            return self._next_loose + 1
        self._next_order += 1
        return self._next_order - 1

    def _fault(self, fault: Fault) -> None:
        order = self._order_of(NO_REQUEST)
        try:
            reply = self._session.fault_reply(fault)
        except Exception as error:
            self._sink.broken(self, error)
            reply = Reply(action=0, code=Code.ERROR, error=fault.error, reason=fault.reason)
        self.answer(order, NO_REQUEST, reply)
        if fault.is_fatal:
            self.close_when_answered()

    def _no_room(self, request: Request, note: Any) -> None:
        """A request that would take more than there is for all clients."""
        order = self._order_of(request)
        if note is not None:
            self._notes[order] = note
        reason = "requests and replies of all clients take as much as they may: ask again later"
        self._open -= 1
        self._reply(order, request, refusal(request, ErrorWord.OVERLOADED, reason))

    def _has_room(self) -> bool:
        if self._is_stalled or self._rests or self._is_alone or self._messages >= MESSAGES_MAX:
            return False
        return self._open < self._limits.pipelined_max and self.account.own < self._limits.held_bytes_max

    def _hand_on(self) -> None:
        """Take what waits while there is room, and read on when nothing waits any more."""
        if self._is_handing_on:
            return
        self._is_handing_on = True
        waiting, taken = self._waiting, 0
        while waiting and taken < TURN_MAX and self._has_room() and self._may_begin(waiting[0][0]):
            found, size = waiting.popleft()
            self.account.wait(-max(size, OBJECT_BYTES))
            self._take(found, size)
            taken += 1
        has_more = not waiting and self._session.has_more
        is_cut = taken == TURN_MAX or (has_more and not self._rests)  # when it has rested, it goes on
        self._is_handing_on = is_cut and self._state in (_OPEN, _ENDED)
        if self._is_handing_on:
            self._sink.settled(self)  # others have their turn, and then it goes on
        is_behind_wait = (
            self._is_alone == ALONE and len(waiting) < BEHIND_WAIT_MAX and self.account.waiting < BEHIND_WAIT_BYTES
        )
        should_pause = self._is_stalled or self._rests > 0 or is_cut or (bool(waiting) and not is_behind_wait)
        if should_pause != self._is_paused and self._state in (_OPEN, _ENDED):
            self._is_paused = should_pause
            if should_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if self._state is _ENDED and not waiting and not has_more and not self._unheard:
            self.close_when_answered()

    def end_turn(self) -> None:
        """Others have had their turn: what was cut goes on."""
        if not self._is_handing_on:
            return
        self._is_handing_on = False
        may_look = not self._rests and not self._waiting and self._state in (_OPEN, _ENDED)
        if may_look and self._session.has_more:
            self._look_at(b"")
        self._hand_on()

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Send a reply now, or when those before it have been sent."""
        self._open -= 1
        size = self._sizes.pop(order, 0) if self._sizes else 0
        if size:
            self.account.take(-size)
        if self._is_alone or self._messages:
            length = reply_length(request)
            if length >= LONG:
                self._is_alone = SHORT
            elif length == ONE_MESSAGE:
                self._messages -= 1
        self._reply(order, request, reply, size)

    def _reply(self, order: int, request: Request, reply: Reply, size: int = 0) -> None:
        """What the session makes of a reply: bytes, or what is to be asked next. `size`: of a request that is large."""
        if self._state is _DEAD:
            return
        note = self._notes.pop(order, None) if self._notes else None
        try:
            data = self._session.answered(None if request is NO_REQUEST else request, reply, note)
            if not isinstance(data, (bytes, Request, Ask)):
                raise TypeError(f"{type(data).__name__} is no answer")
        except Exception as error:  # this reply is for this client alone; there is nothing true to say in its place
            self._sink.broken(self, error)
            self._transport.abort()
            return
        if isinstance(data, bytes):
            self._send(order, data)
        else:  # it was not all that the client wants to know
            self._open += 1
            if size:  # it is as large as it was
                self._sizes[order] = size
                self.account.take(size)
            if isinstance(data, Ask):
                self._ask(order, data.request, data.note)
            else:
                self._ask(order, data, None)

    def _send(self, order: int, data: bytes) -> None:
        """A reply's bytes, in their place."""
        self.account.ledger.written += len(data)
        if order < 0:
            self._transport.write(data)
        elif order != self._next_to_send:
            self._held[order] = data
            self.account.hold_back(len(data) + OBJECT_BYTES)
            if self.account.is_over:
                self._sink.room.overdrawn(self, 0)
        else:
            self._transport.write(data)
            order += 1
            held = self._held
            while held and order in held:
                later = held.pop(order)
                self.account.hold_back(-len(later) - OBJECT_BYTES)
                self._transport.write(later)
                order += 1
            self._next_to_send = order
        if len(data) > LARGE_BYTES:
            self._note_unsent()
        if self._waiting or self._is_paused:
            self._hand_on()
        if self._state is _CLOSING and not self._open:
            self._close()
        elif self.is_moving and not self._open:
            self._sink.settled(self)

    def _note_unsent(self) -> None:
        """What the client has not read counts; a small reply is found by the next sweep."""
        account = self.account
        before = account.unsent
        account.note_unsent(self._transport.get_write_buffer_size())
        if account.unsent > before and account.is_over:
            self._sink.room.overdrawn(self, 0)

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
            self.account.wait(-self.account.waiting)
            self._discard()
            if not self._open:
                self._close()

    def _discard(self) -> None:
        """Nothing more is looked at, so nothing of a request that is not whole is kept."""
        self._unheard = b""
        self._discard_partial()
        self.account.note_partial(0)

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
        if self._state is not _DEAD:
            self._note_unsent()
        self._hand_on()

    def rest(self, rests: bool, *, is_turn: bool = False) -> None:
        """The client has taken more time than strangers have, or a rest is over: it is not heard meanwhile.

        Rests overlap, since each reply may bring one: it is heard again when all are over. `is_turn`: it has waited in
        line for that, and what it has sent meanwhile need not wait there again.
        """
        self._rests += 1 if rests else -1
        if self._state is _DEAD:
            return
        self._has_rested = is_turn and self._rests == 0
        if self._rests == 0 and self._unheard:
            unheard, self._unheard = self._unheard, b""
            self._look_at(unheard)
        self._hand_on()
        self._has_rested = False

    def lost(self) -> None:
        """The stream is closed."""
        if self._state is not _DEAD:
            self._state = _DEAD
            self._let_go()
            self._sink.closed(self)

    def abort(self) -> None:
        """Close at once: this client costs the others too much. What it made this worker hold is free from here on."""
        self._let_go()
        self._transport.abort()

    def _let_go(self) -> None:
        self._held.clear()
        self._waiting.clear()
        self._unheard = b""
        self._discard_partial()
        self.account.leave()

    def _discard_partial(self) -> None:
        try:
            self._session.discard()
        except Exception as error:
            self._sink.broken(self, error)

    def sweep(self, passed_s: float) -> None:
        """Called every now and then with the seconds since the last time: enforce the limits that are of time."""
        if self._state is _LINGERING:
            self._quiet_s += passed_s
            if self._quiet_s > LINGER_S:
                self._transport.abort()
            return
        if self._owes(passed_s) > self._limits.stalled_s_max:
            self._transport.abort()
            return
        has_partial = self.account.partial > 0 and not self._rests
        if self._was_heard and not self._is_stalled and not has_partial:
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
        elif has_partial:
            if self._quiet_s > limits.partial_s_max and self._state is _OPEN:
                self.refuse_all(ErrorWord.TOO_SLOW, f"the request was not whole after {limits.partial_s_max:g} s")
        elif limits.idle_s_max and not self._open and self._quiet_s > limits.idle_s_max:
            self.refuse_all(ErrorWord.TOO_SLOW, f"no request for {limits.idle_s_max:g} s")

    def _owes(self, passed_s: float) -> float:
        """For how long the client has read nothing of what it was answered (s).

        It has read if less is unsent than at the sweep before; one that asks on meanwhile, so that more comes than it
        reads, is stalled before long, and then less comes.
        """
        unsent, before = self.unsent_bytes, self.account.unsent
        if unsent or before:
            self._note_unsent()
        self._owes_s = self._owes_s + passed_s if unsent and unsent >= before else 0.0
        return self._owes_s

    def refuse_all(self, error: str, reason: str) -> None:
        """Tell the client why it can't be served, and close."""
        if self._state is not _OPEN and self._state is not _ENDED:
            return
        self._open += 1
        self.answer(
            self._order_of(NO_REQUEST), NO_REQUEST, Reply(action=0, code=Code.ERROR, error=error, reason=reason)
        )
        self.close_when_answered()


def _is_large(found: Found) -> bool:
    if isinstance(found, Ask):
        found = found.request
    return isinstance(found, Request) and reply_length(found) == LONG
