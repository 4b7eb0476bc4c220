"""Trimming the log's head: what a stretch of it is about, and what that is by now. See `storage.log_store`.

The log's entries say which messages and queues the head is about (`TrimPlan`); the state's owner says what those are
now (`TrimRows`), in pieces, so that large messages hold nobody up. Rows of one plan may be of different moments: the
log from the plan's end on says absolutely what holds after it, so each is right once the log holds what it rests on.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from storage.queue_state import QueueState
from storage.state import ShardState

FIRST_VOTE_ID: Final = 1
"""The vote_id of what a node wrote that never had an election, as version 0.1 did."""

PIECE_ROWS: Final = 1000
PIECE_BYTES: Final = 1 << 20
"""One piece describes so many messages and queues, or so much of their data: some 3 ms."""

PLAN_BYTES: Final = 8 << 20
"""Of rows a plan has so much, and one entry's more: it ends at the entry that passes this."""

encode_row = msgspec.msgpack.Encoder().encode


class TrimStep(NamedTuple):
    """One entry, which ends with record `until` and stands under `key`: the messages and queues that it is about.

    `maybe_stored` are those of `msg_ids` that may have a row in the backlog already; `vote_id` made it.
    """

    until: int
    key: bytes
    msg_ids: list[int]
    maybe_stored: set[int]
    queues: list[str]
    vote_id: int = FIRST_VOTE_ID


class TrimPlan(NamedTuple):
    """The records of these entries, the first of the log, may go."""

    steps: Sequence[TrimStep]

    @property
    def until(self) -> int:
        """The last record that goes."""
        return self.steps[-1].until

    @property
    def vote_id(self) -> int:
        """Which vote_id made it."""
        return self.steps[-1].vote_id

    @property
    def keys(self) -> list[bytes]:
        """Of the entries."""
        return [step.key for step in self.steps]

    @property
    def maybe_stored(self) -> set[int]:
        """Messages that may have a row in the backlog already."""
        return set().union(*(step.maybe_stored for step in self.steps))


class TrimRows(NamedTuple):
    """What a plan's messages and queues are now: rows of the live messages, and a row or None for each queue.

    `members` is the members' row, `readers` the readers', None if there is none.
    """

    messages: list[tuple[int, bytes]]
    queues: list[tuple[str, bytes | None]]
    members: bytes | None = None
    readers: bytes | None = None


def queue_row(queue: QueueState) -> bytes:
    """A queue as LMDB keeps it."""
    return encode_row((queue.settings(), queue.max_id))


class Describing:
    """Makes the rows of a plan out of `state`, one piece a call. A machine."""

    def __init__(self, plan: TrimPlan, state: ShardState) -> None:
        self.state = state
        self._plan = plan
        self._at = 0
        self._next_id = 0
        self._messages: dict[int, bytes] = {}
        self._queues: dict[str, bytes | None] = {}
        self._bytes = 0

    def go_on(self) -> bool:
        """Describe some more; whether all is."""
        rows, room = PIECE_ROWS, PIECE_BYTES
        steps, live = self._plan.steps, self.state.messages
        while self._at < len(steps) and rows > 0 and room > 0:
            step = steps[self._at]
            ids = step.msg_ids
            while self._next_id < len(ids) and rows > 0 and room > 0:
                msg_id = ids[self._next_id]
                self._next_id += 1
                rows -= 1
                message = live.get(msg_id)
                if message is None or msg_id in self._messages:
                    continue
                self._messages[msg_id] = row = encode_row(message.record())
                self._bytes += len(row)
                room -= len(row)
            if self._next_id < len(ids):
                return False
            for name in step.queues:
                if name not in self._queues:
                    queue = self.state.queues.get(name)
                    self._queues[name] = None if queue is None else queue_row(queue)
                    rows -= 1
            self._at += 1
            self._next_id = 0
            if self._bytes > PLAN_BYTES:
                return True
        return self._at >= len(steps)

    def described(self) -> tuple[TrimPlan, TrimRows]:
        """As much of the plan as was described, and its rows."""
        state = self.state
        rows = TrimRows(
            list(self._messages.items()),
            list(self._queues.items()),
            None if state.members is None else encode_row(state.members),
            encode_row(state.readers) if state.readers else None,
        )
        return TrimPlan(self._plan.steps[: self._at]), rows


def rows_now(plan: TrimPlan, state: ShardState) -> tuple[TrimPlan, TrimRows]:
    """The rows of a plan's messages and queues as they are in memory, all at once, of as much of it as goes at once."""
    describing = Describing(plan, state)
    while not describing.go_on():
        pass
    return describing.described()
