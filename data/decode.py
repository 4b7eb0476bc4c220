"""Entries as they are stored to Arrow record batches. No Spark in here, and nothing that waits.

A row is made as a tuple, and the columns by turning the rows around at once.
Instants are made from seconds by Arrow, a column at a time.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from data.schema import NAMES, arrow_schema
from storage import entry_codec
from storage.kinds import BY_TYPE
from storage.records import (
    Bury,
    Clear,
    Confirm,
    Deliver,
    Encoding,
    Expire,
    Extend,
    Move,
    Moving,
    Produce,
    Record,
    Release,
    Take,
    Withhold,
)
from storage.recovery import paused_gc

ROWS_PER_BATCH: Final = 10_000
BYTES_PER_BATCH: Final = 16 << 20
LENGTH_BYTES: Final = 4

ENDED: Final[dict[type, str]] = {
    Confirm: "confirmed",
    Take: "taken",
    Expire: "expired",
    Clear: "cleared",
}
MOVED: Final[dict[type, str]] = {Bury: "buried", Move: "moved"}
ENCODINGS: Final = {Encoding.JSON: "json", Encoding.PLAIN: "bytes"}
INSTANTS: Final = ("time", "due", "expires")
LAST_S: Final = 253_402_214_400.0
"""The last instant that a row tells, 9999-12-31 00:00 UTC: what lies behind it is told as this.

Python's datetime ends with the year 9999, and Spark gives it instants in the machine's zone, at most 14 hours ahead.
"""

Row = tuple[Any, ...]
_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Selection:
    """Which rows are wanted: records behind `after` up to `upto`, of `queues` or matching `pattern`; None: of all.

    `kinds`: of these kinds. `columns`: these, in that order. Without `has_data` the payloads are left out.
    """

    after: int = 0
    upto: int = 1 << 62
    queues: frozenset[str] | None = None
    pattern: str | None = None
    kinds: frozenset[str] | None = None
    has_data: bool = True
    columns: tuple[str, ...] = NAMES


def split_entries(part: bytes) -> Iterator[memoryview]:
    """Split a raw part into entries, each of which stands behind its length. Raises ValueError if the part is not
    whole."""
    view = memoryview(part)
    at, size = 0, len(part)
    while at < size:
        end = at + LENGTH_BYTES + int.from_bytes(view[at : at + LENGTH_BYTES], "big")
        if end > size or end <= at + LENGTH_BYTES:
            raise ValueError(f"a part of the log ends within an entry: {size - at} bytes, {end - at} were wanted")
        yield view[at + LENGTH_BYTES : end]
        at = end


def batches(entries: Iterable[bytes | memoryview], shard: int, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Make the entries' records rows, in batches of some `ROWS_PER_BATCH`.

    Raises `DamagedError` for an entry that is not what was written, `UnknownFormatError` for one of a newer version.
    """
    make = _Rows(shard, selection)
    remaining = iter(entries)
    while True:
        with paused_gc():  # a tenth of all time otherwise: so many tuples, and none of them in a circle
            is_more = make.fill(remaining)
            batch = make.batch() if make.rows else None
        if batch is not None:
            yield batch
        if not is_more:
            return


