"""The change log as a table: its columns, once, for Spark and for Arrow.

One row a record and message: a record about many messages is as many rows, one about none is one row without `msg_id`.
Times are instants with a microsecond's precision, in UTC.
"""

from typing import Final, NamedTuple

import pyarrow as pa


class Column(NamedTuple):
    """A column: its name, its type in Spark's DDL, the same in Arrow, and what it says."""

    name: str
    ddl: str
    arrow: pa.DataType
    meaning: str


_INSTANT: Final = pa.timestamp("us", tz="UTC")

COLUMNS: Final = (
    Column("shard", "INT", pa.int32(), "whose log it is"),
    Column("trans_id", "BIGINT", pa.int64(), "the record's number in its shard: +1 each, without gaps"),
    Column("time", "TIMESTAMP", _INSTANT, "when the record was made, by the leader's clock"),
    Column("kind", "STRING", pa.string(), "what happened: produce, deliver, confirm, ..."),
    Column("queue", "STRING", pa.string(), "the queue or topic; null for what is about none"),
    Column("msg_id", "BIGINT", pa.int64(), "the message; null for what is about none"),
    Column("previous", "BIGINT", pa.int64(), "the message's record before this one; null for its first"),
    Column("key", "STRING", pa.string(), "of a produce or an append: the message's key"),
    Column("priority", "INT", pa.int32(), "of a produce"),
    Column("due", "TIMESTAMP", _INSTANT, "from when on it may be delivered (again)"),
    Column("expires", "TIMESTAMP", _INSTANT, "until when it may be delivered"),
    Column("retry", "DOUBLE", pa.float64(), "of a produce: after how many seconds a delivery is repeated; 0: never"),
    Column("deliveries", "INT", pa.int32(), "of a delivery: how many there were, with this one"),
    Column("consumer", "STRING", pa.string(), "of a delivery: what the consumer calls itself"),
    Column("encoding", "STRING", pa.string(), "json: `data` is JSON text; bytes: plain bytes; null: there is none"),
    Column(
        "data",
        "BINARY",
        pa.binary(),
        "of a produce or an append: the payload; of settings and members: what they are, as JSON",
    ),
    Column("ended", "STRING", pa.string(), "why the message left: confirmed, taken, expired, cleared, buried, moved"),
    Column("target", "STRING", pa.string(), "of a bury or a move: the queue that the message moved to"),
    Column("partition", "INT", pa.int32(), "of an append: of the topic that `queue` names"),
    Column("offset", "BIGINT", pa.int64(), "of an append: the message's place in the partition"),
)

TOPIC_COLUMNS: Final = (
    Column("topic", "STRING", pa.string(), "its name"),
    Column("partition", "INT", pa.int32(), "of the topic"),
    Column("offset", "BIGINT", pa.int64(), "the message's place in the partition: +1 each, without gaps"),
    Column("msg_id", "BIGINT", pa.int64(), "the message's id"),
    Column("time", "TIMESTAMP", _INSTANT, "when it was appended, by the leader's clock"),
    Column("key", "STRING", pa.string(), "its key; null: it has none"),
    Column("encoding", "STRING", pa.string(), "json: `data` is JSON text; bytes: plain bytes"),
    Column("data", "BINARY", pa.binary(), "its payload"),
    Column("headers", "MAP<STRING,STRING>", pa.map_(pa.string(), pa.string()), "its headers"),
    Column("attribute", "STRING", pa.string(), "its attribute; null: it has none"),
    Column("position", "BIGINT", pa.int64(), "where its frame begins in the partition (bytes)"),
)
"""Of a topic's messages."""

TOPIC_DDL: Final = ", ".join(f"{column.name} {column.ddl}" for column in TOPIC_COLUMNS)
DDL: Final = ", ".join(f"{column.name} {column.ddl}" for column in COLUMNS)
ARROW: Final = pa.schema([(column.name, column.arrow) for column in COLUMNS])
NAMES: Final = tuple(column.name for column in COLUMNS)


def ddl(names: tuple[str, ...]) -> str:
    """Give the columns of those names for Spark, in that order. Raises KeyError for one that there is not."""
    types = {column.name: column.ddl for column in COLUMNS}
    return ", ".join(f"{name} {types[name]}" for name in names)


def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """Give the columns of those names, of the log's table or a topic's, in that order. Raises KeyError for one that
    there is not."""
    types = {column.name: column.arrow for column in (*TOPIC_COLUMNS, *COLUMNS)}
    return pa.schema([(name, types[name]) for name in names])
