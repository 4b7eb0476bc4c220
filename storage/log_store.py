"""The change log and the backlog in LMDB: bulk storing, reading, and trimming of the log's head.

Tables: `log` has the entries (`storage.log_rows`); `backlog` maps a msg_id (8 bytes, big-endian) to
the message as msgpack; `queues` maps a name to [settings, max_id], `topics` a key (`storage.topic_keys`) to what
`storage.topics` keeps, all with checksums (`storage.row_checksums`); `blocks` has the messages of topics
(`storage.blocks`); `meta` holds the format version, the shard,
`trimmed` (the trans_id of the last record that the log does not hold any more), `trimmed_vote` (the vote_id that made
it), the sections as trimmed records left them (`storage.sections`), which blocks are missing (`gaps`), and `side`. All
but `meta` and `blocks` have a twin, in which a snapshot gathers; `side` says which of the two counts.

Trimming drops the oldest entries unread, and in the same transaction puts the messages among them that are still live
into `backlog` as they are now, and removes the rows of those that are gone. Which those are, and what "now" is, the
owner of the state says (`storage.stretches`, `storage.trimming`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from storage import entry_codec
from storage.block_rows import blocks_before, blocks_end, blocks_from, fitted
from storage.blocks import BlockView, prefix, read_key
from storage.entry import Entry, StoredEntry
from storage.errors import DamagedError, DiskFullError, MapGrownError, UnknownFormatError
from storage.log_rows import entries_behind, entries_in, key_behind, last_in, number_key, row_of, rows_of
from storage.records import STREAMS_LEVEL, Configure, Produce
from storage.row_checksums import number_in, opened, sealed, sealed_number
from storage.sections import KEYS, NO_ROWS, SECTIONS, Rows, Section, level_of
from storage.tables import (
    BACKLOG,
    BLOCKS,
    LOG,
    META,
    OTHER_SIDE,
    QUEUES,
    TOPICS,
    ReadTransaction,
    Tables,
    WriteTransaction,
    are_sound,
)
from storage.tails import without
from storage.topic_keys import TOPIC_ROW
from storage.topic_rows import decode_topic_row
from storage.trimming import FIRST_VOTE_ID, Trim, TrimRows

FORMAT_VERSION: Final = 1
SEVERAL_FORMAT_VERSION: Final = 2
"""From the first row of several on (`storage.log_rows`)."""

SEALED_FORMAT_VERSION: Final = 3
"""From the first row with a checksum on (`storage.row_checksums`)."""

_FORMAT_KEY: Final = b"format"
_SHARD_KEY: Final = b"shard"
_WRITER_KEY: Final = b"writer"
TRIMMED_KEY: Final = b"trimmed"
TRIMMED_VOTE_KEY: Final = b"trimmed_vote"
SIDE_KEY: Final = b"side"
_STAGED_KEY: Final = b"staged"
_GAPS_KEY: Final = b"gaps"

decode_message_row = msgspec.msgpack.Decoder(Produce).decode
decode_queue_row = msgspec.msgpack.Decoder(tuple[Configure, int]).decode


META_KEYS: Final = frozenset(
    {
        *(_FORMAT_KEY, _SHARD_KEY, _WRITER_KEY, TRIMMED_KEY, TRIMMED_VOTE_KEY, SIDE_KEY, _STAGED_KEY, _GAPS_KEY),
        *(section.key for section in SECTIONS),
    }
)

Gap = tuple[int, int, int, int]
"""Messages of a topic that this node lacks: the topic's number, the partition, from which offset on, up to which."""

_decode_gaps: Final = msgspec.msgpack.Decoder(list[Gap]).decode


class Bounds(NamedTuple):
    """The log in LMDB holds the records after `trimmed` up to `checkpointed`."""

    trimmed: int
    checkpointed: int


class Staged(NamedTuple):
    """How far a snapshot has come in: of the log behind record `trimmed`, up to row `cursor`, from node `source`."""

    trimmed: int
    source: int
    cursor: bytes


