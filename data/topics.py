"""A topic as a log of its partitions: each of them is what a shard is of the change log. No Spark in here.

An offset is a message's place in its partition. Any node answers reads, from what it knows to be committed.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from data.decode import Selection
from data.logs import PAUSE_S, Log, Range, TrimmedError, open_records
from data.options import SourceOptions
from data.schema import arrow_schema
from quorate import Client, RefusedError
from quorate.credentials import Credentials
from quorate.payload import from_wire
from quorate.protocol import BATCH_MAX, Action, ErrorWord

WAIT_S: Final = 1.0
"""A node that does not know of a message yet waits so long for it."""

ROWS_PER_BATCH: Final = 10_000


class TopicLog:
    """Of one topic, over the clients' port of any of `servers`."""

    def __init__(self, topic: str, servers: tuple[str, ...], timeout_s: float, credentials: Credentials) -> None:
        self._topic = topic
        self._client = Client(nodes=list(servers), timeout=timeout_s, credentials=credentials)
        self._servers = servers
        self._timeout_s = timeout_s
        self._credentials = credentials

    def ranges(self) -> dict[int, Range]:
        """Say what each partition holds. Raises `RefusedError` where there is no such topic."""
        return {row.partition: Range(row.first, row.next) for row in self._client.topic(self._topic).partitions}

    def first_since(self, shard: int, since: float) -> int:
        """Find the first message appended at `since` (Unix seconds) or later; the end if there is none."""
        reply = self._client.request(Action.READ, topic=self._topic, partition=shard, time=since, count=1)
        return int(reply["messages"][0]["offset"]) if reply["messages"] else int(reply["next"])

    def rows(self, shard: int, first: int, end: int, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Read messages of a partition. Raises `TrimmedError`; TimeoutError where no node has one for too long."""
        at, rows = first, list[dict[str, Any]]()
        turn = shard % len(self._servers)
        order = [*self._servers[turn:], *self._servers[:turn]]  # each partition begins with another node
        with Client(nodes=order, timeout=self._timeout_s, credentials=self._credentials) as client:
            patience_until = time.monotonic() + self._timeout_s
            while at < end:
                messages = self._read(client, shard, at, end)
                rows += [_row(self._topic, shard, one, has_data=selection.has_data) for one in messages]
                at += len(messages)
                if messages:
                    patience_until = time.monotonic() + self._timeout_s
                elif time.monotonic() > patience_until:
                    raise TimeoutError(f"partition {shard}: no node has message {at} after {self._timeout_s:g} s")
                else:
                    time.sleep(PAUSE_S)
                if len(rows) >= ROWS_PER_BATCH or (rows and at >= end):
                    yield _batch(rows, selection.columns)
                    rows = []

    def _read(self, client: Client, partition: int, at: int, end: int) -> list[dict[str, Any]]:
        asked = {"partition": partition, "offset": at, "count": min(end - at, BATCH_MAX), "wait": WAIT_S}
        try:
            return list(client.request(Action.READ, topic=self._topic, **asked)["messages"])
        except RefusedError as refused:
            if refused.error not in (ErrorWord.TRIMMED, ErrorWord.DAMAGED):
                raise
            first = refused.reply["next"]
            assert isinstance(first, int)
            raise TrimmedError(partition, at, first, "partition") from refused

    def hold(self, reader: str, places: dict[int, int]) -> None:
        """Note where a group begins, where that is not known."""
        known = {row.group: row for row in self._client.groups(self._topic)}.get(reader)
        there = {row.partition for row in (known.partitions or ())} if known is not None else set()
        self.moved(reader, {shard: at for shard, at in places.items() if shard not in there})

    def moved(self, reader: str, places: dict[int, int]) -> None:
        """Commit where the group goes on. Raises `RefusedError` where members read in it."""
        if places:
            self._client.commit_positions(self._topic, reader, {shard: at + 1 for shard, at in places.items()})

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _row(topic: str, partition: int, message: dict[str, Any], *, has_data: bool) -> dict[str, Any]:
    """Make a message a row, by the names of its columns."""
    data, encoding = None, "bytes" if "encoding" in message else "json"
    if has_data:
        value = from_wire(message)
        data = value if encoding == "bytes" else msgspec.json.encode(value)
    return {
        "topic": topic,
        "partition": partition,
        "offset": message["offset"],
        "msg_id": message["msg_id"],
        "time": datetime.fromtimestamp(message["produced_at"], UTC),
        "key": message.get("key"),
        "encoding": encoding,
        "data": data,
        "headers": list((message.get("headers") or {}).items()),
        "attribute": message.get("attribute"),
        "position": message["position"],
    }


def _batch(rows: list[dict[str, Any]], names: tuple[str, ...]) -> pa.RecordBatch:
    schema = arrow_schema(names)
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def open_log(options: SourceOptions) -> Log:
    """Open what the options name: a topic, or the change log. Raises `StorageError` for a path that holds none."""
    if options.topic is not None:
        return TopicLog(options.topic, options.servers, options.timeout_s, options.credentials)
    return open_records(options)
