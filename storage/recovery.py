"""From what is on disk to a shard's state: backlog, then log, then journal, through the one `apply`.

What may be at an end, and only there, is a torn write: it is cut off and told. Anything damaged before the end stops
the recovery with `DamagedError`; `storage.repair` inspects and mends that.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from storage.block_rows import blocks_end
from storage.disk import Folder
from storage.entry import Entry, StoredEntry
from storage.entry_codec import is_whole, stored_entry
from storage.errors import DamagedError
from storage.journal import read_journal
from storage.log_store import (
    LogStore,
    check_end,
    decode_in_chain,
    decode_message_row,
    decode_queue_row,
    gaps_in,
    open_section_rows,
    trimmed_vote_id,
)
from storage.records import Lead, Members, Produce
from storage.row_checksums import opened
from storage.sections import SECTIONS
from storage.state import ShardState
from storage.tables import ReadTransaction, Tables
from storage.topic_loading import Loader

RowT = TypeVar("RowT")

ROWS_UNTIL_REST: Final = 200
"""So many rows take some 0.3 ms."""

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""What a decoder says of a row that is damaged."""


class Belonging(NamedTuple):
    """What a log says of its cluster: the last members, where it ends, and which node led last (0: none)."""

    members: Members | None
    log_end: int
    led_by: int


class Recovered(NamedTuple):
    """What recovery found. `unstored` are the journal's entries that LMDB does not have yet, `history` is `LogTail`'s.

    `members` are those that LMDB's log says, `later_members` those of the journal, each with its record's trans_id.
    `torn` says in words what was cut off, None if nothing was; `torn_at` is its place in
    the journal.
    """

    unstored: list[StoredEntry]
    backlog_messages: int
    log_records: int
    history: list[tuple[int, int]]
    members: Members | None
    later_members: list[tuple[int, Members]]
    torn: str | None
    torn_at: tuple[str, int] | None
    belonging: Belonging


def recover(
    tables: Tables,
    folder: Folder,
    store: LogStore,
    state: ShardState,
    now: Callable[[], float],
    is_alone: Callable[[Belonging], bool] = lambda belonging: True,
) -> Recovered:
    """Bring an empty `state` to where the disk says it was.

    Of a node that is alone messages that are due by `now` (Unix seconds) are ready: there may be a million of them. It
    is asked as late as can be: a clock that is ahead may have been put right meanwhile. Any other's clock counts for
    nothing before it leads: there those are ready that were by the log's time.

    What LMDB has is committed. What the journal alone has is applied, too, if the node `is_alone` by the last members
    in the log, which ends at the given record: its own disk is a majority then. Otherwise it is for the leader to say.
    Cuts a torn end off the log; the journal's is left, since the next writer starts a new segment.
    """
    with paused_gc():
        return _recover(tables, folder, store, state, now, is_alone)


@contextmanager
def paused_gc() -> Iterator[None]:
    """No garbage collection meanwhile: among a million objects that all stay it would find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Reader:
    """Applies a log's entries, and notes who made them and who the members are."""

    def __init__(self, state: ShardState, history: list[tuple[int, int]]) -> None:
        self.state = state
        self.history = history

    def take(self, entry: Entry) -> None:
        if entry.vote_id != self.history[-1][1]:
            self.history.append((entry.first_trans_id, entry.vote_id))
        self.state.apply_entry(entry)


def load_rows(tables: Tables, store: LogStore, state: ShardState, rest: Callable[[], None] | None = None) -> int:
    """Put what stands before the log into an empty `state`; returns how many messages. Raises `DamagedError`."""
    state.loading = True
    check_end(store)
    with tables.read() as transaction:
        count = 0
        for count, (key, data) in enumerate(rising(transaction, store.queues), 1):  # noqa: B007
            where = f"queue row {key!r}"
            settings, max_id = row(decode_queue_row, opened(key, data, where), where)
            state.restore_queue(settings, max_id)
        _must_be(transaction, store.queues, count)
        count = _load_messages(_resting(rising(transaction, store.backlog), rest), state.restore_message)
        _must_be(transaction, store.backlog, count)
        _load_topics(tables, transaction, store, state)
        sections = open_section_rows(transaction)
    for section, data in zip(SECTIONS, sections, strict=True):
        if data:
            section.into_facts(state.facts, row(section.decode, data, section.name))
    state.trans_id = store.bounds.trimmed
    state.stretches.begin(state.trans_id)
    return len(state.messages)


def _load_topics(tables: Tables, transaction: ReadTransaction, store: LogStore, state: ShardState) -> None:
    """Load the rows of topics, and find up to where each partition's blocks go."""
    loader, count = Loader(state.topics, partial(_blocks_end, tables)), 0
    for count, (key, data) in enumerate(rising(transaction, store.topics), 1):  # noqa: B007
        where = f"row {key!r} of a topic"
        try:
            loader.restore(key, opened(key, data, where))
        except UNREADABLE as error:
            raise DamagedError(where, str(error)) from error
    _must_be(transaction, store.topics, count)
    loader.finish()
    for number, index, begin, until in gaps_in(transaction):
        state.topics.tails.gaps.setdefault((number, index), []).append((begin, until))


def _blocks_end(tables: Tables, number: int, index: int) -> tuple[int, int] | None:
    with tables.read() as transaction:
        return blocks_end(transaction, number, index)


def rising(transaction: ReadTransaction, table: str) -> Iterator[tuple[bytes, bytes]]:
    """Give a table's rows in order. Raises `DamagedError` where they are in none: some are found twice, others not."""
    last = b""
    for key, value in transaction.range(table):
        if key <= last:
            raise DamagedError(f"table {table}", f"the row {bytes(key)!r} stands behind {bytes(last)!r}")
        yield key, value
        last = key


