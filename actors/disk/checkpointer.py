"""Checkpointer: moves committed entries into LMDB's log in bulk, trims the log's head, and reads the log for others.

On a thread of its own, since LMDB's commits wait for the disk. The only one that opens the shard's LMDB. Trimming
goes by stretches (`storage.stretches`), each with one question to the queue owner, so that it never holds up
requests.

`Retention`, a machine, says how far the head may be trimmed. The log keeps its last `records_max` records, and up to
a tenth more; or as many as take `bytes_max` of LMDB's pages, if those are fewer. It keeps more for its named readers:
all that the slowest has not read yet, up to `reader_records_max` records and `reader_bytes_max` bytes. A reader that is
further behind loses what is trimmed, which is said once; from then on nothing is kept for it until it has caught up.
Nothing is trimmed before it is known who reads: after a start the state's owner says so, and the Checkpointer may ask
first.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from actors.messages.blocks import (
    BlocksFetched,
    BlocksMissing,
    BlocksStored,
    CloseTail,
    DropBlocks,
    FetchBlocks,
    FillGap,
    GapFilled,
    StoreBlocks,
)
from actors.messages.checkpoints import (
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    DescribeHead,
    EntriesRead,
    HeadDescribed,
    LoadState,
    LogRead,
    PartStaged,
    RawRead,
    ReadEntries,
    ReadersMoved,
    ReadLog,
    ReadRaw,
    ReadSnapshot,
    SnapshotRead,
    StagePart,
)
from actors.messages.lifecycle import Attach
from actors.messages.log import StateLoaded
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToQueueOwner, ToReplicator
from actors.runtime.blocking import BlockingActor
from actors.runtime.contract import Runtime
from storage.blocks import Block
from storage.errors import DiskFullError
from storage.log_store import Bounds, LogStore
from storage.records import STREAMS_LEVEL, ReaderPosition
from storage.recovery import load_state
from storage.state import ShardState
from storage.stretches import STRETCH_RECORDS

log = logging.getLogger("quorate.log")

PIN_S: Final = 30.0
"""For so long after a snapshot's rows were read nothing is trimmed: the next ones must fit them."""

PIN_MAX_S: Final = 1800.0

DROP_ROWS: Final = 500
"""So many blocks, 16 MB, are let go of at once: some 5 ms, and a commit."""


@dataclass(frozen=True)
class RetentionLimits:
    """Records, and bytes of LMDB's pages."""

    records_max: int = 1_000_000
    reader_records_max: int = 10_000_000
    reader_bytes_max: int = 8 << 30
    bytes_max: int = 4 << 30


