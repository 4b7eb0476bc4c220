"""The change log and the backlog in LMDB: bulk storing, reading, and trimming of the log's head.

Tables: `log` maps an entry's last trans_id (8 bytes, big-endian) to the entry; `backlog` maps a msg_id (likewise) to
the message as msgpack; `queues` maps a name to [settings, max_id]; `meta` holds the format version, the shard and
`trimmed`, the trans_id of the last record that the log does not hold any more.

Trimming drops the oldest entries, and in the same transaction puts the messages among them that are still live into
`backlog` as they are now, and removes the rows of those that are gone. What "now" is, only the owner of the state
knows, so it takes two steps: `plan_trim` says which messages and queues are meant, and `trim` takes their rows.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from storage import entry as entry_codec
from storage.entry import Entry
from storage.errors import DamagedError, MapGrownError, UnknownFormatError
from storage.queue_state import QueueState
from storage.records import Configure, Message, messages_of
from storage.tables import BACKLOG, LOG, META, QUEUES, ReadTransaction, Tables, WriteTransaction

FORMAT_VERSION: Final = 1
_FORMAT_KEY: Final = b"format"
_SHARD_KEY: Final = b"shard"
_TRIMMED_KEY: Final = b"trimmed"

encode_row = msgspec.msgpack.Encoder().encode
decode_message_row = msgspec.msgpack.Decoder(Message).decode
decode_queue_row = msgspec.msgpack.Decoder(tuple[Configure, int]).decode


class StoredEntry(NamedTuple):
    """An encoded entry and the trans_id of its last record."""

    last_trans_id: int
    data: bytes


class Bounds(NamedTuple):
    """The log in LMDB holds the records after `trimmed` up to `stored`."""

    trimmed: int
    stored: int


class TrimPlan(NamedTuple):
    """The records up to `until` may go: these messages and queues must be looked up first.

    `maybe_stored` are those of `msg_ids` that may have a row in the backlog already.
    """

    until: int
    keys: list[bytes]
    msg_ids: list[int]
    maybe_stored: set[int]
    queues: list[str]


class TrimRows(NamedTuple):
    """What a plan's messages and queues are now: rows of the live messages, and a row or None for each queue."""

    messages: list[tuple[int, bytes]]
    queues: list[tuple[str, bytes | None]]


def number_key(number: int) -> bytes:
    """A trans_id or msg_id as the key under which LMDB sorts it."""
    return number.to_bytes(8, "big")


def queue_row(queue: QueueState) -> bytes:
    """A queue as `queues` keeps it."""
    return encode_row((queue.settings(), queue.max_id))


def rows_now(plan: TrimPlan, messages: dict[int, Message], queues: dict[str, QueueState]) -> TrimRows:
    """The rows of a plan's messages and queues as they are in memory."""
    return TrimRows(
        [(msg_id, encode_row(message)) for msg_id in plan.msg_ids if (message := messages.get(msg_id)) is not None],
        [(name, queue_row(queues[name]) if name in queues else None) for name in plan.queues],
    )


