"""Finding blocks of messages in their table of LMDB: see `storage.blocks`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from storage.blocks import Block, BlockKey, BlockView, Kept, offset_key, prefix, read_key
from storage.errors import DamagedError
from storage.tables import BLOCKS, ReadTransaction


def is_of(key: bytes, number: int, index: int) -> bool:
    """Whether a block is one of that partition."""
    return bytes(key[:6]) == prefix(number, index)


def blocks_end(
    transaction: ReadTransaction, number: int, index: int, *, but_damaged: bool = False
) -> tuple[int, int] | None:
    """Find where a partition's blocks end: offset and position; None: it has none. Raises `DamagedError`.

    `but_damaged`: where the last is damaged, they end where that begins: what is in it counts as missing.
    """
    found = transaction.last_below(BLOCKS, prefix(number, index + 1))
    if found is None or not is_of(found[0], number, index):
        return None
    try:
        last = BlockView(*found)
    except DamagedError:
        if not but_damaged:
            raise
        key = read_key(bytes(found[0]))
        return key.offset, key.position
    return last.end, last.end_position


def blocks_from(transaction: ReadTransaction, number: int, index: int, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Give a partition's blocks from that one on which holds `offset`, if it is there, as rows."""
    start = offset_key(number, index, offset)
    before = transaction.last_below(BLOCKS, offset_key(number, index, offset + 1))
    if before is not None and is_of(before[0], number, index):
        start = before[0]
    for key, value in transaction.range(BLOCKS, start):
        if not is_of(key, number, index):
            return
        yield key, value


def blocks_before(transaction: ReadTransaction, number: int, index: int, first: int, count: int) -> list[bytes]:
    """List the keys of blocks of a partition that hold nothing from offset `first` on, at most `count`."""
    found: list[bytes] = []
    previous: bytes | None = None
    for key in transaction.keys(BLOCKS, prefix(number, index)):
        if not is_of(key, number, index):
            break
        offset = read_key(bytes(key)).offset
        if previous is not None and offset <= first:
            found.append(previous)
        previous = None
        if offset >= first or len(found) >= count:
            break
        previous = bytes(key)
    if previous is not None:  # the partition's last block
        value = transaction.get(BLOCKS, previous)
        with suppress(DamagedError):  # it goes when another stands behind it
            if value is not None and BlockView(previous, value).end <= first:
                found.append(previous)
    return found


class Wanted(NamedTuple):
    """Messages of a partition from one on: that at `offset`, that whose frame holds `position`, or the first that was
    appended at the time `at` (Unix seconds) or later. One of the three is given."""

    number: int
    partition: int
    offset: int | None = None
    position: int | None = None
    at: float | None = None


class Stored(NamedTuple):
    """What blocks had of what was wanted: so many `messages` that follow each other, or the first of them and the
    frames of all.

    Nothing: `next` is the offset of the first message behind it that is there, None: none is. `damaged`: a block could
    not be read.
    """

    kept: list[Kept]
    frames: list[bytes]
    next: int | None
    messages: int
    damaged: str | None = None


def _last_not_beyond(
    transaction: ReadTransaction, number: int, index: int, is_beyond: Callable[[BlockKey], bool]
) -> bytes | None:
    """Find the last block that is not beyond something, by its key; None: there is none. Keys alone are read."""
    first = next(transaction.keys(BLOCKS, prefix(number, index)), None)
    last = transaction.last_key_below(BLOCKS, prefix(number, index + 1))
    if first is None or last is None or not is_of(first, number, index) or is_beyond(read_key(bytes(first))):
        return None
    found, low, high = bytes(first), read_key(bytes(first)).offset, read_key(last).offset
    while low < high:  # `found` is not beyond, and begins at `low`; what begins behind `high` is
        middle = (low + high + 1) // 2
        key = transaction.last_key_below(BLOCKS, offset_key(number, index, middle + 1))
        assert key is not None
        its = read_key(key)
        if is_beyond(its):
            high = its.offset - 1
        else:
            found, low = key, middle
    return found


