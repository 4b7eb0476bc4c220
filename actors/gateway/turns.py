"""Turns: clients whose turn was cut, in two lines: those that are known, and strangers. A part of the Listener.

Whoever has more than one turn of the loop has time for (`ReadingTurn`) stands at the end of its line with what is left.
Of each line some are heard in each turn, one at least: of strangers as many as their slice allows.
"""

from collections import deque

from actors.gateway.rests import Rests
from actors.runtime.contract import Runtime
from net.clients.connection import Connection
from net.clients.reading_turn import LINE_S, ReadingTurn


class Turns:
    """One Listener's. `turn` is the worker's; `rests` reckons what strangers take for what is large."""

    def __init__(self, runtime: Runtime, turn: ReadingTurn) -> None:
        self._runtime = runtime
        self.turn = turn
        self.rests = Rests(runtime, turn)
        self._known: deque[Connection] = deque()
        self._strangers: deque[Connection] = deque()
        self._is_armed = self._is_armed_for_strangers = False

    def cut(self, connection: Connection) -> None:
        """Put a client whose turn is over to the end of its line."""
        if connection.account.is_known:
            self._known.append(connection)
            self._arm()
        else:
            self._strangers.append(connection)
            self.turn.strangers_wait = True
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
        if not self._is_armed_for_strangers:
            self._is_armed_for_strangers = True
            self._runtime.call_later(delay_s, self._go_on_with_strangers)

    def _go_on_with_strangers(self) -> None:
        self._is_armed_for_strangers = False
        turn, line = self.turn, self._strangers
        turn.begin(LINE_S)  # sockets may have used up their part: it is not those in the line who pay for that
        for _ in range(len(line)):
            if not turn.has_slice:
                break
            connection = line.popleft()
            turn.begin_stranger(0)
            self.rests.end_turn(connection)
            turn.end_stranger()
        turn.strangers_wait = bool(line)
        turn.end()
        if line:
            self._arm_for_strangers(turn.slice_in_s)
