"""The change log, or a topic, as a Spark source, batch and streaming, and the sink beside it: `format("quorate")`.

The driver asks where the log begins and ends and cuts that into partitions; each task reads its own and decodes it to
Arrow batches. Where a stream is, Spark's checkpoint says; the position in the log (`groupId`) holds its head. With the
option `topic` a topic's partitions are what shards are here, and its messages what records are.
"""

import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from data import schema as columns
from data.decode import Selection
from data.logs import Range, TrimmedError
from data.options import EARLIEST, SourceOptions, sink_options, source_options
from data.planning import Offsets, advanced, chosen, cut, resolved, within
from data.sink import QuorateStreamWriter, QuorateWriter
from data.topics import open_log

HEADS_S: Final = 0.5
"""For so long the ends of the logs are taken for what they were: Spark asks several times a batch."""


@dataclass
class LogPart(InputPartition):
    """Records of one shard from `first` up to `end`, which is not among them."""

    shard: int
    first: int
    end: int


def _selection(options: SourceOptions, names: tuple[str, ...]) -> Selection:
    return Selection(
        queues=options.queues, pattern=options.pattern, has_data=options.has_data and "data" in names, columns=names
    )


def _rows(options: SourceOptions, selection: Selection, part: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read a task's rows. What is trimmed between planning and reading is a loss, too."""
    if not isinstance(part, LogPart):
        return  # Spark's way to say that there is nothing to read
    first = part.first
    log = open_log(options)
    try:
        while first < part.end:
            try:
                yield from log.rows(part.shard, first, part.end, selection)
                return
            except TrimmedError as lost:
                if options.fails_on_loss or lost.wanted != first:
                    raise  # in the middle rows have left already: the task is tried again from its beginning
                first = lost.first
    finally:
        log.close()


class LogBatchReader(DataSourceReader):
    """A batch."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._selection = _selection(options, names)
        self._first: int | None = None
        self._end: int | None = None
        self._since: float | None = options.starting_time
        self._until: float | None = options.ending_time

    def partitions(self) -> Sequence[InputPartition]:
        """Each shard's records, cut into some parts."""
        options = self._options
        log = open_log(options)
        try:
            ranges = chosen(log.ranges(), options)
            asked = resolved(log, ranges, options.starting, self._since)
            start = within(asked, ranges, options)
            end = resolved(log, ranges, options.ending, self._until)
        finally:
            log.close()
        heads = {str(shard): held.end for shard, held in ranges.items()}
        start = {shard: max(at, self._first or 0) for shard, at in start.items()}
        end = {shard: min(at, heads[shard], self._end or at) for shard, at in end.items()}
        end = {shard: max(at, start[shard]) for shard, at in end.items()}
        start = {shard: min(at, end.get(shard, at)) for shard, at in start.items()}
        return _parts(options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One part's rows."""
        return _rows(self._options, self._selection, partition)


def _parts(options: SourceOptions, start: Offsets, end: Offsets) -> list[LogPart]:
    cuts = cut(start, end, options.min_partitions, whole=options.topic is not None)
    return [LogPart(*one) for one in cuts]


class PushingReader(LogBatchReader):
    """Leaves out what the query's filters exclude; Spark looks at every row all the same.

    Only for a load that is used once: Spark 4.3 keeps the reader that came out of this for every other use of the load.
    A class of its own: Spark fails a reader with this method while `spark.sql.python.filterPushdown.enabled` is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Take note of what narrows the records to be read."""
        for one in filters:
            self._narrow(one)
        return filters

    def _narrow(self, one: Filter) -> None:
        if isinstance(one, EqualTo) and one.attribute == ("kind",):
            self._selection = replace(self._selection, kinds=frozenset({one.value}))
        elif isinstance(one, In) and one.attribute == ("kind",):
            self._selection = replace(self._selection, kinds=frozenset(one.value))
        elif isinstance(one, EqualTo) and one.attribute == ("queue",) and self._selection.queues is None:
            self._selection = replace(self._selection, queues=frozenset({one.value}))
        elif isinstance(one, GreaterThan | GreaterThanOrEqual) and one.attribute == ("trans_id",):
            self._first = max(self._first or 0, int(one.value) + isinstance(one, GreaterThan))
        elif isinstance(one, LessThan | LessThanOrEqual) and one.attribute == ("trans_id",):
            end = int(one.value) + isinstance(one, LessThanOrEqual)
            self._end = end if self._end is None else min(self._end, end)
        elif isinstance(one, GreaterThan | GreaterThanOrEqual) and one.attribute == ("time",):
            self._narrow_since(one.value)

    def _narrow_since(self, moment: Any) -> None:
        starting = self._options.starting
        if self._options.starting_time is None and starting.others == EARLIEST and not starting.by_shard:
            self._since = max(self._since or 0.0, moment.timestamp() - 1e-6)  # the column is rounded


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark keeps one of these in a process of its own for as long as the query runs."""

    def __init__(self, options: SourceOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._selection = _selection(options, names)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._seen: tuple[float, dict[int, Range]] | None = None

    def _ranges(self) -> dict[int, Range]:
        now = time.monotonic()
        if self._seen is None or now - self._seen[0] > HEADS_S:
            log = open_log(self._options)
            try:
                self._seen = (now, chosen(log.ranges(), self._options))
            finally:
                log.close()
        return self._seen[1]

    def _heads(self) -> Offsets:
        return {str(shard): held.end for shard, held in self._ranges().items()}

    def initialOffset(self) -> Offsets:  # noqa: N802  # Spark's name
        """Where a new query begins; asked twice by Spark, and answered once."""
        if self._initial is None:
            options = self._options
            ranges = self._ranges()
            log = open_log(options)
            try:
                asked = resolved(log, ranges, options.starting, options.starting_time)
            finally:
                log.close()
            self._initial = within(asked, ranges, options)
            self._hold(self._initial)
        return self._initial

    def _hold(self, start: Offsets) -> None:
        """Keep a new reader's log from where it begins, also before its first batch is done."""
        if self._options.group is None:
            return
        log = open_log(self._options)
        try:
            log.hold(self._options.group, {int(shard): at - 1 for shard, at in start.items()})
        finally:
            log.close()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """As `maxOffsetsPerTrigger` says."""
        return ReadMaxRows(self._options.offsets_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Take what is there now, and nothing else in this run."""
        self._seen = None
        self._target = self._heads()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802  # Spark's name
        """How far the next batch goes. A shard that is new begins at its first record."""
        heads = self._heads() if self._target is None else self._target
        new = {str(shard): held.first for shard, held in self._ranges().items() if str(shard) not in start}
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if not isinstance(limit, ReadMaxRows | ReadAllAvailable):
            records_max = self._options.offsets_per_trigger
        return advanced({**new, **start}, heads, records_max)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802  # Spark's name
        """For the query's progress."""
        return self._heads()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Plan a batch's parts. What a batch wants and the log does not hold any more is a loss."""
        ranges = self._ranges()
        firsts = {str(shard): held.first for shard, held in ranges.items()}
        begin = {shard: start.get(shard, firsts.get(shard, 1)) for shard in end}
        known = {shard: held for shard, held in ranges.items() if str(shard) in end}
        for shard, held in known.items():
            if begin[str(shard)] < end[str(shard)] and begin[str(shard)] < held.first:
                if self._options.fails_on_loss:
                    raise TrimmedError(shard, begin[str(shard)], held.first, self._options.part)
                begin[str(shard)] = min(held.first, end[str(shard)])
        return _parts(self._options, begin, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One part's rows."""
        return _rows(self._options, self._selection, partition)

    def commit(self, end: Offsets) -> None:
        """Spark has done with what lies before `end`: the log need not keep it for this reader."""
        if self._options.group is None:
            return
        log = open_log(self._options)
        try:
            log.moved(self._options.group, {int(shard): upto - 1 for shard, upto in end.items()})
        finally:
            log.close()

    def stop(self) -> None:
        """Nothing is open between calls."""


class QuorateDataSource(DataSource):
    """Options: `data.options`. Columns: `data.schema`. What it is made of is named by `pyspark_quorate` for Spark."""

    batch_reader: type[LogBatchReader] = LogBatchReader
    filtering_reader: type[LogBatchReader] = PushingReader
    stream_reader: type[LogStreamReader] = LogStreamReader
    batch_writer: type[QuorateWriter] = QuorateWriter
    stream_writer: type[QuorateStreamWriter] = QuorateStreamWriter

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """Say what `format` takes."""
        return "quorate"

    def schema(self) -> str:
        """All columns."""
        return columns.TOPIC_DDL if source_options(self._given).topic is not None else columns.DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch; of the columns that `schema` names."""
        options = source_options(self._given)
        kind = self.filtering_reader if options.pushes_filters else self.batch_reader
        return kind(options, _names(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """For a stream."""
        options = source_options(self._given)
        return self.stream_reader(options, _names(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> QuorateWriter:
        """Into queues."""
        if overwrite:
            raise ValueError("a queue is not overwritten: write with mode('append')")
        return self.batch_writer(sink_options(self._given), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QuorateStreamWriter:  # noqa: N802  # Spark's name
        """Into queues, from a stream."""
        return self.stream_writer(sink_options(self._given), schema)


def _names(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """Choose the columns that a schema asks for. Raises ValueError for one that is not ours, or of another type."""
    is_topic = options.topic is not None
    ours = {f"{column.name} {column.ddl}" for column in (columns.TOPIC_COLUMNS if is_topic else columns.COLUMNS)}
    for field in schema:
        asked = f"{field.name} {field.dataType.simpleString().upper()}"
        if asked not in ours:
            raise ValueError(f"there is no column {asked}; there are {columns.TOPIC_DDL if is_topic else columns.DDL}")
    return tuple(schema.fieldNames())
