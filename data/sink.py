"""Rows into queues: batches of many messages a request, each row of a task in its order.

**How often a row arrives.** With a `key` column exactly once, as long as the message with that key is still in its
queue when Spark does a task or a batch a second time: the queue refuses the key, and the row counts as written. What
was consumed and confirmed in between is produced again. Without keys at least once.

A row that the queue refuses for what it is fails the job with its reason; with the option `refused` it is written to a
file there instead. What is refused for now (the queue is full, the node overloaded, its disk full) is tried again until
`timeout` has passed.
"""

import itertools
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from data.options import SinkOptions
from quorate import Client, RefusedError, UnknownOutcomeError
from quorate.protocol import Action, ErrorWord

FOR_NOW: Final = frozenset(
    {ErrorWord.QUEUE_FULL, ErrorWord.LIMIT, ErrorWord.OVERLOADED, ErrorWord.DISK_FULL, ErrorWord.NO_LEADER}
)
PAUSE_S: Final = 0.05
OPTIONAL: Final = ("key", "delay", "ttl", "retry", "priority")
TAKEN: Final = frozenset({"data", "queue", "encoding", *OPTIONAL})

OF_THE_TASK: Final = frozenset({ErrorWord.NOT_ALLOWED, ErrorWord.NOT_AUTHENTICATED})
"""What is wrong with who writes, and with no row: no other row will fare better."""

Item = dict[str, Any]


@dataclass
class Written(WriterCommitMessage):
    """What one task did: rows produced, rows that were there already, rows refused and collected."""

    produced: int
    known: int
    refused: int


class RowRefusedError(RuntimeError):
    """A row can't become a message."""


def check_columns(schema: StructType) -> None:
    """Raise ValueError for columns that no message can be made of."""
    fields = {field.name: field.dataType for field in schema}
    if not isinstance(fields.get("data"), StringType | BinaryType):
        raise ValueError("the column data is wanted, a string or binary")
    unknown = sorted(set(fields) - TAKEN)
    if unknown:
        raise ValueError(f"the column {unknown[0]} is none of {', '.join(sorted(TAKEN))}: select what is to be written")


class QuorateWriter(DataSourceArrowWriter):
    """Of a batch job."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task's rows."""
        return _write(self._options, iterator)


class QuorateStreamWriter(DataSourceStreamArrowWriter):
    """Of a stream. A batch that is done again is told by its keys, see above."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task's rows of a batch."""
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """All tasks of the batch are done: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Leave what was produced; the batch that is done again knows it by its keys."""


def _write(options: SinkOptions, iterator: Iterator[pa.RecordBatch]) -> Written:
    with Client(nodes=list(options.servers), timeout=options.timeout_s, credentials=options.credentials) as client:
        task = SinkTask(options, client)
        try:
            for batch in iterator:
                task.take(batch)
        finally:
            task.close()
        return Written(task.produced, task.known, task.refused)


class SinkTask:
    """Produces one task's rows."""

    def __init__(self, options: SinkOptions, client: Client) -> None:
        self._options = options
        self._client = client
        self._begun = time.monotonic()
        self._batch_size = min(options.batch_size, options.rate or options.batch_size)
        self._collected: Any = None
        self.produced = self.known = self.refused = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Produce the rows: those of one queue that follow each other together, `batch_size` a request at most."""
        for queue, rows in itertools.groupby(_items(batch, self._options.queue), key=lambda row: row[0]):
            items = [item for _, item in rows]
            for first in range(0, len(items), self._batch_size):
                until = time.monotonic() + self._options.timeout_s
                self._produce(queue, items[first : first + self._batch_size], until)
                self._hold_back()

    def _hold_back(self) -> None:
        """No more than `rate` messages a second."""
        if self._options.rate:
            ahead_s = self.produced / self._options.rate - (time.monotonic() - self._begun)
            if ahead_s > 0:
                time.sleep(ahead_s)

    def _produce(self, queue: str | None, items: list[Item], until: float) -> None:
        """All in one request; where a row is refused, in halves, down to that row. Tries again before `until`."""
        while True:
            try:
                self._client.request(Action.PRODUCE, queue=queue, messages=items)
                self.produced += len(items)
                return
            except UnknownOutcomeError:  # without a key it may be there twice then: at least once
                if time.monotonic() > until:
                    raise
            except RefusedError as refused:
                if refused.error in OF_THE_TASK:
                    raise
                if refused.error in FOR_NOW:
                    if time.monotonic() > until:
                        raise
                    time.sleep(PAUSE_S)
                elif len(items) > 1:
                    middle = len(items) // 2
                    self._produce(queue, items[:middle], until)
                    self._produce(queue, items[middle:], until)
                    return
                elif refused.error == ErrorWord.DUPLICATE_KEY:
                    self.known += 1
                    return
                else:
                    self._refuse(queue, items[0], f"{refused.error}: {refused.reason}")
                    return

    def _refuse(self, queue: str | None, item: Item, why: str) -> None:
        """Fail the job, or put the row aside with its reason."""
        if self._options.collects is None:
            raise RowRefusedError(f"a row for queue {queue!r} is refused: {why}; the row: {_shown(item)}")
        if self._collected is None:
            self._options.collects.mkdir(parents=True, exist_ok=True)
            name = f"refused-{os.getpid()}-{uuid.uuid4().hex[:12]}.jsonl"
            self._collected = (self._options.collects / name).open("wb")
        self._collected.write(msgspec.json.encode({"queue": queue, **item, "reason": why}) + b"\n")
        self.refused += 1

    def close(self) -> None:
        """Open the file of refused rows."""
        if self._collected is not None:
            self._collected.close()


def _shown(item: Item) -> str:
    text = msgspec.json.encode(item).decode()
    return text if len(text) <= 300 else text[:300] + "..."


def _items(batch: pa.RecordBatch, queue: str | None) -> Iterator[tuple[str | None, Item]]:
    """Each row's queue and message. Instants as `delay` and `ttl` are Unix seconds."""
    names = batch.schema.names
    count = batch.num_rows
    queues = [queue] * count if queue is not None or "queue" not in names else batch.column("queue").to_pylist()
    data = _payloads(batch)
    options = [(name, _plain(batch.column(name))) for name in OPTIONAL if name in names]
    for index in range(count):
        item = data[index]
        for name, values in options:
            if (value := values[index]) is not None:
                item[name] = value
        yield queues[index], item


def _plain(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [None if value is None else value.timestamp() for value in column.to_pylist()]
    return list(column.to_pylist())


def _payloads(batch: pa.RecordBatch) -> list[Item]:
    """Read `data` and its encoding. Text is a JSON string; binary is JSON text if `encoding` says json, else plain
    bytes."""
    column = batch.column("data")
    values = column.to_pylist()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [{"data": value} for value in values]
    encodings = batch.column("encoding").to_pylist() if "encoding" in batch.schema.names else [None] * len(values)
    return [
        {"data": None} if value is None else {"data": msgspec.Raw(value)} if kind == "json" else _bytes_item(value)
        for value, kind in zip(values, encodings, strict=True)
    ]


def _bytes_item(value: bytes) -> Item:
    return {"data": value, "encoding": "base64"}  # which is how the JSON encoder says bytes
