"""The replies to what is asked about the change log: its records, its entries, and where its readers are."""

from typing import Any

import msgspec

from quorate.protocol import Reply


class LogReply(Reply, kw_only=True):
    """The reply to log: `records` are objects with trans_id, kind and the record's fields, in order."""

    shard: int
    records: list[Any]
    first_trans_id: int
    last_trans_id: int
    committed: int


class RawLogReply(Reply, kw_only=True):
    """The reply to log with `raw`: `bytes` more bytes follow it, entries as they are stored.

    Each entry stands behind its length (4 bytes, big-endian). They hold every record behind `after` up to
    `last_trans_id`; the first may begin before that.
    """

    shard: int
    bytes: int
    first_trans_id: int
    last_trans_id: int
    committed: int


class LogReplyWithEntries(RawLogReply, kw_only=True):
    """A `RawLogReply` on its way to its connection, with what follows it; a session sends that behind the reply."""

    entries: list[Any] = []


class ReaderRow(msgspec.Struct, gc=False):
    """A named reader of the log: it has all records up to `trans_id`, as it said at `at` (Unix seconds).

    `lag`: records that it has not read. `lost`: of these, those that the log does not hold any more.
    """

    reader: str
    trans_id: int
    at: float
    lag: int
    lost: int


class PositionReply(Reply, kw_only=True):
    """The reply to position: where the reader is, or all readers in the order of their names."""

    shard: int
    trans_id: int | None = None
    readers: list[ReaderRow] | None = None


class TrimmedReply(Reply, kw_only=True):
    """The reply to a log request for records that are no longer kept."""

    first_trans_id: int
