"""Turns and rests: which clients the Listener hears next, and which it does not hear for a while. Parts of it.

Whoever has more than one turn of the loop has time for (`ReadingTurn`) stands at the end of its line with what is
left. Of each line some are heard in each turn, one at least: of strangers as many as their slice allows.

A stranger that has just come may have sent a token, and not be one for long. So newcomers that have sent little have
a line of their own, which takes turns with the other; and one of them is heard every so often though strangers have
used up their time, and may owe a second of it.

Strangers who made the loop work for long, or come with something large meanwhile, rest. `StrangersTime` says for how
long. Those that wait for the debt of others are heard one after the other, in the order in which they came, while
what those before took is paid for. What a long reply takes is known when it is there: until then few more are asked
for, whether their clients are still there or not.
"""

from collections import deque
from typing import Final

from actors.messages.call import Call
from actors.runtime.contract import Runtime, Timer
from net.clients.connection import DONE_TURNS, Connection
from net.clients.reading_turn import LINE_S, ReadingTurn
from net.clients.reply_length import SHORT, reply_bytes, reply_length
from net.clients.strangers_time import LONG_S, SMALL_BYTES, StrangersTime
from quorate.protocol import ErrorWord, Reply

REST_MAX_S: Final = 10.0
"""Who would have to wait longer before it is heard at all is refused: nobody is kept for no end."""

WAITING_MAX: Final = 1000
"""So many wait at once."""

LOOKED_UP: Final = 2.0
"""So many turns as long as its encoding a reply took in all: it was looked up as well, and came here."""

FORWARDED: Final = 5.0
"""The same where another node has looked it up: it was packed, sealed, sent, opened and unpacked as well."""

AT_ONCE: Final = 4
"""So many long replies are looked up at once for strangers, unless there was a large one lately or somebody waits."""

LARGE_LATELY_S: Final = 10.0
"""Else one at a time: fifty were 200 MB, and seconds for everybody else."""

HEARD_AT_ONCE: Final = 4
"""So many of those that wait are heard in one turn: what else they have sent is read in the next, from all of them, and
is reckoned only then. Sixty that were heard at once were 10 ms of reading."""

S_PER_BYTE: Final = 2e-9
"""What a reply takes of each turn that nobody is there any more to take: some 8 ms for 4 MB (`bench.hostile`)."""

DONE_S_PER_ITEM: Final = 2e-6
DONE_S_MAX: Final = 0.002
"""What a request about many messages takes of each of `DONE_TURNS`, a message and at most."""

TOO_MANY: Final = "clients without a token ask for more than they have time for: show one, or ask again later"


NEWCOMER_S: Final = 0.005
"""So often one of the newcomers is heard whatever strangers owe: two hundred a second, a tenth of the time at worst."""