def stretch_records(records_max: int) -> int:
    """How many records go at once from a log of so many: half of what it may have beyond them, at most."""
    return max(1, min(STRETCH_RECORDS, records_max // 20))


class Retention:
    """Of one shard's log."""

    def __init__(self, limits: RetentionLimits) -> None:
        self._limits = limits
        self._readers: dict[str, ReaderPosition] | None = None
        self._lost: dict[str, int] = {}

    def moved(self, readers: dict[str, ReaderPosition]) -> None:
        """Take over the readers that are there now, all of them, as committed."""
        self._readers = readers
        self._lost = {name: upto for name, upto in self._lost.items() if name in readers and readers[name].upto == upto}

    def until(self, bounds: Bounds, log_bytes: int, *, is_going_on: bool) -> int | None:
        """Up to which record the head may go now; None if it is to stay. `is_going_on`: in a trim that has begun."""
        limits = self._limits
        slack = 0 if is_going_on else max(limits.records_max // 10, 1)
        is_large = log_bytes > limits.bytes_max
        if self._readers is None or (
            not is_large and bounds.checkpointed - bounds.trimmed <= limits.records_max + slack
        ):
            return None
        wanted = bounds.checkpointed if is_large else bounds.checkpointed - limits.records_max
        needed = min((one.upto for one in self._readers.values() if one.upto >= bounds.trimmed), default=wanted)
        if needed < wanted and log_bytes <= limits.reader_bytes_max:
            wanted = max(needed, bounds.checkpointed - limits.reader_records_max)
        return wanted if wanted > bounds.trimmed else None

    def trimmed(self, until: int) -> list[tuple[str, int]]:
        """Note that the head has gone up to `until`: which readers have just lost records, and behind which one."""
        readers = self._readers or {}
        lost = [(name, at.upto) for name, at in readers.items() if at.upto < until and name not in self._lost]
        self._lost.update(lost)
        return lost


class _DropOn:
    """To itself: let go of more blocks."""


class Checkpointer(BlockingActor):
    """Owns the shard's tables. What the log keeps is `Retention`'s to say.

    `new_state` makes an empty state; `part_bytes` is about what one part of a snapshot holds.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: LogStore,
        limits: RetentionLimits,
        new_state: Callable[[], ShardState],
        part_bytes: int,
    ) -> None:
        super().__init__(runtime)
        self._store = store
        self._new_state = new_state
        self._part_bytes = part_bytes
        self._pinned_until = self._pinned_since = 0.0
        self._retention = Retention(limits)
        self._asked: DescribeHead | None = None
        self._described: HeadDescribed | None = None
        self._blocks: deque[Block] = deque()
        self._dropping: dict[int, dict[int, int] | None] = {}
        self._lacks = False
        self._replicator: Mailbox[ToReplicator]
        self._owner: Mailbox[ToQueueOwner]
        self._handlers: dict[type, Callable[[Any], None]] = {
            Checkpoint: self._checkpoint,
            HeadDescribed: self._head_described,
            ReadersMoved: lambda m: self._retention.moved(m.readers),
            ReadLog: self._read_log,
            ReadRaw: self._read_raw,
            ReadEntries: self._read_entries,
            ReadSnapshot: self._read_snapshot,
            StagePart: self._stage,
            StoreBlocks: self._store_blocks,
            FetchBlocks: self._fetch_blocks,
            FillGap: self._fill_gap,
            DropBlocks: self._drop_blocks,
            _DropOn: lambda m: self._drop_some(),
            LoadState: self._load,
            Attach: self._attach,
        }

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        self._handlers[type(message)](message)

    def _attach(self, message: Attach) -> None:
        self._replicator, self._owner = message.replicator, message.owner
        self._say_missing()

    def _head_described(self, message: HeadDescribed) -> None:
        if message.asked is not self._asked:
            return
        if message.trim is None:
            self._asked = None  # asked again with the next checkpoint
        else:
            self._described = message
            self._trim()

    def _forget_asked(self) -> None:
        """Forget what was said of the log, or of the state that describes it: it is another."""
        self._asked = self._described = None

    def _read_log(self, message: ReadLog) -> None:
        entries = self._store.read(message.after, message.count, message.bytes_max)
        self._replicator.tell(LogRead(message.call, message.after, message.count, entries))

    def _read_raw(self, message: ReadRaw) -> None:
        entries, last = self._store.read_raw(message.after, message.count, message.bytes_max)
        self._replicator.tell(RawRead(message.call, entries, last))

    def _read_entries(self, message: ReadEntries) -> None:
        entries = self._store.read(message.after, message.records_max, message.bytes_max)
        self._replicator.tell(EntriesRead(message.node_id, message.after, entries))

    def _read_snapshot(self, message: ReadSnapshot) -> None:
        self._pin()
        part = self._store.read_part(message.cursor, self._part_bytes)
        self._replicator.tell(SnapshotRead(message.node_id, message.cursor, part))

    def on_stop(self) -> None:
        """Close LMDB."""
        self._store.close()

    def _checkpoint(self, message: Checkpoint) -> None:
        store = self._store
        entries = [entry for entry in message.entries if entry.last_trans_id > store.bounds.checkpointed]
        blocks = self._blocks_of(entries[-1].last_trans_id if entries else store.bounds.checkpointed)
        try:
            if entries:
                store.store(entries, seals=message.level >= STREAMS_LEVEL, blocks=[block.row() for block in blocks])
        except DiskFullError as error:
            self._replicator.tell(CheckpointFailed(str(error)))
        else:
            if entries:
                self._stored(blocks)
            self._report()
        if self._dropping:
            self._drop_some()
        self._trim()
        self._plan_trim()

    # -- messages of topics ------------------------------------------------------------------------------------

    def _store_blocks(self, message: StoreBlocks) -> None:
        """Keep blocks in mind until the log holds what is in them; those whose messages it holds are stored now."""
        self._blocks.extend(message.blocks)
        blocks = self._blocks_of(self._store.bounds.checkpointed)
        if blocks:
            with suppress(DiskFullError):  # again with the next checkpoint
                self._store.store_blocks([block.row() for block in blocks])
                self._stored(blocks)

    def _say_missing(self) -> None:
        """Say which messages LMDB lacks, if it does."""
        gaps = self._store.gaps
        if gaps or self._lacks:
            self._lacks = bool(gaps)
            self._replicator.tell(BlocksMissing(gaps))

    def _fetch_blocks(self, message: FetchBlocks) -> None:
        """Read blocks for another node. What is in no block is to be in one, so that it can be asked for again."""
        rows = self._store.read_blocks(message.gap, message.bytes_max)
        if not rows:
            self._owner.tell(CloseTail(*message.gap[:2]))
        self._replicator.tell(BlocksFetched(message.node_id, message.gap, rows))

    def _fill_gap(self, message: FillGap) -> None:
        number, partition, begin, _ = message.gap
        with suppress(DiskFullError):  # it is asked for again
            self._store.fill_gap(message.gap, message.rows, message.upto)
            self._owner.tell(GapFilled(number, partition, begin, message.upto))
        self._lacks = True
        self._say_missing()

    def _blocks_of(self, upto: int) -> list[Block]:
        """Give the blocks that may be stored when LMDB's log goes up to that record: none is ahead of it.

        A log that is cut off in LMDB, or contradicts others', takes with it what it says of topics.
        """
        return list(takewhile(lambda block: block.kept[-1].trans_id <= upto, self._blocks))

    def _stored(self, blocks: list[Block]) -> None:
        """Note that the first blocks are stored."""
        for _ in blocks:
            self._blocks.popleft()
        if blocks:
            ends = [(block.key.number, block.key.partition, block.end) for block in blocks]
            self._owner.tell(BlocksStored(ends))

    def _drop_blocks(self, message: DropBlocks) -> None:
        for number in self._store.topics_with_blocks() if message.below else ():
            if number < message.below and number not in message.kept:
                self._dropping[number] = None
        for number, kept in message.kept.items():
            before = self._dropping.get(number, {})
            self._dropping[number] = None if kept is None or before is None else {**before, **kept}
        self._blocks = deque(block for block in self._blocks if self._dropping.get(block.key.number, {}) is not None)
        self._drop_some()

    def _drop_some(self) -> None:
        """Let go of some blocks, and of others in a turn to come: what is stored and read meanwhile waits for none."""
        for number, kept in self._dropping.items():
            try:
                is_done = self._store.drop_blocks(number, kept, DROP_ROWS)
            except DiskFullError:
                return  # again with the next checkpoint
            if is_done:
                del self._dropping[number]
                self._say_missing()
            break
        if self._dropping:
            self.actor_ref.tell(_DropOn())

    def _pin(self) -> None:
        """Trim nothing for a while; but a follower that never comes to an end does not keep the log for ever."""
        now = self.runtime.monotonic()
        if now >= self._pinned_until:
            self._pinned_since = now
        if now < self._pinned_since + PIN_MAX_S:
            self._pinned_until = now + PIN_S

    def _stage(self, message: StagePart) -> None:
        part = message.part
        try:
            self._store.stage(part, message.source, is_first=message.is_first)
            if part.is_last:
                self._store.install(part)
                self._forget_asked()
                self._blocks.clear()
                self._say_missing()
        except DiskFullError as error:
            self._replicator.tell(PartStaged(part, message.source, str(error)))
        else:
            self._replicator.tell(PartStaged(part, message.source))

    def _load(self, message: LoadState) -> None:
        self._forget_asked()
        self._blocks.clear()  # the new state makes them again, maybe others
        state = self._new_state()
        load_state(self._store.tables, self._store, state, self.runtime.rest)
        self._store.tables.give_back()  # all of LMDB was read: half as much again as the state takes
        self._replicator.tell(StateLoaded(state))

    def _plan_trim(self) -> None:
        """Ask about the head's messages if the log is too long. Not while a snapshot is being read: it would tear."""
        if self._asked is None and self.runtime.monotonic() >= self._pinned_until:
            self._ask(is_going_on=False)

    def _until(self, *, is_going_on: bool) -> int | None:
        return self._retention.until(self._store.bounds, self._store.log_bytes, is_going_on=is_going_on)

    def _ask(self, *, is_going_on: bool) -> None:
        until = self._until(is_going_on=is_going_on)
        if until is not None:
            self._asked = DescribeHead(self._store.bounds.trimmed, until)
            self._owner.tell(self._asked)

    def _trim(self) -> None:
        """Trim what was described, once the log holds all that the description rests on."""
        described = self._described
        if described is None or described.as_of > self._store.bounds.checkpointed:
            return
        trim = described.trim
        assert trim is not None
        if self.runtime.monotonic() < self._pinned_until:
            return  # a snapshot is being read; when that is over, the next checkpoint comes here again
        self._forget_asked()
        if (self._until(is_going_on=True) or 0) < trim.until:
            return  # a reader has said since that it wants what is in there
        blocks = self._blocks_of(self._store.bounds.checkpointed)  # those of the head's messages are among them
        try:
            self._store.trim(trim, [block.row() for block in blocks])
        except DiskFullError:
            return  # asked again with the next checkpoint
        self._stored(blocks)
        if self.runtime.watcher is not None:
            self.runtime.watcher("trimmed", described)
        self._report()
        for reader, upto in self._retention.trimmed(trim.until):
            log.warning(
                "the log's reader %r is too far behind: the records behind %d are trimmed, and it has not read them "
                "(see log_retention_records, log_retention_bytes; qctl log readers --forget)",
                reader,
                upto,
            )
        self._ask(is_going_on=True)

    def _report(self) -> None:
        trimmed, checkpointed = self._store.bounds
        self._replicator.tell(Checkpointed(checkpointed, trimmed))
