"""Trimming the log's head: what the messages and queues of a stretch of it are by now. See `storage.stretches`.

The state's owner says it in pieces, so that large messages hold nobody up. Rows of one trim may be of different
moments: the log from the stretch's end on says absolutely what holds after it, so each is right once the log holds what
it rests on.
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

import msgspec

from storage.kinds import as_written
from storage.queue_state import QueueState
from storage.sections import NO_ROWS, Rows, rows_of
from storage.state import ShardState
from storage.stretches import Stretch
from storage.topic_loading import row_of

FIRST_VOTE_ID: Final = 1
"""The vote_id of what a node wrote that never had an election, as version 0.1 did."""

PIECE_ROWS: Final = 1000
PIECE_BYTES: Final = 1 << 20
"""One piece describes so many messages and queues, or so much of their data: some 3 ms."""

encode_row = msgspec.msgpack.Encoder().encode


class TrimRows(NamedTuple):
    """Messages and queues as they are now: rows of the live messages, and a row or None for each queue.

    `sections` are the rows of those. `gone`: messages that have no row any more, if they had one. `topics`: rows of
    topics, groups and producers, a row or None for each.
    """

    messages: list[tuple[int, bytes]]
    queues: list[tuple[str, bytes | None]]
    sections: Rows = NO_ROWS
    gone: Sequence[int] = ()
    topics: Sequence[tuple[bytes, bytes | None]] = ()


class Trim(NamedTuple):
    """The log's head may go up to record `until`, which the leader of `vote_id` made, if these `rows` are there."""

    until: int
    vote_id: int
    rows: TrimRows


def queue_row(queue: QueueState) -> bytes:
    """Make a queue what LMDB keeps of it."""
    return encode_row((as_written(queue.settings()), queue.max_id))


def describing(stretch: Stretch, state: ShardState) -> Generator[None, None, Trim]:
    """Make the rows of a stretch out of `state`, in pieces.

    What the stretch has appended to topics is put into blocks first, which are to be stored before it goes.
    """
    rows, room = PIECE_ROWS, PIECE_BYTES
    topics: list[tuple[bytes, bytes | None]] = []
    if stretch.topics:
        known = state.topics.by_name
        state.topics.tails.close_until([known[name] for name in stretch.topics if name in known], stretch.until)
        yield
    for key in (*stretch.rows, *state.topics.producers.take_forgotten()):
        if rows <= 0 or room <= 0:
            yield
            rows, room = PIECE_ROWS, PIECE_BYTES
        rows -= 1
        made = row_of(state.topics, key)
        topics.append((key, made))
        room -= 0 if made is None else len(made)
    described: list[tuple[int, bytes]] = []
    gone: list[int] = []
    queues: list[tuple[str, bytes | None]] = []
    for msg_ids in (stretch.produced, stretch.touched):
        for msg_id in msg_ids:
            if rows <= 0 or room <= 0:
                yield
                rows, room = PIECE_ROWS, PIECE_BYTES
            rows -= 1
            message = state.messages.get(msg_id)
            if message is not None:
                row = encode_row(message.record())
                described.append((msg_id, row))
                room -= len(row)
            elif msg_ids is stretch.touched:
                gone.append(msg_id)
    for name in stretch.queues:
        if rows <= 0:
            yield
            rows = PIECE_ROWS
        rows -= 1
        queue = state.queues.get(name)
        queues.append((name, None if queue is None else queue_row(queue)))
    return Trim(stretch.until, stretch.vote_id, TrimRows(described, queues, rows_of(state), gone, topics))


def trim_now(stretch: Stretch, state: ShardState) -> Trim:
    """Read a stretch's messages and queues as they are in memory, all at once."""
    steps = describing(stretch, state)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            trim: Trim = end.value
            return trim