class _Rows:
    """Gathers rows. `last`: the record that was taken last."""

    def __init__(self, shard: int, selection: Selection) -> None:
        self.rows: list[Row] = []
        self.data_bytes = 0
        self.last = selection.after
        self._shard = shard
        self._selection = selection
        self._schema = arrow_schema(selection.columns)
        self._is_wanted = _filter(selection)

    def fill(self, entries: Iterator[bytes | memoryview]) -> bool:
        """Take entries until there are enough for a batch; whether there may be more."""
        after, upto = self._selection.after, self._selection.upto
        for data in entries:
            entry = entry_codec.decode(data, f"an entry of shard {self._shard} behind record {self.last}")
            first, time = entry.first_trans_id, entry.time
            if first > after and first + len(entry.records) - 1 <= upto:
                self.take(first, time, entry.records)
            else:
                begin, end = max(after + 1 - first, 0), max(upto + 1 - first, 0)
                self.take(first + begin, time, entry.records[begin:end])
            if len(self.rows) >= ROWS_PER_BATCH or self.data_bytes >= BYTES_PER_BATCH:
                return True
        return False

    def take(self, trans_id: int, time: float, records: list[Record]) -> None:
        """Decode the records of one entry, the first of which is `trans_id`."""
        add, is_wanted, has_data = self.rows.append, self._is_wanted, self._selection.has_data
        for record in records:
            if is_wanted is not None and not is_wanted(record):
                pass
            elif isinstance(record, Produce):
                if has_data:
                    self.data_bytes += len(record.data)
                add(
                    (trans_id, time, "produce", record.queue, record.msg_id, None, record.key, record.priority,
                     record.due_at, record.expires_at, record.retry_s, None, None, ENCODINGS[record.encoding],
                     record.data if has_data else None, None, None)
                )  # fmt: skip
            elif isinstance(record, Deliver):
                queue, consumer = record.queue, record.consumer
                for msg_id, before, due, count in zip(
                    record.msg_ids, record.previous, record.due_ats, record.deliveries, strict=True
                ):
                    add((trans_id, time, "deliver", queue, msg_id, before, None, None, due, None, None, count, consumer,
                         None, None, None, None))  # fmt: skip
            elif isinstance(record, Confirm | Take | Expire | Clear):
                kind = type(record)
                name, queue, ended = BY_TYPE[kind].name, record.queue, ENDED[kind]
                for msg_id, before in zip(record.msg_ids, record.previous, strict=True):
                    add((trans_id, time, name, queue, msg_id, before, None, None, None, None, None, None, None, None,
                         None, ended, None))  # fmt: skip
            else:
                self._take_rare(trans_id, time, record)
            trans_id += 1
        self.last = trans_id - 1

    def _take_rare(self, trans_id: int, time: float, record: Record) -> None:
        name, queue = BY_TYPE[type(record)].name, record.queue or None
        if isinstance(record, Release | Extend | Withhold):
            for msg_id, before, due in zip(record.msg_ids, record.previous, record.due_ats, strict=True):
                self.rows.append((trans_id, time, name, queue, msg_id, before, None, None, due, *[None] * 8))
        elif isinstance(record, Moving):
            for msg_id, before, due, expires in zip(
                record.msg_ids, record.previous, record.due_ats, record.expires_ats, strict=True
            ):
                self.rows.append(
                    (trans_id, time, name, queue, msg_id, before, None, None, due, expires, *[None] * 5,
                     MOVED[type(record)], record.to)
                )  # fmt: skip
        else:  # about no message: settings, members, who leads
            about = _encode_json(record) if self._selection.has_data else None
            self.rows.append((trans_id, time, name, queue, *[None] * 9, "json", about, None, None))

    def batch(self) -> pa.RecordBatch:
        """Take what has gathered, as one batch."""
        rows, self.rows = self.rows, []
        self.data_bytes = 0
        values = dict(zip(NAMES[1:], zip(*rows, strict=True), strict=True))
        arrays = [
            pa.repeat(pa.scalar(self._shard, field.type), len(rows))
            if field.name == "shard"
            else _instants(values[field.name])
            if field.name in INSTANTS
            else pa.array(values[field.name], field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _instants(seconds: tuple[float | None, ...]) -> pa.Array:
    """Unix seconds as instants, rounded to the microsecond; none lies past `LAST_S`."""
    import pyarrow.compute as pc  # makes its functions then, for which those who only plan would wait

    told = pa.array(seconds, pa.float64())
    bounded = pc.if_else(pc.greater(told, LAST_S), LAST_S, told)  # not a minimum: that takes NaN for the greater
    microseconds = pc.round(pc.multiply(bounded, 1e6))
    return pc.cast(microseconds, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _filter(selection: Selection) -> Callable[[Record], bool] | None:
    """Whether a record is wanted; None: all are."""
    queues, kinds = selection.queues, selection.kinds
    matches = None if selection.pattern is None else re.compile(selection.pattern).fullmatch
    if queues is None and kinds is None and matches is None:
        return None

    def is_wanted(record: Record) -> bool:
        if kinds is not None and BY_TYPE[type(record)].name not in kinds:
            return False
        if queues is not None and record.queue not in queues:
            return isinstance(record, Moving) and record.to in queues
        if matches is None or matches(record.queue):
            return True
        return isinstance(record, Moving) and bool(matches(record.to))

    return is_wanted
