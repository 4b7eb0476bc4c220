"""Trace: one message's whole life, from the archive and the log together."""

import json
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from data.instants import in_utc
from storage.message_ids import SHARDS_MAX

COLUMNS: Final = (
    *("trans_id", "time", "kind", "queue", "deliveries", "consumer", "due", "expires", "retry", "priority", "key"),
    *("ended", "target", "encoding", "data", "msg_id", "shard"),
)


def together(archive: DataFrame | None, log: DataFrame | None) -> DataFrame:
    """All records of both, each once. Raises ValueError without either."""
    if archive is None or log is None:
        one = archive if archive is not None else log
        if one is None:
            raise ValueError("an archive or servers are wanted")
        return one
    ends = archive.groupBy("shard").agg(F.max("trans_id").alias("_end"))
    is_newer = F.col("_end").isNull() | (F.col("trans_id") > F.col("_end"))
    newer = log.join(F.broadcast(ends), "shard", "left").where(is_newer)
    return archive.unionByName(newer.drop("_end"))


def run(records: DataFrame, *, msg_id: int | None, key: str | None, queue: str | None) -> list[dict[str, Any]]:
    """Find the records of the message, or of all messages that had the key in the queue, in their order.

    Raises ValueError unless either an id, or a key and its queue, are given.
    """
    if (msg_id is None) == (key is None) or (key is not None and queue is None):
        raise ValueError("an id, or a key and its queue, are wanted")
    if msg_id is None:
        is_it = (F.col("kind") == "produce") & (F.col("queue") == queue) & (F.col("key") == key)
        ids = [int(row["msg_id"]) for row in records.where(is_it).select("msg_id").collect()]
    else:
        ids = [msg_id]
        records = records.where(
            F.col("trans_id") >= msg_id // SHARDS_MAX
        )  # its first record, which the source skips to
    if not ids:
        return []
    shards = sorted({one % SHARDS_MAX for one in ids})
    found = records.where(_is_in("shard", shards) & _is_in("msg_id", ids)).select(*COLUMNS)
    return [in_utc(row) for row in found.orderBy("msg_id", "trans_id").collect()]


def _is_in(name: str, values: list[int]) -> Column:
    return F.col(name) == values[0] if len(values) == 1 else F.col(name).isin(values)


def shown_data(data: bytes | None, encoding: str | None) -> str:
    """Make a payload what people read."""
    if data is None:
        return ""
    if encoding == "json":
        try:
            return json.dumps(json.loads(bytes(data)), ensure_ascii=False)
        except ValueError:
            return bytes(data).decode(errors="replace")
    return bytes(data).hex(" ", 4)