def _key_of(transaction: ReadTransaction, wanted: Wanted) -> bytes | None:
    """Find the block in which what is wanted begins, or would."""
    number, index = wanted.number, wanted.partition
    if wanted.offset is not None:
        key = transaction.last_key_below(BLOCKS, offset_key(number, index, wanted.offset + 1))
        return key if key is not None and is_of(key, number, index) else None
    if wanted.position is not None:
        position = wanted.position
        return _last_not_beyond(transaction, number, index, lambda key: key.position > position)
    at_ms = int((wanted.at or 0.0) * 1000)
    # of blocks that begin in the same millisecond the first may hold it, and the one before that
    return _last_not_beyond(transaction, number, index, lambda key: key.at_ms >= at_ms)


def _index_in(view: BlockView, wanted: Wanted) -> int:
    """Where in a block what is wanted begins; behind its last: it is not there."""
    if wanted.offset is not None:
        return min(max(wanted.offset - view.key.offset, 0), view.end - view.key.offset)
    if wanted.position is not None:
        beyond = wanted.position >= view.end_position
        return view.end - view.key.offset if beyond else view.index_of_position(wanted.position)
    return view.index_of_time(wanted.at or 0.0)


def read_stored(
    transaction: ReadTransaction, wanted: Wanted, count: int, bytes_max: int, *, is_raw: bool = False
) -> Stored:
    """Read messages from blocks: at most `count`, and as many as fit into `bytes_max`, but one in any case."""
    kept: list[Kept] = []
    frames: list[bytes] = []
    size = taken = 0
    expected = wanted.offset
    start = _key_of(transaction, wanted) or prefix(wanted.number, wanted.partition)
    for key, value in transaction.range(BLOCKS, start):
        if not is_of(key, wanted.number, wanted.partition):
            break
        try:
            view = BlockView(key, value)
        except DamagedError as error:
            if taken:
                break
            if wanted.offset is None and expected is None:
                continue  # what is looked for may stand behind it
            following = next((one for one in transaction.keys(BLOCKS, key + b"\0")), None)
            goes_on = following is not None and is_of(following, wanted.number, wanted.partition)
            at = read_key(bytes(following)).offset if following is not None and goes_on else None
            return Stored([], [], at, 0, str(error))
        index = _index_in(view, wanted) if not taken else max((expected or 0) - view.key.offset, 0)
        end = view.end - view.key.offset
        if index >= end:
            continue
        if expected is not None and view.key.offset + index > expected:
            return Stored(kept, frames, view.key.offset + index, taken)
        upto = view.fitting(index, min(end, index + count - taken), bytes_max - size)
        if not taken:
            upto = max(upto, index + 1)
        if upto > index:
            kept += [view.kept(at) for at in range(index, upto if not is_raw else index + (not taken))]
            frames += [view.frames(index, upto)] if is_raw else []
            size += view.place_of(upto) - view.place_of(index)
            taken += upto - index
        if upto < end or taken >= count:
            break
        expected = view.end
    return Stored(kept, frames, None, taken)


def fitted(rows: Sequence[tuple[bytes, bytes]], begin: int, until: int) -> list[tuple[bytes, bytes]]:
    """Cut blocks of a partition, as rows, so that they hold the messages from one offset up to another, and no others.

    Nodes cut theirs at different places. Where two blocks hold a message, it would be found in one of them alone.
    """
    found: list[tuple[bytes, bytes]] = []
    for key, value in rows:
        view = BlockView(key, value)
        first, last = max(begin, view.key.offset), min(until, view.end)
        if first == view.key.offset and last == view.end:
            found.append((key, value))
        elif first < last:
            kept = [view.kept(at - view.key.offset) for at in range(first, last)]
            found.append(Block(view.key.number, view.key.partition, kept).row())
    return found
