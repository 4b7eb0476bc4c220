"""Trimming the log's head: what the messages and queues of a stretch of it are by now. See `storage.stretches`.

The state's owner says it in pieces, so that large messages hold nobody up. Rows of one trim may be of different
moments: the log from the stretch's end on says absolutely what holds after it, so each is right once the log holds what
it rests on.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from storage.kinds import as_written
from storage.queue_state import QueueState
from storage.sections import NO_ROWS, Rows, rows_of
from storage.state import ShardState
from storage.stretches import Stretch

FIRST_VOTE_ID: Final = 1
"""The vote_id of what a node wrote that never had an election, as version 0.1 did."""

PIECE_ROWS: Final = 1000
PIECE_BYTES: Final = 1 << 20
"""One piece describes so many messages and queues, or so much of their data: some 3 ms."""

encode_row = msgspec.msgpack.Encoder().encode


class TrimRows(NamedTuple):
    """Messages and queues as they are now: rows of the live messages, and a row or None for each queue.

    `sections` are the rows of those. `gone`: messages that have no row any more, if they had one.
    """

    messages: list[tuple[int, bytes]]
    queues: list[tuple[str, bytes | None]]
    sections: Rows = NO_ROWS
    gone: Sequence[int] = ()


class Trim(NamedTuple):
    """The log's head may go up to record `until`, which the leader of `vote_id` made, if these `rows` are there."""

    until: int
    vote_id: int
    rows: TrimRows


def queue_row(queue: QueueState) -> bytes:
    """Make a queue what LMDB keeps of it."""
    return encode_row((as_written(queue.settings()), queue.max_id))


class Describing:
    """Makes the rows of a stretch out of `state`, one piece a call. A machine."""

    def __init__(self, stretch: Stretch, state: ShardState) -> None:
        self.state = state
        self.stretch = stretch
        self._next_id = self._next_queue = 0
        self._messages: list[tuple[int, bytes]] = []
        self._gone: list[int] = []
        self._queues: list[tuple[str, bytes | None]] = []

    def go_on(self) -> bool:
        """Describe some more; whether all is."""
        rows, room = PIECE_ROWS, PIECE_BYTES
        live, names = self.state.messages, self.stretch.queues
        produced, touched = self.stretch.produced, self.stretch.touched
        old = len(produced)
        count = old + len(touched)
        while self._next_id < count and rows > 0 and room > 0:
            is_old = self._next_id >= old
            msg_id = touched[self._next_id - old] if is_old else produced[self._next_id]
            message = live.get(msg_id)
            if message is not None:
                row = encode_row(message.record())
                self._messages.append((msg_id, row))
                room -= len(row)
            elif is_old:
                self._gone.append(msg_id)
            self._next_id += 1
            rows -= 1
        while self._next_queue < len(names) and rows > 0 and room > 0:
            name = names[self._next_queue]
            queue = self.state.queues.get(name)
            self._queues.append((name, None if queue is None else queue_row(queue)))
            self._next_queue += 1
            rows -= 1
        return self._next_id >= count and self._next_queue >= len(names)

    def described(self) -> Trim:
        """All of the stretch, when it is described."""
        rows = TrimRows(self._messages, self._queues, rows_of(self.state), self._gone)
        return Trim(self.stretch.until, self.stretch.vote_id, rows)


def trim_now(stretch: Stretch, state: ShardState) -> Trim:
    """Read a stretch's messages and queues as they are in memory, all at once."""
    describing = Describing(stretch, state)
    while not describing.go_on():
        pass
    return describing.described()
