"""What one client has: its session, the order of its replies, and the limits that keep it from harming others.

No socket here: bytes come in by `receive`, and go out by the transport that it was given. A request without `seq`
is answered in the order of the requests; one with `seq` as soon as its answer is there. A fault is answered like a
request, in its place. After a fatal fault nothing more is read, and the connection closes when all is answered.

| state | bytes come | the client ends its side | all is answered | the stream is closed |
|---|---|---|---|---|
| OPEN | requests | ENDED | | DEAD |
| ENDED: it may still read | | | closes | DEAD |
| CLOSING: nothing more is looked at | dropped | FINISHING | LINGERING | DEAD |
| FINISHING: neither side goes on | dropped | | closes | DEAD |
| LINGERING: all was said, the client may still send | dropped | closes | | DEAD |
| DEAD | dropped | | answers are dropped | |

Beside that it may be *stalled* (the client does not read), *full* (as much as it may have is open) or *rest*
(`Resting`); meanwhile nothing is taken from it, and so it is not read from.

| part | what it knows |
|---|---|
| `SessionGuard` | the protocol, and that what it raises ends nothing else |
| `Resting` | whether a stranger is heard, and what it has sent meanwhile |
| `WaitingRequests` | what waits until there is room |
| `OpenRequests` | what was asked and is not answered |
| `ReplyOrder` | in which order replies leave |
| `Reading` | whether the client is read from |
| `ReadingTurn` | how much all clients are heard in one turn |
| `Patience` | how long it may take |
"""

from typing import Any, Final

from net.clients.connection_contract import ConnectionLimits, Sink, State, Transport
from net.clients.open_requests import OpenRequests
from net.clients.patience import Patience
from net.clients.reading import Reading
from net.clients.reply_length import LONG, reply_length
from net.clients.reply_order import ReplyOrder
from net.clients.resting import Resting
from net.clients.session_guard import SessionGuard
from net.clients.strangers_time import MANY, SMALL_BYTES
from net.clients.waiting_requests import WaitingRequests
from net.protocols.session import LARGE_BYTES, Ask, Close, Fault, Found, Say, Session
from quorate.keep_alive import peer_has_ended
from quorate.protocol import Action, Code, ErrorWord, Reply, Request, TransactionRequest, refusal
from quorate.request_faults import named_in

NO_REQUEST: Final = Request(action=0)
"""Stands for the request of a reply that answers none: a fault, or a refusal of the whole client."""

DONE_S_PER_BYTE: Final = 3e-9
DONE_TURNS: Final = 4
"""What a large request takes of each of so many turns once it was read: nodes pack it, write it and send it on."""

TURN_MAX: Final = 200
"""So many of a client's requests are begun before others have their turn: some 2 ms."""

LOOK_EVERY: Final = 16
"""Behind so many it is looked at whether there is time for more: what is answered at once may take 40 us each."""

NO_ROOM: Final = "requests and replies of all clients take as much as they may: ask again later"

_MOVE: Final = int(Action.MOVE)
_TRANSACTION: Final = int(Action.TRANSACTION)
_OPEN: Final = State.OPEN
_ENDED: Final = State.ENDED
_CLOSING: Final = State.CLOSING
_FINISHING: Final = State.FINISHING
_LINGERING: Final = State.LINGERING
_DEAD: Final = State.DEAD
"""An enum's members cost several times as much to look up, and these are on every request's way."""


