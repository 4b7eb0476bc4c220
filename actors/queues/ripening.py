"""Ripening: on a follower, too, what was delayed becomes ready. A machine.

The leader's log says nothing of that: where a message stands follows from the time. A follower goes by the log's, which
is that of its last entry: what is due by then is due for whatever record comes next. So who takes over has little to
catch up with, and a follower that is asked for its view does not count as delayed what was due long ago. It looks
through all queues, some of them in each turn, and then for a while of the log's time at none.
"""

from typing import Final

from storage.state import ShardState

ROUND_S: Final = 1.0
QUEUES_A_ROUND_S: Final = 20_000
"""Rounds begin so far apart, or further where there are many queues: to look at one takes some 0.3 us."""

TURN_QUEUES: Final = 2000
TURN_MESSAGES: Final = 500
"""So much is done in one turn: 1.2 ms at most."""


class Ripening:
    """Of one state. `has_more`: `go_on` has something to do."""

    def __init__(self, state: ShardState) -> None:
        self.has_more = False
        self._state = state
        self._next_at = 0.0
        self._behind = ""

    def time_is(self, time: float) -> None:
        """Note that the log has come to that time (Unix seconds)."""
        if time >= self._next_at:
            self.has_more = True
            self._next_at = time + max(ROUND_S, len(self._state.queues) / QUEUES_A_ROUND_S)

    def go_on(self) -> None:
        """Look at some more queues."""
        if not self.has_more:
            return
        state, left, room = self._state, TURN_QUEUES, TURN_MESSAGES
        for name in state.names.irange(self._behind, inclusive=(False, True)):
            room -= state.queues[name].ripen(state.messages, state.time, room)
            if room <= 0:
                return
            self._behind = name
            left -= 1
            if left <= 0:
                return
        self._behind = ""
        self.has_more = False
