"""Entries as the log action shows them: one object a record, with its trans_id, kind, time and fields by name."""

from typing import Any

import msgspec

from quorate.protocol import Code, ErrorWord, LogReply, Reply, Request, TrimmedReply
from storage import entry as entry_codec
from storage.records import KIND_NAMES, Message, Record

_NOT_SHOWN = ("deliveries", "place", "last")


def record_view(trans_id: int, time: float, record: Record) -> dict[str, Any]:
    """One record as an object: `data` is the message's JSON as it came."""
    fields = msgspec.structs.asdict(record)
    if isinstance(record, Message):
        fields["data"] = msgspec.Raw(record.data)
        for name in _NOT_SHOWN:  # they are the message's later life, and always 0 in its produce record
            del fields[name]
    return {"trans_id": trans_id, "kind": KIND_NAMES[type(record)], "time": time, **fields}


def log_reply(request: Request, after: int, count: int, entries: list[bytes], trimmed: int, committed: int) -> Reply:
    """The reply to a log request: at most `count` records behind `after`, out of `entries`, which hold them in order.

    `trimmed` when records behind `after` are not kept any more.
    """
    if after < trimmed:
        return TrimmedReply(
            action=request.action,
            code=Code.ERROR,
            seq=request.seq,
            error=ErrorWord.TRIMMED,
            reason=f"records up to {trimmed} are not kept any more; the first is {trimmed + 1}",
            first_trans_id=trimmed + 1,
        )
    records: list[Any] = []
    last = after
    for data in entries:
        entry = entry_codec.decode(data, "log")
        for offset, record in enumerate(entry.records):
            trans_id = entry.first_trans_id + offset
            if after < trans_id <= committed and len(records) < count:
                records.append(record_view(trans_id, entry.time, record))
                last = trans_id
    return LogReply(
        action=request.action,
        code=Code.OK,
        seq=request.seq,
        shard=request.shard or 0,
        records=records,
        first_trans_id=trimmed + 1,
        last_trans_id=last,
        committed=committed,
    )
