"""Entries as the log action shows them: one object a record, with its trans_id, kind, time and fields by name."""

from typing import Any, Final

import msgspec
import pykka

from actors.cluster.replication import Replication
from actors.messages.calls import Answered, Call
from actors.messages.checkpoints import LogRead, ReadLog
from actors.messages.node_view import NodeView
from quorate.protocol import Code, ErrorWord, LogReply, Reply, Request, TrimmedReply, refusal
from storage import entry as entry_codec
from storage.records import KIND_NAMES, Message, Record

LOG_REPLY_BYTES_MAX: Final = 1 << 20
LOG_COUNT_DEFAULT: Final = 100

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


class LogReader:
    """Answers log requests from what is committed: from memory, or else from LMDB, which the Checkpointer reads."""

    def __init__(self, replication: Replication, view: NodeView) -> None:
        self._replication = replication
        self._view = view

    def asked(self, call: Call, checkpointer: "pykka.ActorRef[Any]", reply_to: "pykka.ActorRef[Any]") -> None:
        """A client wants records; the Checkpointer answers with a `LogRead` to `reply_to` if it has to look."""
        request = call.request
        after = request.after or 0
        count = request.count or LOG_COUNT_DEFAULT
        if request.shard not in (None, 0):
            reply = refusal(request, ErrorWord.FIELD, f"shard: there is no shard {request.shard}")
            call.reply_to.tell(Answered([(call, reply)]))
        elif self._view.trimmed <= after < self._view.stored:
            bytes_max = min(call.reply_bytes_max // 4, LOG_REPLY_BYTES_MAX)  # names and JSON make it longer
            checkpointer.tell(ReadLog(call, after, count, bytes_max, reply_to))
        else:
            self._answer(call, after, count, [])

    def read(self, message: LogRead) -> None:
        """What LMDB has."""
        self._answer(message.call, message.after, message.count, list(message.entries))

    def _answer(self, call: Call, after: int, count: int, stored: list[bytes]) -> None:
        """From LMDB's entries, or from memory if it had none behind `after`."""
        machine = self._replication
        entries = stored or [entry.data for entry in machine.tail.behind(after, up_to=machine.committed)[:count]]
        reply = log_reply(call.request, after, count, entries, self._view.trimmed, machine.committed)
        call.reply_to.tell(Answered([(call, reply)]))
