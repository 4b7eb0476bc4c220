"""From what is on disk to a shard's state: backlog, then log, then journal, through the one `apply`.

What may be at an end, and only there, is a torn write: it is cut off and told. Anything damaged before the end stops
the recovery with `DamagedError`; `storage.repair` inspects and mends that.
"""

import gc
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from storage.disk import Folder
from storage.entry import Entry, is_whole, span
from storage.errors import DamagedError
from storage.journal import read_journal
from storage.log_store import LogStore, StoredEntry, decode_in_chain, decode_message_row, decode_queue_row
from storage.state import ShardState
from storage.tables import BACKLOG, LOG, QUEUES, Tables

RowT = TypeVar("RowT")


class Recovered(NamedTuple):
    """What recovery found. `unstored` are the journal's entries that LMDB does not have yet.

    `torn` says in words what was cut off, None if nothing was; `torn_at` is its place in
    the journal. `vote_id` is that of the last entry.
    """

    unstored: list[StoredEntry]
    backlog_messages: int
    log_records: int
    vote_id: int
    torn: str | None
    torn_at: tuple[str, int] | None


def recover(tables: Tables, folder: Folder, store: LogStore, state: ShardState, now: float) -> Recovered:
    """Bring an empty `state` to where the disk says it was; messages due by `now` (Unix seconds) are ready.

    Cuts a torn end off the log; the journal's is left, since the next writer starts a new segment.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # a million objects that all stay: collecting in between finds nothing
    try:
        return _recover(tables, folder, store, state, now)
    finally:
        if was_enabled:
            gc.enable()


def _recover(tables: Tables, folder: Folder, store: LogStore, state: ShardState, now: float) -> Recovered:
    state.loading = True
    torn: list[str] = []
    with tables.read() as transaction:
        for key, data in transaction.range(QUEUES):
            settings, max_id = row(decode_queue_row, data, f"queue row {key!r}")
            state.restore_queue(settings, max_id)
        backlog_messages = 0
        for key, data in transaction.range(BACKLOG):
            message = row(decode_message_row, data, f"backlog row {int.from_bytes(key, 'big')}")
            state.restore_message(message)
            backlog_messages += 1
        state.trans_id = store.bounds.trimmed
        vote_id = 0
        bad_end: int | None = None
        last = transaction.last(LOG)
        for key, data in transaction.range(LOG):
            try:
                entry = decode_in_chain(data, f"log entry {int.from_bytes(key, 'big')}", state.trans_id)
            except DamagedError as error:
                if last is None or key != last[0]:
                    raise
                bad_end = int.from_bytes(key, "big")
                torn.append(str(error))
                break
            vote_id = entry.vote_id
            _apply(state, entry)
    content = read_journal(folder)
    unstored: list[StoredEntry] = []
    for entry, data in entries_behind(content.payloads, state.trans_id):
        vote_id = entry.vote_id
        _apply(state, entry)
        unstored.append(StoredEntry(entry.last_trans_id, data))
    if bad_end is not None:
        store.cut(bad_end)
        if state.trans_id >= bad_end:
            torn[:] = [f"log entry {bad_end} was damaged, and the journal still had it: nothing is lost"]
    if content.torn:
        torn.append(f"{content.torn}: an entry that was being written")
    log_records = state.trans_id - store.bounds.trimmed
    state.finish_loading(now)
    return Recovered(unstored, backlog_messages, log_records, vote_id, "; ".join(torn) or None, content.torn_at)


def entries_behind(payloads: list[bytes], after: int) -> Iterator[tuple[Entry, bytes]]:
    """The journal's entries behind record `after`, checked to follow each other; raises as `entry.decode` does."""
    for index, data in enumerate(payloads):
        where = f"journal entry {index}"
        if not is_whole(data):
            raise DamagedError(where, "the checksum does not fit the entry")
        if span(data)[1] > after:
            entry = decode_in_chain(data, where, after)
            after = entry.last_trans_id
            yield entry, data


def row(decode: Callable[[bytes], RowT], data: bytes, where: str) -> RowT:
    """A decoded row. Raises `DamagedError`."""
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        raise DamagedError(where, str(error)) from error


def _apply(state: ShardState, entry: Entry) -> None:
    trans_id = entry.first_trans_id
    for record in entry.records:
        state.apply(trans_id, record)
        trans_id += 1
    state.time = entry.time