class SnapshotPart(NamedTuple):
    """Rows of a snapshot: (table's first letter + key, value). `cursor` is the last one's; `is_last`: no more follow.

    `sections` are the rows of those, `vote_id` made record `trimmed`.
    """

    trimmed: int
    vote_id: int
    rows: list[tuple[bytes, bytes]]
    cursor: bytes
    is_last: bool
    sections: Rows = NO_ROWS


class LogStore:
    """The log of one shard in its tables. Used by one thread; every change is on disk when the method returns."""

    def __init__(self, tables: Tables, shard: int) -> None:
        self._tables = tables
        with tables.read() as transaction:
            self.seals = self._check_format(transaction, shard) == SEALED_FORMAT_VERSION
            _check_rows(transaction)
            self._set_side(side_of(transaction))
            self.bounds = self._bounds(transaction)
        if self.bounds == (0, 0):
            with tables.write() as transaction:
                transaction.put(META, [(_FORMAT_KEY, number_key(FORMAT_VERSION)), (_SHARD_KEY, number_key(shard))])

    def sign(self, writer: str) -> str | None:
        """Note who writes from now on, unless there is no space for it; returns who did before, if that was another."""
        with self._tables.read() as transaction:
            before = transaction.get(META, _WRITER_KEY)
        if before == writer.encode():
            return None
        with suppress(DiskFullError):  # a node starts on a full disk, too; it is noted at another start
            self._write(lambda transaction: transaction.put(META, [(_WRITER_KEY, writer.encode())]))
        return None if before is None else bytes(before).decode(errors="replace")

    def _set_side(self, side: bytes) -> None:
        """`side` is what stands behind the names of the tables that count."""
        ours, others = side.decode(), "" if side else OTHER_SIDE
        self.log, self.backlog, self.queues, self.topics = LOG + ours, BACKLOG + ours, QUEUES + ours, TOPICS + ours
        self._other = {b"m": BACKLOG + others, b"q": QUEUES + others, b"l": LOG + others, b"t": TOPICS + others}

    @staticmethod
    def _check_format(transaction: ReadTransaction, shard: int) -> int:
        found = transaction.get(META, _FORMAT_KEY)
        version = FORMAT_VERSION if found is None else last_in(found)
        if not FORMAT_VERSION <= version <= SEALED_FORMAT_VERSION:
            reason = f"the data has format {version}, this version reads up to {SEALED_FORMAT_VERSION}"
            raise UnknownFormatError(reason)
        owner = _number(transaction, _SHARD_KEY, shard)
        if owner != shard:
            raise UnknownFormatError(f"the data is of shard {owner}, not of shard {shard}")
        return version

    def store(
        self, entries: Sequence[StoredEntry], *, seals: bool = False, blocks: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """Append entries, in order, and `blocks`, all in one commit. Raises `DiskFullError`, and then none is stored.

        `seals`: all other rows have checksums from here on.
        """
        rows, several = rows_of(entries), number_key(SEVERAL_FORMAT_VERSION)

        def write(transaction: WriteTransaction) -> None:
            transaction.append(self.log, rows)
            transaction.put(BLOCKS, blocks)
            if seals and not self.seals:
                _note_sealed(transaction)
            elif not self.seals and transaction.get(META, _FORMAT_KEY) != several:
                transaction.put(META, [(_FORMAT_KEY, several)])

        self._write(write)
        self.seals = self.seals or seals
        self.bounds = Bounds(self.bounds.trimmed, entries[-1].last_trans_id)

    def entries(
        self,
        transaction: ReadTransaction,
        after: int = 0,
        unreadable: Callable[[int, DamagedError], None] | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Give the entries that hold the records behind `after`, in order, each with its last trans_id.

        The first row may hold some that are trimmed: those are not there any more. `unreadable`: see `entries_behind`.
        """
        after = max(after, self.bounds.trimmed)
        return entries_behind(transaction.range(self.log, number_key(after + 1)), after, unreadable)

    def read(self, after: int, records_max: int, bytes_max: int) -> list[bytes]:
        """Read the entries that hold the records behind `after`, until one of the limits is passed; at least one if
        any."""
        found: list[bytes] = []
        size = 0
        with self._tables.read() as transaction:
            for end, data in self.entries(transaction, after):
                found.append(data)
                size += len(data)
                if end - after >= records_max or size >= bytes_max:
                    break
        return found

    def read_raw(self, after: int, records_max: int, bytes_max: int) -> tuple[list[bytes], int]:
        """As `read`, but no limit is passed, unless by the first; with the number of the last record."""
        found: list[bytes] = []
        size, last = 0, after
        with self._tables.read() as transaction:
            for end, data in self.entries(transaction, after):
                size += len(data)
                if found and (size > bytes_max or end - after > records_max):
                    break
                found.append(data)
                last = end
        return found, last

    @property
    def log_bytes(self) -> int:
        """What the log takes in LMDB's file."""
        with self._tables.read() as transaction:
            return transaction.bytes_of(self.log)

    def trim(self, trim: Trim, blocks: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Drop the log's head, whole entries; `trim.rows` are what it is about as of some later moment."""
        rows = trim.rows

        def write(transaction: WriteTransaction) -> None:
            messages = [(number_key(msg_id), row) for msg_id, row in sorted(rows.messages)]
            transaction.put(self.backlog, self._as_written(messages))
            transaction.delete(self.backlog, [number_key(msg_id) for msg_id in sorted(rows.gone)])
            queues = [(name.encode(), row) for name, row in rows.queues if row is not None]
            transaction.put(self.queues, self._as_written(queues))
            transaction.delete(self.queues, [name.encode() for name, row in rows.queues if row is None])
            topics = [(key, row) for key, row in rows.topics if row is not None]
            transaction.put(self.topics, self._as_written(topics))
            transaction.delete(self.topics, [key for key, row in rows.topics if row is None])
            transaction.put(BLOCKS, blocks)
            transaction.delete_up_to(self.log, key_behind(trim.until))
            self._note_trimmed(transaction, trim.until, trim.vote_id, rows.sections)

        self._write(write)
        self.bounds = Bounds(trim.until, max(trim.until, self.bounds.checkpointed))

    def cut(self, last_trans_id: int) -> None:
        """Remove the log's last entry, which ends with `last_trans_id` and is damaged."""
        with self._tables.write() as transaction:
            row = transaction.last(self.log)
            assert row is not None
            others = [one for one in entries_in(*row, self.bounds.trimmed) if one[0] != last_trans_id]
            transaction.delete(self.log, [row[0]])
            transaction.append(self.log, [row_of(others)] if others else [])
            self.bounds = self._bounds(transaction)

    def replace(self, transaction_rows: TrimRows, trimmed: int, vote_id: int) -> None:
        """Make these rows the whole content, with an empty log behind record `trimmed`, which `vote_id` made.

        That is what a repair ends with.
        """

        def write(transaction: WriteTransaction) -> None:
            for table in (self.log, self.backlog, self.queues, self.topics):
                transaction.clear(table)
            topics = [(key, row) for key, row in transaction_rows.topics if row is not None]
            transaction.put(self.topics, self._as_written(topics))
            messages = [(number_key(msg_id), row) for msg_id, row in transaction_rows.messages]
            transaction.put(self.backlog, self._as_written(messages))
            rows = [(name.encode(), row) for name, row in transaction_rows.queues if row is not None]
            transaction.put(self.queues, self._as_written(rows))
            self._note_trimmed(transaction, trimmed, vote_id, transaction_rows.sections)

        self._write(write)
        self.bounds = Bounds(trimmed, trimmed)

    # -- snapshots ---------------------------------------------------------------------------------------------

    def read_part(self, cursor: bytes, bytes_max: int) -> SnapshotPart:
        """Read the rows behind `cursor` (empty: from the first) of what stands before the log.

        As long as nothing is trimmed, the parts fit each other, whenever they are read.
        """
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        is_last = True
        with self._tables.read() as transaction:
            for letter, table in ((b"m", self.backlog), (b"q", self.queues), (b"t", self.topics)):
                if cursor[:1] > letter or not is_last:
                    continue
                after = cursor[1:] if cursor[:1] == letter else b""
                for key, value in transaction.range(table, after):
                    if key == after:
                        continue
                    if size >= bytes_max:
                        is_last = False
                        break
                    rows.append((letter + key, opened(key, value, f"{table} row {key!r}")))  # as others get it
                    size += len(value) + 32
            vote_id = _number(transaction, TRIMMED_VOTE_KEY, FIRST_VOTE_ID)
            sections = open_section_rows(transaction)
        last = rows[-1][0] if rows else cursor
        return SnapshotPart(self.bounds.trimmed, vote_id, rows, last, is_last, sections)

    @property
    def tables(self) -> Tables:
        """Its tables."""
        return self._tables

    @property
    def staged(self) -> Staged | None:
        """The snapshot that is coming in, if one is."""
        with self._tables.read() as transaction:
            data = transaction.get(META, _STAGED_KEY)
        return None if data is None else Staged(*msgspec.msgpack.decode(data))

    def stage(self, part: SnapshotPart, source: int, *, is_first: bool) -> None:
        """Keep a part of a snapshot beside what is there. `is_first`: drop what was kept of another."""
        level = level_of(part.sections)

        def write(transaction: WriteTransaction) -> None:
            if is_first:
                for table in self._other.values():
                    transaction.clear(table)
            if level >= STREAMS_LEVEL and not self.seals:
                _note_sealed(transaction)
                self.seals = True
            for letter, table in self._other.items():
                rows = [(key[1:], value) for key, value in part.rows if key[:1] == letter]
                transaction.put(table, self._as_written(rows))
            staged = msgspec.msgpack.encode((part.trimmed, source, part.cursor))
            transaction.put(META, [(_STAGED_KEY, staged)])

        self._write(write)

    def install(self, part: SnapshotPart) -> None:
        """Put the snapshot, whose last part is staged, in the place of all that was there."""

        def write(transaction: WriteTransaction) -> None:
            side = side_of(transaction)
            for table in (self.log, self.backlog, self.queues, self.topics):
                transaction.clear(table)
            transaction.delete(META, [_STAGED_KEY, *KEYS])
            gaps = gaps_in(transaction) + _new_gaps(transaction, self._other[b"t"])
            transaction.put(META, self._as_written([(_GAPS_KEY, msgspec.msgpack.encode(gaps))]))
            self._note_trimmed(transaction, part.trimmed, part.vote_id, part.sections)
            transaction.put(META, self._as_written([(SIDE_KEY, b"" if side else OTHER_SIDE.encode())]))

        self._write(write)
        with self._tables.read() as transaction:
            self._set_side(side_of(transaction))
        self.bounds = Bounds(part.trimmed, part.trimmed)

    # -- messages of topics ------------------------------------------------------------------------------------

    @property
    def gaps(self) -> list[Gap]:
        """Which messages of topics are missing."""
        with self._tables.read() as transaction:
            return gaps_in(transaction)

    def store_blocks(self, blocks: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep these, which were not here."""
        self._write(lambda transaction: transaction.put(BLOCKS, blocks))

    def fill_gap(self, gap: Gap, blocks: Sequence[tuple[bytes, bytes]], upto: int) -> None:
        """Keep blocks that were missing: of this gap they hold all messages before offset `upto`."""
        number, index, begin, _ = gap

        def write(transaction: WriteTransaction) -> None:
            if not any(one[:2] == (number, index) for one in gaps_in(transaction)):
                return  # its topic is gone, or what it lacked is not kept any more
            transaction.put(BLOCKS, fitted(blocks, begin, upto))
            left: list[Gap] = []
            for one in gaps_in(transaction):
                if one[:2] != (number, index):
                    left.append(one)
                else:
                    left += [(number, index, *still) for still in without([(one[2], one[3])], begin, upto)]
            transaction.put(META, self._as_written([(_GAPS_KEY, msgspec.msgpack.encode(left))]))

        self._write(write)

    def read_blocks(self, gap: Gap, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Read the blocks that hold a gap's messages, from its first on, without another gap and whole, until
        `bytes_max` is passed. Empty: none holds the first."""
        number, index, offset, until = gap
        found: list[tuple[bytes, bytes]] = []
        size, expected = 0, offset
        with self._tables.read() as transaction:
            for key, value in blocks_from(transaction, number, index, offset):
                try:
                    view = BlockView(key, value)
                except DamagedError:
                    break
                if view.key.offset > expected or expected >= until or size >= bytes_max:
                    break
                if view.end > expected:
                    found.append((key, value))
                    size += len(value)
                    expected = view.end
        return found

    def drop_blocks(self, number: int, kept: dict[int, int] | None, rows_max: int) -> bool:
        """Drop blocks of a topic that are not kept any more, at most `rows_max`; returns whether that was all.

        `kept`: from which offset on each of these partitions is; None: nothing is.
        """
        with self._tables.read() as transaction:
            keys: list[bytes] = []
            gaps = gaps_in(transaction)
            if kept is None:
                for key in transaction.keys(BLOCKS, prefix(number)):
                    if len(keys) > rows_max or read_key(key).number != number:
                        break
                    keys.append(bytes(key))
            else:
                for index, first in kept.items():
                    keys += blocks_before(transaction, number, index, first, rows_max + 1 - len(keys))
        wanted = [one for gap in gaps for one in _kept_of(gap, number, kept)]
        if keys or wanted != gaps:

            def write(transaction: WriteTransaction) -> None:
                transaction.delete(BLOCKS, keys[:rows_max])
                if wanted != gaps:
                    transaction.put(META, self._as_written([(_GAPS_KEY, msgspec.msgpack.encode(wanted))]))

            self._write(write)
        return len(keys) <= rows_max

    def remove_blocks(self, keys: Sequence[bytes]) -> None:
        """Remove blocks that are damaged."""
        self._write(lambda transaction: transaction.delete(BLOCKS, keys))

    def topics_with_blocks(self) -> list[int]:
        """List the numbers of the topics that have blocks."""
        found: list[int] = []
        with self._tables.read() as transaction:
            key = next(transaction.keys(BLOCKS, b"\0"), None)
            while key is not None:
                found.append(read_key(bytes(key)).number)
                key = next(transaction.keys(BLOCKS, prefix(found[-1] + 1)), None)
        return found

    def _write(self, change: Callable[[WriteTransaction], None]) -> None:
        """Commit a change, again and again while it has to wait for a larger map."""
        while True:
            try:
                with self._tables.write() as transaction:
                    change(transaction)
                return
            except MapGrownError:
                continue

    def reopen(self, tables: Tables) -> None:
        """Go on with the same tables, opened again: what recovery had read of them is out of memory then."""
        self._tables = tables

    def close(self) -> None:
        """Close the tables."""
        self._tables.close()

    def _as_written(self, rows: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
        """Give rows their checksums, where rows have some."""
        return [(key, sealed(key, row)) for key, row in rows] if self.seals else rows

    def _note_trimmed(self, transaction: WriteTransaction, trimmed: int, vote_id: int, sections: Rows) -> None:
        """Note that the log begins behind record `trimmed`, at which the sections were these."""
        number = sealed_number if self.seals else _plain_number
        numbers = [(TRIMMED_KEY, trimmed), (TRIMMED_VOTE_KEY, vote_id)]
        transaction.put(META, [(key, number(key, one)) for key, one in numbers])
        for section, row in zip(SECTIONS, sections, strict=True):
            if row:
                transaction.put(META, self._as_written([(section.key, row)]))
            elif not section.stays:
                transaction.delete(META, [section.key])

    def _bounds(self, transaction: ReadTransaction | WriteTransaction) -> Bounds:
        trimmed = trimmed_in(transaction)
        last = transaction.last(self.log)
        return Bounds(trimmed, last_in(last[0]) if last else trimmed)


def _plain_number(key: bytes, number: int) -> bytes:
    return number_key(number)


def _number(transaction: ReadTransaction, key: bytes, default: int) -> int:
    row = transaction.get(META, key)
    return default if row is None else number_in(key, row, f"the row of {key.decode()}")


def _note_sealed(transaction: WriteTransaction) -> None:
    """Note that rows have checksums from here on, which versions before can't read: they read this row, and say so."""
    transaction.put(META, [(_FORMAT_KEY, number_key(SEALED_FORMAT_VERSION))])


def side_of(transaction: ReadTransaction) -> bytes:
    """Read what stands behind the names of the tables that count."""
    return opened(SIDE_KEY, transaction.get(META, SIDE_KEY) or b"", "the row of the tables' side")


def trimmed_in(transaction: ReadTransaction) -> int:
    """Read the trans_id of the last record that the log does not hold any more; 0 if it holds all."""
    return _number(transaction, TRIMMED_KEY, 0)


def trimmed_vote_id(transaction: ReadTransaction) -> int:
    """Read the vote_id that made the last record that the log does not hold any more; 0 if it holds all."""
    return _number(transaction, TRIMMED_VOTE_KEY, FIRST_VOTE_ID) if trimmed_in(transaction) else 0


def section_rows(transaction: ReadTransaction) -> list[tuple[Section, bytes]]:
    """Read the sections' rows as trimmed records left them, as they are written; empty: there is none."""
    return [(section, transaction.get(META, section.key) or b"") for section in SECTIONS]


def open_section_rows(transaction: ReadTransaction) -> Rows:
    """Read what those rows hold. Raises `DamagedError`."""
    return tuple(opened(section.key, row, section.name) for section, row in section_rows(transaction))


def _kept_of(gap: Gap, number: int, kept: dict[int, int] | None) -> list[Gap]:
    """Give what of a gap is missing where of topic `number` these messages are kept."""
    its, index, begin, until = gap
    if its != number:
        return [gap]
    begin = max(begin, until if kept is None else kept.get(index, 0))
    return [(its, index, begin, until)] if begin < until else []


def _new_gaps(transaction: WriteTransaction, topics: str) -> list[Gap]:
    """Find which blocks are missing where a snapshot has those rows of topics."""
    found: list[Gap] = []
    for key, row in transaction.range(topics, TOPIC_ROW):
        if key[:1] != TOPIC_ROW:
            break
        its = decode_topic_row(opened(key, row, "a topic's row"))
        for index, partition in enumerate(its.partitions):
            end = blocks_end(transaction, its.settings.number, index, but_damaged=True)
            begin = max(partition.first, 0 if end is None else end[0])
            if begin < partition.base:
                found.append((its.settings.number, index, begin, partition.base))
    return found


def _check_rows(transaction: ReadTransaction) -> None:
    """Raise `DamagedError` where a row of `meta` is not found by its key, or has one that no version has given."""
    keys = [bytes(key) for key, _ in transaction.range(META)]
    if not are_sound(keys, lambda key: transaction.get(META, key), transaction.count(META), META_KEYS):
        raise DamagedError(f"table {META}", "a row is missing, or its key is damaged")


def check_end(store: LogStore) -> None:
    """Raise `DamagedError` where the log's last row has a key of records that were trimmed: no reader finds it."""
    with store.tables.read() as transaction:
        last = transaction.last(store.log)
    if last is not None and last_in(last[0]) <= store.bounds.trimmed:
        raise DamagedError("the log's last row", f"its key is {last_in(last[0])}, of what was trimmed")


def gaps_in(transaction: ReadTransaction) -> list[Gap]:
    """Read which messages of topics this node lacks."""
    return _decode_gaps(opened(_GAPS_KEY, transaction.get(META, _GAPS_KEY) or b"\x90", "the row of missing blocks"))


def decode_in_chain(data: bytes, where: str, after: int, end: int | None = None) -> Entry:
    """Decode the entry in `data`, which must begin right behind record `after`, and end with record `end` if that is
    known. Raises as `entry.decode` does."""
    entry = entry_codec.decode(data, where)
    if entry.first_trans_id != after + 1:
        raise DamagedError(where, f"its records begin at {entry.first_trans_id}, but those before it end at {after}")
    if end is not None and entry.last_trans_id != end:
        raise DamagedError(where, f"its records end with {entry.last_trans_id}")
    return entry