def _must_be(transaction: ReadTransaction, table: str, count: int) -> None:
    """Raise `DamagedError` where a table has more rows than were found, or fewer: some are out of its order."""
    expected = transaction.count(table)
    if expected != count:
        raise DamagedError(f"table {table}", f"{count} rows can be found, and there are {expected}")


def _resting(rows: Iterator[tuple[bytes, bytes]], rest: Callable[[], None] | None) -> Iterator[tuple[bytes, bytes]]:
    return rows if rest is None else _with_rests(rows, rest)


def _with_rests(rows: Iterator[tuple[bytes, bytes]], rest: Callable[[], None]) -> Iterator[tuple[bytes, bytes]]:
    for index, one in enumerate(rows):
        if index % ROWS_UNTIL_REST == 0:
            rest()
        yield one


def _load_messages(rows: Iterator[tuple[bytes, bytes]], restore: Callable[[Produce], None]) -> int:
    """Load a million of them; how many there are. Nothing is said of a row before it is known to be wrong."""
    decode, key, count = decode_message_row, b"", 0
    try:
        for count, (key, data) in enumerate(rows, 1):  # noqa: B007
            restore(decode(opened(key, data, "")))
    except (*UNREADABLE, DamagedError) as error:
        raise DamagedError(f"backlog row {int.from_bytes(key, 'big')}", reason_of(error)) from error
    return count


def load_state(tables: Tables, store: LogStore, state: ShardState, rest: Callable[[], None] = lambda: None) -> None:
    """Bring an empty `state` to where LMDB's log ends: what is committed, as it was then. Raises `DamagedError`.

    `rest` is called now and then: this is done beside a loop, which wants the interpreter meanwhile.
    """
    with paused_gc():
        load_rows(tables, store, state, rest)
        with tables.read() as transaction:
            for end, data in store.entries(transaction):
                state.apply_entry(decode_in_chain(data, f"log entry {end}", state.trans_id, end))
                rest()
        state.finish_loading(state.time, rest)


def _recover(
    tables: Tables,
    folder: Folder,
    store: LogStore,
    state: ShardState,
    now: Callable[[], float],
    is_alone: Callable[[Belonging], bool],
) -> Recovered:
    torn: list[str] = []
    backlog_messages = load_rows(tables, store, state)
    with tables.read() as transaction:
        reader = _Reader(state, [(state.trans_id, trimmed_vote_id(transaction))])
        bad_end: int | None = None
        for end, data in store.entries(transaction):
            try:
                entry = decode_in_chain(data, f"log entry {end}", state.trans_id, end)
            except DamagedError as error:
                if end != store.bounds.checkpointed:
                    raise
                bad_end = end
                torn.append(str(error))
                break
            reader.take(entry)
    content = read_journal(folder)
    unstored = [
        entry
        for entry in _standing(content.payloads)
        if entry.last_trans_id > state.trans_id and entry.vote_id >= reader.history[-1][1]
    ]
    committed_members = members = state.facts.members
    led_by = state.facts.tenures.led_by
    later_members: list[tuple[int, Members]] = []
    after = state.trans_id
    tail: list[Entry] = []
    for index, stored in enumerate(unstored):
        tail.append(decode_in_chain(stored.data, f"journal entry {index}", after))
        after = stored.last_trans_id
        for offset, record in enumerate(tail[-1].records):
            if isinstance(record, Lead):
                led_by = record.node_id
            if isinstance(record, Members):
                members = record
                later_members.append((tail[-1].first_trans_id + offset, record))
    if bad_end is not None:
        store.cut(bad_end)
        if after >= bad_end:
            torn[:] = [f"log entry {bad_end} was damaged, and the journal still had it: nothing is lost"]
    for entry in tail:
        if is_alone(Belonging(members, after, led_by)) or (
            bad_end is not None and entry.last_trans_id <= bad_end
        ):  # LMDB had it: committed
            reader.take(entry)
    if content.torn:
        torn.append(f"{content.torn}: an entry that was being written")
    state.finish_loading(max(state.time, now()) if is_alone(Belonging(members, after, led_by)) else state.time)
    log_records = after - store.bounds.trimmed
    return Recovered(
        unstored,
        backlog_messages,
        log_records,
        reader.history,
        committed_members,
        later_members,
        "; ".join(torn) or None,
        content.torn_at,
        Belonging(members, after, led_by),
    )


def standing_entries(payloads: list[bytes]) -> list[tuple[StoredEntry | None, bytes]]:
    """Choose the journal's entries that are part of the log, without what a cut or a later entry dropped.

    Damaged ones stay, as None.
    """
    standing: list[tuple[StoredEntry | None, bytes]] = []
    for data in payloads:
        if not is_whole(data):
            standing.append((None, data))
            continue
        entry = stored_entry(data)
        while standing and (last := standing[-1][0]) is not None and last.last_trans_id >= entry.first_trans_id:
            standing.pop()
        if not entry.is_cut:
            standing.append((entry, data))
    return standing


def _standing(payloads: list[bytes]) -> list[StoredEntry]:
    entries: list[StoredEntry] = []
    for index, (entry, _) in enumerate(standing_entries(payloads)):
        if entry is None:
            raise DamagedError(f"journal entry {index}", "the checksum does not fit the entry")
        entries.append(entry)
    return entries


def reason_of(error: Exception) -> str:
    """Give what is wrong with a row, as its decoder or its checksum says it."""
    return error.what if isinstance(error, DamagedError) else str(error)


def row(decode: Callable[[bytes], RowT], data: bytes, where: str) -> RowT:
    """Decode a row. Raises `DamagedError`."""
    try:
        return decode(data)
    except UNREADABLE as error:
        raise DamagedError(where, str(error)) from error
