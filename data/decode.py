"""Entries as they are stored to Arrow record batches. No Spark in here, and nothing that waits.

A row is made as a tuple, and the columns by turning the rows around at once.
Instants are made from seconds by Arrow, a column at a time.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa

from data.schema import NAMES, arrow_schema
from storage import entry_codec
from storage.kinds import BY_TYPE, KINDS, Columns
from storage.message_ids import message_id
from storage.records import Append, Encoding, Produce, Record
from storage.recovery import paused_gc

ROWS_PER_BATCH: Final = 10_000
BYTES_PER_BATCH: Final = 16 << 20
LENGTH_BYTES: Final = 4

ENCODINGS: Final = {Encoding.JSON: "json", Encoding.PLAIN: "bytes", Encoding.TEXT: "json"}
INSTANTS: Final = ("time", "due", "expires")
LAST_S: Final = 253_402_214_400.0
"""The last instant that a row tells, 9999-12-31 00:00 UTC: what lies behind it is told as this.

Python's datetime ends with the year 9999, and Spark gives it instants in the machine's zone, at most 14 hours ahead.
"""

APPEND: Final = "append"
NO_TOPIC: Final = (None, None)
"""A row's `partition` and `offset`, where it is about no topic."""

Row = tuple[Any, ...]
NO_PAYLOAD: Final = (None, None)
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


Maker = Callable[[int, float, Any, tuple[str | None, bytes | None]], list[Row]]
"""Makes the rows of record `trans_id`, made at that time, with an encoding and a payload."""


def _maker(name: str, columns: Columns) -> Maker:
    """Make what makes the rows of a kind's records, as the table of kinds says."""
    behind = NAMES[NAMES.index("previous") + 1 :]
    each = [(behind.index(column), attrgetter(field)) for column, field in columns.each]
    every = [(behind.index(column), attrgetter(field)) for column, field in columns.all]
    payload_at, ended_at, ended = behind.index("encoding"), behind.index("ended"), columns.ended
    assert behind[payload_at + 1] == "data"
    blank: list[Any] = [None] * len(behind)
    blank[ended_at] = ended

    def make(trans_id: int, time: float, record: Any, payload: tuple[str | None, bytes | None]) -> list[Row]:
        rest = blank
        if each or every:
            rest = [*blank]
            for at, field in every:
                rest[at] = field(record)
        if payload is not NO_PAYLOAD:
            rest[payload_at : payload_at + 2] = payload
            return [(trans_id, time, name, record.queue, record.msg_id, None, *rest)]
        queue, ids = record.queue, record.msg_ids
        if len(ids) == 1:  # nearly always
            for at, field in each:
                rest[at] = field(record)[0]
            return [(trans_id, time, name, queue, ids[0], record.previous[0], *rest)]
        rows = []
        values = [(at, field(record)) for at, field in each]
        for index, (msg_id, before) in enumerate(zip(ids, record.previous, strict=True)):
            for at, those in values:
                rest[at] = those[index]
            rows.append((trans_id, time, name, queue, msg_id, before, *rest))
        return rows

    return make


_MAKERS: Final[dict[type, Maker]] = {
    kind.record: _maker(kind.name, kind.columns) for kind in KINDS if kind.columns is not None
}


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
        rows, is_wanted, has_data = self.rows, self._is_wanted, self._selection.has_data
        for record in records:
            if is_wanted is None or is_wanted(record):
                payload: Any = NO_PAYLOAD
                if isinstance(record, Produce):
                    payload = ENCODINGS[record.encoding], record.data if has_data else None
                    self.data_bytes += len(record.data) if has_data else 0
                elif isinstance(record, Append):
                    self.data_bytes += len(record.data) if has_data else 0
                    rows.append(_appended(trans_id, time, self._shard, record, has_data=has_data))
                    trans_id += 1
                    continue
                make = _MAKERS.get(type(record))
                if make is not None:
                    rows += make(trans_id, time, record, payload)
                else:  # about no message: settings, members, who leads
                    name, about = BY_TYPE[type(record)].name, _encode_json(record) if has_data else None
                    rows.append(
                        (trans_id, time, name, record.queue or None, *[None] * 9, "json", about, None, None, *NO_TOPIC)
                    )
            trans_id += 1
        self.last = trans_id - 1

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


def _appended(trans_id: int, time: float, shard: int, record: Append, *, has_data: bool) -> Row:
    """Make the row of a message of a topic."""
    encoding, data = ENCODINGS[record.encoding], record.data if has_data else None
    if data is not None and record.encoding == Encoding.TEXT:
        data = _encode_json(data.decode())
    told = (trans_id, time, APPEND, record.queue, message_id(trans_id, shard), None, record.key)
    return (*told, *[None] * 6, encoding, data, None, None, record.partition, record.offset)


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

    types = None if kinds is None else {kind.record for kind in KINDS if kind.name in kinds}

    def is_wanted(record: Record) -> bool:
        if types is not None and type(record) not in types:
            return False
        if queues is not None and record.queue not in queues:
            return any(name in queues for name in _targets(record))
        if matches is None or matches(record.queue):
            return True
        return any(matches(name) for name in _targets(record))

    return is_wanted


def _targets(record: Record) -> list[str]:
    """List the queues that a record moves messages to."""
    columns = BY_TYPE[type(record)].columns
    fields = () if columns is None else columns.all
    return [getattr(record, field) for column, field in fields if column == "target"]
