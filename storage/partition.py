"""A partition of a topic as one node's state has it: where it begins and ends, and the messages that are in memory.

| from | up to | where the messages are |
|---|---|---|
| `first` | `closed` | in blocks of LMDB (`storage.blocks`), or on their way here (`Tails.gaps`) |
| `closed` | `base` | in blocks that are made and not known to be stored |
| `base` | `next` | in `tail`; those from `settled` on are not known to be committed |

Messages are only added at the end, and taken away at the beginning; those that are not committed may be taken back.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from storage.blocks import BLOCK_BYTES, TABLE_BYTES, Block, Kept, cut, extra_bytes, frame_bytes

KEPT_OVERHEAD_BYTES: Final = 300
"""What a message in memory takes beside its data, about."""


def weight(kept: Kept) -> int:
    """Reckon what a message takes in memory (bytes)."""
    return frame_bytes(kept.data, kept.attribute) + extra_bytes(kept.key, kept.headers) + KEPT_OVERHEAD_BYTES


class Partition:
    """Offsets and positions of one partition. `first_at`: no message that is kept was appended before that, `last_at`:
    the last one was appended then (Unix seconds). `weight`, `closed_weight`: what those in the tail, and in
    `closed`, take in memory.
    """

    __slots__ = (
        *("base", "base_position", "closed", "closed_weight", "first", "first_at", "first_position", "index"),
        *("last_at", "next", "next_position", "number", "settled", "settled_position", "tail", "weight"),
    )

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        self.index = index
        self.first = self.first_position = 0
        self.first_at = self.last_at = 0.0
        self.closed_weight = self.weight = 0
        self.closed: deque[Block] = deque()
        self.base = self.base_position = 0
        self.tail: deque[Kept] = deque()
        self.next = self.next_position = 0
        self.settled = self.settled_position = 0

    @property
    def tail_bytes(self) -> int:
        """Reckon what the tail's messages take in blocks."""
        return self.weight - KEPT_OVERHEAD_BYTES * len(self.tail)

    @property
    def has_full(self) -> bool:
        """Whether what is committed of the tail fills a block, keys and headers left aside; or all of it fills two."""
        settled = self.settled_position - self.base_position + TABLE_BYTES * (self.settled - self.base)
        return settled > BLOCK_BYTES or self.tail_bytes > 2 * BLOCK_BYTES

    def add(self, kept: Kept) -> int:
        """Add the next message; returns what it takes in memory (bytes)."""
        assert kept.offset == self.next, (kept.offset, self.next)
        self.tail.append(kept)
        size = weight(kept)
        self.weight += size
        self.next += 1
        self.next_position = kept.end_position
        self.last_at = kept.produced_at
        if self.next - 1 == self.first:
            self.first_at = kept.produced_at
        return size

    def take_back(self) -> None:
        """Take the last message back, which was not committed. The caller says of `last_at` what it was."""
        kept = self.tail.pop()
        self.weight -= weight(kept)
        self.next, self.next_position = kept.offset, kept.position
        assert self.next >= self.settled, "what readers have seen is taken back"

    def jump(self, offset: int, position: int) -> None:
        """Go on at that offset, behind a gap: what stands before it is not known here."""
        self.base = self.next = self.settled = offset
        self.base_position = self.next_position = self.settled_position = position
        self.closed.clear()
        self.tail.clear()
        self.weight = self.closed_weight = 0

    def settle(self, committed: int) -> bool:
        """Note that records up to that one are committed. Returns whether all messages are."""
        at = self.settled
        if at < self.base:
            at = self.base
        for kept in islice(self.tail, at - self.base, None):
            if kept.trans_id > committed:
                break
            at = kept.offset + 1
            self.settled_position = kept.end_position
        self.settled = at
        return at == self.next

    def close(self, count: int) -> list[Block]:
        """Make blocks of the tail's first messages, so many, which are committed."""
        assert self.base + count <= self.settled
        taken = [self.tail.popleft() for _ in range(count)]
        blocks = cut(self.number, self.index, taken)
        moved = sum([weight(kept) for kept in taken])
        self.weight -= moved
        self.closed_weight += moved
        self.closed.extend(blocks)
        self.base, self.base_position = taken[-1].offset + 1, taken[-1].end_position
        return blocks

    def close_full(self) -> list[Block]:
        """Make blocks of the tail's committed messages, as many as fill some."""
        count = room = 0
        for at, kept in enumerate(islice(self.tail, self.settled - self.base)):
            its = _in_block(kept)
            if room + its > BLOCK_BYTES and at:
                count, room = at, 0
            room += its
        return self.close(count) if count else []

    def close_until(self, trans_id: int) -> list[Block]:
        """Make blocks of the tail up to record `trans_id`, which is committed, and of all that fill them up."""
        count = sum([kept.trans_id <= trans_id for kept in self.tail])
        if not count:
            return []
        room = 0
        for at, kept in enumerate(islice(self.tail, self.settled - self.base)):
            its = _in_block(kept)
            if room and room + its > BLOCK_BYTES:
                if at >= count:
                    count = at
                    break
                room = 0
            room += its
        else:
            count = max(count, self.settled - self.base)
        return self.close(count)

    def block_stored(self, end: int) -> None:
        """Note that the blocks up to offset `end` are stored."""
        self._drop_closed(end)

    def _drop_closed(self, end: int) -> None:
        while self.closed and self.closed[0].end <= end:
            self.closed_weight -= sum([weight(kept) for kept in self.closed.popleft().kept])

    def retire(self) -> None:
        """Let go of the messages in memory that are not kept any more: `first` is committed."""
        first = self.first
        self._drop_closed(first)
        while self.tail and self.tail[0].offset < first:
            kept = self.tail.popleft()
            self.weight -= weight(kept)
            self.base, self.base_position = kept.offset + 1, kept.end_position

    @property
    def held_from(self) -> tuple[int, int]:
        """From which offset, and position, on messages are in memory."""
        if self.closed:
            first = self.closed[0].kept[0]
            return first.offset, first.position
        return self.base, self.base_position

    def in_memory(self, offset: int) -> Iterator[Kept]:
        """Go through the committed messages in memory from that offset on."""
        for block in self.closed:
            if block.end > offset:
                for kept in block.kept:
                    if kept.offset >= offset:
                        yield kept
        yield from islice(self.tail, max(offset - self.base, 0), self.settled - self.base)

    def find_position(self, position: int) -> int:
        """Find the message in memory whose frame holds that position; `settled`: it is not there yet."""
        for kept in self.in_memory(0):
            if kept.end_position > position:
                return kept.offset
        return self.settled

    def find_time(self, at: float) -> int:
        """Find the first message in memory that was appended then or later; `settled`: none was."""
        for kept in self.in_memory(0):
            if kept.produced_at >= at:
                return kept.offset
        return self.settled

    def check(self) -> None:
        """Assert every invariant; for tests."""
        assert 0 <= self.first <= self.settled <= self.next, (self.first, self.settled, self.next)
        assert self.first_position <= self.settled_position <= self.next_position
        expected, position = self.base, self.base_position
        for kept in self.tail:
            assert (kept.offset, kept.position) == (expected, position)
            expected, position = kept.offset + 1, kept.end_position
        assert (self.next, self.next_position) == (expected, position)
        closed = [kept for block in self.closed for kept in block.kept]
        assert self.weight == sum([weight(kept) for kept in self.tail])
        assert self.closed_weight == sum([weight(kept) for kept in closed])
        if closed:
            assert [kept.offset for kept in closed] == list(range(closed[0].offset, self.base))
            assert closed[-1].end_position == self.base_position


def _in_block(kept: Kept) -> int:
    return frame_bytes(kept.data, kept.attribute) + extra_bytes(kept.key, kept.headers)