class LogStore:
    """The log of one shard in its tables. Used by one thread; every change is on disk when the method returns."""

    def __init__(self, tables: Tables, shard: int) -> None:
        self._tables = tables
        with tables.read() as transaction:
            self._check_format(transaction, shard)
            self.bounds = _bounds(transaction)
        if self.bounds == (0, 0):
            with tables.write() as transaction:
                transaction.put(META, [(_FORMAT_KEY, number_key(FORMAT_VERSION)), (_SHARD_KEY, number_key(shard))])

    @staticmethod
    def _check_format(transaction: ReadTransaction, shard: int) -> None:
        found = transaction.get(META, _FORMAT_KEY)
        if found is not None and found != number_key(FORMAT_VERSION):
            raise UnknownFormatError(
                f"the data has format {int.from_bytes(found, 'big')}, this version reads {FORMAT_VERSION}"
            )
        owner = transaction.get(META, _SHARD_KEY)
        if owner is not None and owner != number_key(shard):
            raise UnknownFormatError(f"the data is of shard {int.from_bytes(owner, 'big')}, not of shard {shard}")

    def store(self, entries: Sequence[StoredEntry]) -> None:
        """Append entries, in order, all in one commit. Raises `DiskFullError`, and then none is stored."""
        rows = [(number_key(last), data) for last, data in entries]
        self._write(lambda transaction: transaction.append(LOG, rows))
        self.bounds = Bounds(self.bounds.trimmed, entries[-1].last_trans_id)

    def read(self, after: int, records_max: int, bytes_max: int) -> list[bytes]:
        """The entries that hold the records behind `after`, until one of the limits is passed; at least one if any."""
        found: list[bytes] = []
        size = 0
        with self._tables.read() as transaction:
            for key, data in transaction.range(LOG, number_key(after + 1)):
                found.append(data)
                size += len(data)
                if int.from_bytes(key, "big") - after >= records_max or size >= bytes_max:
                    break
        return found

    def plan_trim(self, until: int, records_max: int) -> TrimPlan | None:
        """What trimming whole entries up to record `until`, at most `records_max` records or one entry, is about."""
        trimmed = self.bounds.trimmed
        keys: list[bytes] = []
        msg_ids: dict[int, None] = {}
        maybe_stored: set[int] = set()
        queues: dict[str, None] = {}
        last = trimmed
        with self._tables.read() as transaction:
            for key, data in transaction.range(LOG):
                end = int.from_bytes(key, "big")
                if end > until or (keys and end - trimmed > records_max):
                    break
                for record in entry_codec.decode(data, f"log entry {end}").records:
                    queues[record.queue] = None
                    ids, previous = messages_of(record)
                    msg_ids.update(dict.fromkeys(ids))
                    maybe_stored.update(i for i, p in zip(ids, previous, strict=True) if 0 < p <= trimmed)
                keys.append(key)
                last = end
        return TrimPlan(last, keys, list(msg_ids), maybe_stored, list(queues)) if keys else None

    def trim(self, plan: TrimPlan, rows: TrimRows) -> None:
        """Drop the plan's records from the log; `rows` are its messages and queues as of some later moment."""
        live = {msg_id for msg_id, _ in rows.messages}

        def write(transaction: WriteTransaction) -> None:
            transaction.put(BACKLOG, [(number_key(msg_id), row) for msg_id, row in sorted(rows.messages)])
            transaction.delete(BACKLOG, [number_key(msg_id) for msg_id in sorted(plan.maybe_stored - live)])
            transaction.put(QUEUES, [(name.encode(), row) for name, row in rows.queues if row is not None])
            transaction.delete(QUEUES, [name.encode() for name, row in rows.queues if row is None])
            transaction.delete(LOG, plan.keys)
            transaction.put(META, [(_TRIMMED_KEY, number_key(plan.until))])

        self._write(write)
        self.bounds = Bounds(plan.until, max(plan.until, self.bounds.stored))

    def cut(self, last_trans_id: int) -> None:
        """Remove the log's last entry, which ends with `last_trans_id` and is damaged."""
        with self._tables.write() as transaction:
            transaction.delete(LOG, [number_key(last_trans_id)])
            self.bounds = _bounds(transaction)

    def replace(self, transaction_rows: TrimRows, trimmed: int) -> None:
        """Make these rows the whole content, with an empty log behind record `trimmed`: what a repair ends with."""

        def write(transaction: WriteTransaction) -> None:
            for table in (LOG, BACKLOG, QUEUES):
                transaction.delete(table, [key for key, _ in transaction.range(table)])
            transaction.put(BACKLOG, [(number_key(msg_id), row) for msg_id, row in transaction_rows.messages])
            transaction.put(QUEUES, [(name.encode(), row) for name, row in transaction_rows.queues if row is not None])
            transaction.put(META, [(_TRIMMED_KEY, number_key(trimmed))])

        self._write(write)
        self.bounds = Bounds(trimmed, trimmed)

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


def _bounds(transaction: ReadTransaction | WriteTransaction) -> Bounds:
    trimmed = int.from_bytes(transaction.get(META, _TRIMMED_KEY) or b"", "big")
    last = transaction.last(LOG)
    return Bounds(trimmed, int.from_bytes(last[0], "big") if last else trimmed)


def decode_in_chain(data: bytes, where: str, after: int) -> Entry:
    """The entry in `data`, which must begin right behind record `after`. Raises as `entry.decode` does."""
    entry = entry_codec.decode(data, where)
    if entry.first_trans_id != after + 1:
        raise DamagedError(where, f"its records begin at {entry.first_trans_id}, but those before it end at {after}")
    return entry
