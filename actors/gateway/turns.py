"""Turns: clients whose turn was cut, in lines: those that are known, and strangers. A part of the Listener.

Whoever has more than one turn of the loop has time for (`ReadingTurn`) stands at the end of its line with what is left.
Of each line some are heard in each turn, one at least: of strangers as many as their slice allows.

A stranger that has just come may have sent a token, and not be one for long. So newcomers that have sent little have a
line of their own, which takes turns with the other; and one of them is heard every so often though strangers have used
up their time, and may owe a second of it.
"""

from collections import deque
from typing import Final

from actors.gateway.rests import Rests
from actors.runtime.contract import Runtime, Timer
from net.clients.connection import Connection
from net.clients.reading_turn import LINE_S, ReadingTurn

NEWCOMER_S: Final = 0.005
"""So often one of the newcomers is heard whatever strangers owe: two hundred a second, a tenth of the time at worst."""


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
