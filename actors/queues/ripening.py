"""On a follower, too, what was delayed becomes ready. A machine.

The leader's log says nothing of that: where a message stands follows from the time. A follower goes by the log's,
which is that of its last entry: what is due by then is due for whatever record comes next. So a new leader has little
to catch up with, and a follower that is asked for its view does not count as delayed what was due long ago. It looks
through all queues, some of them in each turn, and then for a while of the log's time at none.
"""

from typing import Final

from actors.runtime.work import Steps
from actors.shard.jobs import CallJob, Jobs
from actors.shard.machine import Machine
from storage.state import ShardState

ROUND_S: Final = 1.0

QUEUES_A_ROUND_S: Final = 20_000
"""Rounds begin so far apart, or further where there are many queues: to look at one takes some 0.3 us."""

TURN_QUEUES: Final = 2000

TURN_MESSAGES: Final = 500
"""So much is done in one turn: 1.2 ms at most."""

HELD_UP_MAX: Final = 100
"""Of so many queues it is remembered that what is due there stands behind what expires first."""


class Ripening(Machine):
    """Of one state. Looks at its queues in `jobs`."""

    def __init__(self, state: ShardState, jobs: Jobs) -> None:
        self._state = state
        self._jobs = jobs
        self._job: CallJob | None = None
        self._next_at = 0.0
        self._held_up: dict[str, None] = {}

    def followed(self) -> None:
        """Note that the log has new records, and with them a time."""
        time = self._state.time
        begins = time >= self._next_at
        if begins:
            self._next_at = time + max(ROUND_S, len(self._state.queues) / QUEUES_A_ROUND_S)
        if self._job is None and (begins or self._held_up):
            self._job = self._jobs.add(None, self._look(is_round=begins))

    def _look(self, *, is_round: bool) -> Steps:
        """Look at those queues again where a record had to be made first, and in a round at all others."""
        state, left, room = self._state, TURN_QUEUES, TURN_MESSAGES
        held_up, self._held_up = self._held_up, {}
        for name in held_up:
            while name in state.queues:
                room -= self._ripen(name, room)
                if room > 0:
                    break
                yield
                room = TURN_MESSAGES
        behind, is_over = "", not is_round
        while not is_over:
            is_over = True
            for name in state.names.irange(behind, inclusive=(False, True)):
                room -= self._ripen(name, room)
                left -= 1
                if room > 0:
                    behind = name
                if room <= 0 or left <= 0:
                    is_over = False
                    break
            if not is_over:
                yield
                left, room = TURN_QUEUES, TURN_MESSAGES
        self._job = None

    def _ripen(self, name: str, room: int) -> int:
        state = self._state
        queue = state.queues[name]
        done = queue.ripen(state.messages, state.time, room)
        if queue.waiting and queue.waiting.first[0] <= state.time and len(self._held_up) < HELD_UP_MAX:
            self._held_up[name] = None
        return done