class Rests:
    """One Listener's. What is small counts for strangers' slice of the `turn` alone."""

    def __init__(self, runtime: Runtime, turn: ReadingTurn) -> None:
        self._runtime = runtime
        self._turn = turn
        self._time = StrangersTime()
        self._own: dict[Connection, list[Timer]] = {}
        self._waiting: deque[Connection] = deque()
        self._is_armed = False
        self._ahead: dict[Connection, Timer] = {}
        self._large_until = 0.0

    def spent(self, connection: Connection, took_s: float, size: int, turns: float = 1.0) -> None:
        """Reckon a stranger's `size` bytes, which took so much of each of `turns` turns: it rests until that and what
        was owed before is paid."""
        rest_s = self._time.spent(self._runtime.monotonic(), took_s, size, turns)
        if rest_s > 0.0 and not connection.is_gone and not connection.account.is_known:
            connection.rest(True)
            timer = self._runtime.call_later(rest_s, lambda: self._has_paid(connection))
            self._own.setdefault(connection, []).append(timer)
        if connection in self._ahead and not connection.open.has_long:
            self._leave(connection)

    def asks_long(self, connection: Connection) -> None:
        """Note that a stranger's long reply is looked up from now on; for others, few at a time are."""
        if connection not in self._ahead:
            self._ahead[connection] = self._runtime.call_later(REST_MAX_S, lambda: self._leave(connection))

    def asks_much(self, connection: Connection, items: int) -> None:
        """Reckon what so many messages take here and at other nodes, if there are others who ask for something."""
        if self._turn.others_ask:
            self.spent(connection, min(items * DONE_S_PER_ITEM, DONE_S_MAX), SMALL_BYTES + 1, DONE_TURNS)

    def _leave(self, connection: Connection) -> None:
        """Its long reply is there, or has not come in time, or went to a client that has shown a token meanwhile."""
        timer = self._ahead.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self._arm()

    def is_known(self, connection: Connection) -> None:
        """Let a client go on that has shown a token: it is no stranger any more, whatever it owes."""
        for timer in self._own.pop(connection, ()):
            timer.cancel()
            connection.rest(False)

    def _has_paid(self, connection: Connection) -> None:
        timers = self._own.get(connection)
        if timers:
            del timers[0]  # which of its timers rings first is of no account: one rest is over with each
            if not timers:
                del self._own[connection]
            self._hear(connection)

    def must_rest(self, connection: Connection) -> bool:
        """Decide whether a stranger that has come with something large waits until the others have paid, or is
        refused."""
        now = self._runtime.monotonic()
        owed_s = self._time.owed(now)
        if owed_s <= 0.0 and not self._waiting and len(self._ahead) < (1 if now < self._large_until else AT_ONCE):
            return False
        if owed_s > REST_MAX_S or len(self._waiting) >= WAITING_MAX:
            connection.refuse_all(ErrorWord.OVERLOADED, TOO_MANY)
            return True
        connection.rest(True)
        self._waiting.append(connection)
        self._arm()
        return True

    def _arm(self) -> None:
        if not self._is_armed and self._waiting and not self._ahead:
            self._is_armed = True
            self._runtime.call_later(max(self._time.owed(self._runtime.monotonic()), 0.0), self._next)

    def _next(self) -> None:
        """Hear those that wait until there is a debt again: this one is paid, unless it has grown meanwhile."""
        self._is_armed = False
        begun = self._runtime.worked()
        for _ in range(HEARD_AT_ONCE):
            if self._ahead or not self._waiting or self._time.owed(self._runtime.monotonic()) > 0.0:
                break
            self._hear(self._waiting.popleft(), is_turn=True)
            if self._runtime.worked() - begun > LONG_S:
                break  # small things cost nothing, and a thousand of them are a turn that takes long
        self._arm()

    def _hear(self, connection: Connection, *, is_turn: bool = False) -> None:
        """Look at what it sent meanwhile, and reckon that."""
        begun, size = self._runtime.worked(), connection.account.partial
        connection.rest(False, is_turn=is_turn)
        if not connection.account.is_known:
            self.spent(connection, self._runtime.worked() - begun, size)

    def answer(self, connection: Connection, call: Call, reply: Reply) -> None:
        """Answer a stranger, and reckon what that took: also one that has left, whose reply was looked up as well."""
        request = call.request
        if type(reply) is Reply and reply.data is None and connection.is_gone and not connection.open.has_long:
            connection.answer(call.order, request, reply)  # nothing was found, and nobody is there to be told so
            return
        if reply_length(request) == SHORT and not request.wait:
            self._turn.begin_stranger(0)
            connection.answer(call.order, request, reply)
            self._turn.end_stranger()
            return
        account = connection.account
        ledger = account.ledger
        begun, before = self._runtime.worked(), ledger.written + account.held_back
        connection.answer(call.order, request, reply)
        if connection.is_gone:
            size = reply_bytes(reply)
            took_s = size * S_PER_BYTE
        else:
            size = ledger.written + account.held_back - before
            took_s = self._runtime.worked() - begun
        if size > SMALL_BYTES:
            self._large_until = self._runtime.monotonic() + LARGE_LATELY_S
        self.spent(connection, took_s, size, FORWARDED if call.was_forwarded else LOOKED_UP)

    def end_turn(self, connection: Connection) -> None:
        """Others have had their turn: what was cut of a stranger's goes on, and is reckoned if it is large."""
        size = connection.account.partial
        if size <= SMALL_BYTES:
            connection.end_turn()  # the slice of a turn that strangers have is enough
            return
        begun = self._runtime.worked()
        connection.end_turn()
        self.spent(connection, self._runtime.worked() - begun, size)

    def closed(self, connection: Connection) -> None:
        """Forget a client that is gone; a long reply that was asked for comes all the same."""
        for timer in self._own.pop(connection, ()):
            timer.cancel()
        if connection in self._waiting:
            self._waiting.remove(connection)
        if not connection.open.has_long:
            self._leave(connection)