class Connection:
    """One client of a stream protocol, which `session` speaks.

    Fields that the gateway attaches: `protocol`, its name; `affinity`; `identity`, who is there, and the `principal`
    that its requests have; `is_moving`: somebody waits for it to be quiet. `account`: what it makes this worker hold.
    `open`: what it has asked. `transport`: the client's end of the stream.
    """

    __slots__ = (
        "_guard",
        "_patience",
        "_reading",
        "_replies",
        "_resting",
        "_sink",
        "_state",
        "_waiting",
        "account",
        "affinity",
        "identity",
        "is_moving",
        "open",
        "principal",
        "protocol",
        "transport",
    )  # fmt: skip

    def __init__(
        self, transport: Transport, sink: "Sink[Connection]", session: Session, limits: ConnectionLimits
    ) -> None:
        self.account = account = sink.room.account()
        self.protocol = ""
        self.affinity: Any = None
        self.identity: Any = None
        self.principal: Any = None
        self.is_moving = False
        self.transport = transport
        self._sink = sink
        self._state = _OPEN
        self._guard = SessionGuard(session, sink)
        self._resting = Resting()
        self._waiting = WaitingRequests(account)
        self.open = OpenRequests(limits, account)
        self._replies = ReplyOrder(account)
        self._reading = Reading(transport)
        self._patience = Patience(limits)

    @property
    def has_left(self) -> bool:
        """Whether the client asks nothing more; it may still read."""
        return self._state is not _OPEN

    @property
    def has_ended(self) -> bool:
        """Whether the client's end is closed by now: it may have reset the stream, or left, behind what was read."""
        return peer_has_ended(self.transport.get_extra_info("socket"))

    @property
    def is_gone(self) -> bool:
        """Whether the stream is closed."""
        return self._state is _DEAD

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way: a new connection on the same stream could go on from here."""
        reading = self._reading
        is_held_up = (
            self.open.count or self._waiting.count or reading.is_stalled or reading.is_paused or self._resting.is_on
        )
        return (
            self._state is _OPEN
            and not is_held_up
            and self.session_state is not None
            and not self.transport.get_write_buffer_size()
        )

    @property
    def session_state(self) -> bytes | None:
        """What its protocol needs to go on elsewhere; None: it can't now."""
        return self._guard.state(self)

    def resume(self, state: bytes) -> None:
        """Go on where another worker's connection has stopped. Before the first byte."""
        if not self._guard.resume(self, state):
            self.abort()

    def receive(self, data: bytes, *, in_time: bool = True) -> None:
        """Bytes from the client; not `in_time`: this turn has no time for them, and they are looked at in another."""
        if self._state is not _OPEN:
            if self._patience.drops(len(data)) and self._state is not _DEAD:
                self.transport.abort()
            return
        self._patience.was_heard = True
        self.account.ledger.read += len(data)
        self._hear(data, in_time=in_time)

    def _hear(self, data: bytes, *, in_time: bool) -> None:
        """Look at what came, unless something before it waits, or the client rests first, or others have their turn."""
        account, resting = self.account, self._resting
        if (
            in_time
            and not resting.unheard.size
            and (account.is_known or len(data) <= SMALL_BYTES or not resting.comes_first(self, self._sink.strangers))
        ):
            resting.is_new = False
            self._look_at(data)
            return
        if self._state is not _OPEN and self._state is not _ENDED:
            return  # it was refused
        resting.unheard.add(data)
        if account.note_partial(self._guard.session.partial_bytes + resting.unheard.size):
            self._sink.room.overdrawn(self, 0)
        reading = self._reading
        if not in_time and self._state is _OPEN and not reading.is_cut:
            reading.is_cut = True
            reading.pause(True)
            self._sink.cut(self, may_have_token=resting.may_have_token)

    def _look_at(self, data: bytes) -> None:
        session = self._guard.session
        found = self._guard.receive(self, data)
        if session.partial_bytes != self.account.partial and self.account.note_partial(session.partial_bytes):
            self._sink.room.overdrawn(self, 0)
        if found:
            self._patience.begin()
            large = session.large
            if len(found) == 1 and not self._waiting.count and self._may_begin(found[0]):
                self._take(found[0], large.get(0, 0) if large else 0)
            elif self._state is _OPEN or self._state is _ENDED:  # several, or behind others: one by one, as room is
                self._waiting.add(found, large)
                self._hand_on()
                if self._waiting.count and self.account.is_over:
                    self._sink.room.overdrawn(self, 0)
        if session.has_more:
            self._hand_on()

    def _may_begin(self, found: Found) -> bool:
        """Whether there is room for it, and it need not wait in the strangers' line."""
        resting = self._resting
        if not self.open.has_room or self._reading.is_stalled or resting.is_on:
            return False
        return self.account.is_known or not _is_large(found) or not resting.comes_first(self, self._sink.strangers)

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
        self.open.count += 1
        order = self._replies.place(is_ordered=found.seq is None and self._guard.session.is_ordered)
        if size:
            if not self.account.may_open(size):
                self._sink.room.overdrawn(self, size)
            if not self.account.may_open(size):
                self.open.count -= 1
                self._reply(order, found, refusal(found, ErrorWord.OVERLOADED, NO_ROOM), note)
                return
            self.open.keep_size(order, size)
            if not self.account.is_known:
                self._sink.strangers.spent(self, size * DONE_S_PER_BYTE, size, DONE_TURNS)
        self._ask(order, found, note)

    def _ask(self, order: int, request: Request, note: Any) -> None:
        """Give a request to the sink, to be answered in its place."""
        length = self.open.begin(request)
        if note is not None:
            self.open.keep_note(order, note)
        self._sink.received(self, order, request)
        if not self.account.is_known:
            if length == LONG and self.open.has_long:  # unless it was refused at once
                self._sink.strangers.asks_long(self)
            if (items := _items_of(request)) > MANY:
                self._sink.strangers.asks_much(self, items)

    def _say(self, found: Say | Close | Fault) -> None:
        """Answer without the node."""
        if isinstance(found, Close):
            self.close_when_answered()
            self._sink.ended(self)  # its consumers wait no longer
            return
        order = self._replies.place(is_ordered=self._guard.session.is_ordered)
        if isinstance(found, Fault):
            self._reply(order, NO_REQUEST, self._guard.fault_reply(self, found), None)
            if found.is_fatal:
                self.close_when_answered()
        else:
            self._send(order, found.data)

    def _hand_on(self) -> None:
        """Take what waits while there is room, and read on when nothing waits any more."""
        reading, waiting, resting = self._reading, self._waiting, self._resting
        if reading.is_cut:
            return
        reading.is_cut = True
        taken = 0
        is_over = False
        while waiting.count and not is_over and self._may_begin(waiting.first):
            found, size = waiting.take()
            self._take(found, size)
            taken += 1
            is_over = taken == TURN_MAX or (not taken % LOOK_EVERY and not self._sink.turn.has_time())
        has_more = not waiting.count and self._guard.session.has_more
        is_cut = is_over or (has_more and not resting.is_on)  # when it has rested, it goes on
        goes_on = self._state is _OPEN or self._state is _ENDED
        reading.is_cut = is_cut and goes_on
        if reading.is_cut:
            self._sink.cut(self)
        if goes_on:
            is_too_much = waiting.count > 0 and not (self.open.is_waiting_alone and waiting.are_few)
            reading.pause(is_too_much or is_cut or reading.is_stalled or resting.is_on)
        if self._state is _ENDED and not waiting.count and not has_more and not resting.unheard.size:
            self.close_when_answered()

    def end_turn(self) -> None:
        """Others have had their turn: what was cut goes on."""
        if not self._reading.is_cut:
            return
        self._reading.is_cut = False
        unheard = self._resting.take_unheard()
        if unheard and (self._state is _OPEN or self._state is _ENDED):
            self._hear(unheard, in_time=True)
        may_look = not self._resting.is_on and not self._waiting.count and self._state in (_OPEN, _ENDED)
        if may_look and self._guard.session.has_more:
            self._look_at(b"")
        self._hand_on()

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Send a reply now, or when those before it have been sent."""
        size = self.open.end(order, request)
        self._reply(order, request, reply, self.open.take_note(order), size)

    def _reply(self, order: int, request: Request, reply: Reply, note: Any, size: int = 0) -> None:
        """Make bytes of a reply with the session, or what is to be asked next. `size`: of a request that is large."""
        if self._state is _DEAD or self._state is _LINGERING:
            return  # the latter: it was told that it is not answered
        made = self._guard.answered(self, None if request is NO_REQUEST else request, reply, note)
        if isinstance(made, bytes):
            self._send(order, made)
        elif made is None:
            self.transport.abort()
        else:  # it was not all that the client wants to know
            self.open.count += 1
            if size:  # it is as large as it was
                self.open.keep_size(order, size)
            if isinstance(made, Ask):
                self._ask(order, made.request, made.note)
            else:
                self._ask(order, made, None)

    def _send(self, order: int, data: bytes) -> None:
        """Send a reply's bytes, in their place."""
        self.account.ledger.written += len(data)
        replies = self._replies
        if not replies.is_next(order):
            if replies.hold(order, data):
                self._sink.room.overdrawn(self, 0)
        else:
            self.transport.write(data)
            if replies.held and order >= 0:
                later = replies.take_held()
                while later is not None:
                    self.transport.write(later)
                    later = replies.take_held()
        if len(data) > LARGE_BYTES:
            self._note_unsent()
        if self._waiting.count or self._reading.is_paused:
            self._hand_on()
        if not self.open.count:
            if self._state is _CLOSING or self._state is _FINISHING:
                self._close()
            elif self.is_moving:
                self._sink.settled(self)

    def _note_unsent(self) -> None:
        """Count what the client has not read; a small reply is found by the next sweep."""
        if self.account.note_unsent(self.transport.get_write_buffer_size()):
            self._sink.room.overdrawn(self, 0)

    def _close(self) -> None:
        """All is answered: close, or leave that to a client that may be in the middle of sending."""
        farewell, self._patience.farewell = self._patience.farewell, None
        made = None if farewell is None else self._guard.answered(self, None, farewell, None)
        if isinstance(made, bytes):  # behind all replies
            self.account.ledger.written += len(made)
            self.transport.write(made)
        if self._state is _FINISHING:
            self.transport.close()
        else:
            self._state = _LINGERING
            self._patience.begin()
            self.transport.write_eof()
            self._reading.pause(False)

    def close_when_answered(self) -> None:
        """Look at nothing more, and close when every request is answered."""
        if self._state is not _OPEN and self._state is not _ENDED:
            return
        self._state = _CLOSING if self._state is _OPEN else _FINISHING
        self._waiting.clear()
        self._resting.unheard.clear()
        self._guard.discard(self)
        self.account.note_partial(0)
        if not self.open.count:
            self._close()

    def end(self) -> None:
        """Note that the client sends nothing more; it may still read what is open (`nc` works so)."""
        if self._state is _LINGERING:
            self.transport.close()
        elif self._state is _CLOSING:
            self._state = _FINISHING
        elif self._state is _OPEN:
            self._state = _ENDED
            self._sink.ended(self)
            self._hand_on()

    def stall(self, is_stalled: bool) -> None:
        """Read nothing from a client that leaves its replies unread, until it reads again."""
        self._reading.is_stalled = is_stalled
        self._patience.begin()
        if self._state is not _DEAD:
            self._note_unsent()
        self._hand_on()

    def rest(self, rests: bool, *, is_turn: bool = False) -> None:
        """Let the client rest, since it has taken more time than strangers have, or end a rest.

        It is heard again when all its rests are over. `is_turn`: it has waited in line for that (`Resting`).
        """
        resting = self._resting
        resting.change(rests, is_turn=is_turn)
        if self._state is _DEAD:
            return
        unheard = resting.take_unheard()
        if unheard:
            self._look_at(unheard)
        self._hand_on()
        resting.is_heard()

    def lost(self) -> None:
        """Let go of all: the stream is closed."""
        if self._state is not _DEAD:
            self._state = _DEAD
            self._let_go()
            self._sink.closed(self)

    def abort(self) -> None:
        """Close at once: this client costs the others too much. What it made this worker hold is free from here on."""
        self._let_go()
        self.transport.abort()

    def _let_go(self) -> None:
        self._replies.clear()
        self._waiting.clear()
        self._resting.unheard.clear()
        self._guard.discard(self)
        self.account.leave()

    def sweep(self, passed_s: float) -> None:
        """Enforce the limits that are of time: called every now and then with the seconds since the last time."""
        patience, reading = self._patience, self._reading
        if self._state is _LINGERING:
            if patience.has_lingered(passed_s):
                self.transport.abort()
            return
        if self._state is not _DEAD and patience.is_unanswered_long(passed_s):
            self._replies.clear()
            self._close()
            return
        unsent = 0 if self._state is _DEAD else self.transport.get_write_buffer_size()
        before = self.account.unsent
        if unsent or before:
            self._note_unsent()
        if patience.owes_long(passed_s, unsent, before):
            self.transport.abort()
        elif reading.is_stalled:
            if patience.is_stalled_long(passed_s):
                self.transport.abort()
        else:
            has_partial = self.account.partial > 0 and not self._resting.is_on and self._state is _OPEN
            reason = patience.too_slow(
                passed_s, is_paused=reading.is_paused, has_partial=has_partial, has_open=self.open.count > 0
            )
            if reason:
                self.refuse_all(ErrorWord.TOO_SLOW, reason)

    def refuse_all(self, error: str, reason: str) -> None:
        """Tell the client why it can't be served, and close. What it has asked is answered first.

        The refusal is of all that is not answered, so it may not overtake a reply: it says that nothing is done. What
        is not answered within `patience.OWED_S` may have been.
        """
        if self._state is _OPEN or self._state is _ENDED:
            is_owed = self.open.count > 0
            self._patience.farewell = Reply(action=0, code=Code.ERROR, error=error, reason=reason)
            self.close_when_answered()
            if is_owed:
                self._sink.ended(self)  # what waits is answered now


def _is_large(found: Found) -> bool:
    if isinstance(found, Ask):
        found = found.request
    return isinstance(found, Request) and (reply_length(found) == LONG or _items_of(found) > MANY)


def _items_of(request: Request) -> int:
    """Count the messages that a request is about: those that it produces, or names, or moves."""
    if request.messages is not None:
        return len(request.messages)
    if request.msg_ids is not None:
        return len(request.msg_ids)
    action = request.action
    if action == _MOVE:
        return request.count or 0
    if action == _TRANSACTION and isinstance(request, TransactionRequest):
        return sum([1 + named_in(one) for one in request.operations])
    return 0
