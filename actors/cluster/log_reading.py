"""Entries as the log action shows them: one object a record, with its trans_id, kind, time and fields by name."""

from typing import Any, Final

from actors.cluster.decisions import Decisions
from actors.cluster.replication import Replication
from actors.messages.calls import Answered, Call
from actors.messages.checkpoints import LogRead, ReadLog
from quorate.protocol import Code, ErrorWord, LogReply, Reply, Request, TrimmedReply, refusal
from storage import entry as entry_codec
from storage.kinds import shown

LOG_REPLY_BYTES_MAX: Final = 1 << 20
LOG_COUNT_DEFAULT: Final = 100


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
                records.append(shown(trans_id, entry.time, record))
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


class LogReading:
    """Answers log requests from what is committed: from memory, or else from LMDB, which the Checkpointer reads."""

    def __init__(self, replication: Replication) -> None:
        self._log = replication.log

    def asked(self, call: Call) -> Decisions:
        """A client wants records; a `LogRead` follows if LMDB has to be looked at."""
        request, log = call.request, self._log
        after = request.after or 0
        if isinstance(after, str):
            return [Answered([(call, refusal(request, ErrorWord.FIELD, "after: a trans_id is wanted"))])]
        count = request.count or LOG_COUNT_DEFAULT
        if request.shard not in (None, 0):
            reply = refusal(request, ErrorWord.FIELD, f"shard: there is no shard {request.shard}")
            return [Answered([(call, reply)])]
        if log.trimmed <= after < log.tail.checkpointed:
            bytes_max = min(call.reply_bytes_max // 4, LOG_REPLY_BYTES_MAX)  # names and JSON make it longer
            return [ReadLog(call, after, count, bytes_max)]
        return self._answer(call, after, count, [])

    def read(self, message: LogRead) -> Decisions:
        """What LMDB has."""
        return self._answer(message.call, message.after, message.count, list(message.entries))

    def _answer(self, call: Call, after: int, count: int, stored: list[bytes]) -> Decisions:
        """From LMDB's entries, or from memory if it had none behind `after`."""
        log = self._log
        entries = stored or [entry.data for entry in log.tail.behind(after, up_to=log.committed)[:count]]
        return [Answered([(call, log_reply(call.request, after, count, entries, log.trimmed, log.committed))])]