class Turns:
    """One Listener's. `turn` is the worker's; `rests` reckons what strangers take for what is large."""

    def __init__(self, runtime: Runtime, turn: ReadingTurn) -> None:
        self._runtime = runtime
        self.turn = turn
        self.rests = Rests(runtime, turn)
        self._known: deque[Connection] = deque()
        self._strangers: deque[Connection] = deque()
        self._newcomers: deque[Connection] = deque()
        self._newcomer_at = 0.0
        self._newcomer_next = True
        self._is_armed = False
        self._for_strangers: Timer | None = None

    def cut(self, connection: Connection, *, may_have_token: bool = False) -> None:
        """Put a client whose turn is over to the end of its line, which is another for what may be a token."""
        if connection.account.is_known:
            self._known.append(connection)
            self._arm()
            return
        self.turn.strangers_wait = True
        if may_have_token:
            self._newcomers.append(connection)
            self._disarm_for_strangers()  # they may owe more than it waits for
        else:
            self._strangers.append(connection)
        self._arm_for_strangers(0.0)

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._runtime.call_later(0.0, self._go_on)

    def _go_on(self) -> None:
        """Hear those in the line: each once, since who is cut again stands at its end."""
        self._is_armed = False
        self.turn.begin(LINE_S)
        for _ in range(len(self._known)):
            self._known.popleft().end_turn()
            if not self.turn.may_hear():
                break
        self.turn.end()
        if self._known:
            self._arm()

    def _arm_for_strangers(self, delay_s: float) -> None:
        if self._for_strangers is None:
            self._for_strangers = self._runtime.call_later(delay_s, self._go_on_with_strangers)

    def _disarm_for_strangers(self) -> None:
        if self._for_strangers is not None:
            self._for_strangers.cancel()
            self._for_strangers = None

    def _go_on_with_strangers(self) -> None:
        self._for_strangers = None
        turn, strangers, newcomers = self.turn, self._strangers, self._newcomers
        turn.begin(LINE_S)  # sockets may have used up their part: it is not those in the line who pay for that
        for _ in range(len(strangers) + len(newcomers)):
            while newcomers and newcomers[0].is_gone:
                newcomers.popleft()  # who comes and goes takes nobody's place
            if not strangers and not newcomers:
                break
            if turn.has_slice:
                is_newcomer = bool(newcomers) and (self._newcomer_next or not strangers)
            elif newcomers and turn.begun_at >= self._newcomer_at:
                is_newcomer = True
            else:
                break
            if is_newcomer:
                self._newcomer_at = turn.begun_at + NEWCOMER_S
            self._newcomer_next = not is_newcomer
            connection = newcomers.popleft() if is_newcomer else strangers.popleft()
            turn.begin_stranger(0)
            self.rests.end_turn(connection)
            turn.end_stranger()
        turn.strangers_wait = bool(strangers or newcomers)
        turn.end()
        if newcomers:
            self._arm_for_strangers(min(turn.slice_in_s, max(self._newcomer_at - turn.begun_at, 0.0)))
        elif strangers:
            self._arm_for_strangers(turn.slice_in_s)
