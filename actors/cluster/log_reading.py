"""The log action: records as objects with trans_id, kind, time and fields by name, or entries as they are stored.

Entries as they are stored are for readers of the whole log, which would take all that there is: they come in parts of
up to `RAW_BYTES_MAX`, one part at a time for all such readers, and while the log grows, so while somebody else is being
served, a rest follows each part that is longer than the part took.
"""

import math
from collections import deque
from typing import Any, Final

from actors.cluster.decisions import Decisions
from actors.cluster.replicated_log import ReplicatedLog
from actors.messages.call import Call
from actors.messages.calls import Answered
from actors.messages.checkpoints import LogRead, RawRead, ReadLog, ReadRaw
from quorate.log_replies import LogReply, LogReplyWithEntries, TrimmedReply
from quorate.protocol import Code, ErrorWord, Reply, Request, refusal
from storage import entry_codec
from storage.kinds import shown

LOG_REPLY_BYTES_MAX: Final = 1 << 20
LOG_COUNT_DEFAULT: Final = 100
RAW_BYTES_MAX: Final = 4 << 20
RAW_COUNT_MAX: Final = 1 << 62

REST: Final = 1.5
"""A rest is so many times as long as the part before it took."""

REST_MAX_S: Final = 0.25


def log_reply(request: Request, after: int, count: int, entries: list[bytes], trimmed: int, committed: int) -> Reply:
    """Reply to a log request: at most `count` records behind `after`, out of `entries`, which hold them in order.

    `trimmed` when records behind `after` are not kept any more.
    """
    if after < trimmed:
        return trimmed_reply(request, trimmed)
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


def trimmed_reply(request: Request, trimmed: int) -> Reply:
    """Refuse records up to `trimmed`, which are not kept any more."""
    return TrimmedReply(
        action=request.action,
        code=Code.ERROR,
        seq=request.seq,
        error=ErrorWord.TRIMMED,
        reason=f"records up to {trimmed} are not kept any more; the first is {trimmed + 1}",
        first_trans_id=trimmed + 1,
    )


class LogReading:
    """Answers log requests from what is committed: from memory, or else from LMDB, which the Checkpointer reads.

    Times are monotonic seconds.
    """

    def __init__(self, log: ReplicatedLog, shard: int = 0) -> None:
        self._log = log
        self._shard = shard
        self._raw: deque[Call] = deque()
        self._is_reading = False
        self._begun_at = self._rests_until = -math.inf
        self._end_before = 0
        self._has_timer = False

    def timer(self, now: float) -> float | None:
        """After so long (s) `rested` is to be called, if that is not said already, and a part is due then."""
        if self._has_timer or self._is_reading or not self._raw:
            return None
        self._has_timer = True
        return max(self._rests_until - now, 0.0)

    def rested(self, now: float) -> Decisions:
        """Look again, since it is time."""
        self._has_timer = False
        return self.tick(now)

    def asked(self, now: float, call: Call) -> Decisions:
        """Serve a client that wants records; a `LogRead` follows if LMDB has to be looked at."""
        request, log = call.request, self._log
        after = request.after or 0
        if isinstance(after, str):
            return [Answered([(call, refusal(request, ErrorWord.FIELD, "after: a trans_id is wanted"))])]
        if request.shard not in (None, self._shard):
            reply = refusal(request, ErrorWord.FIELD, f"shard: there is no shard {request.shard}")
            return [Answered([(call, reply)])]
        if request.raw:
            return self._raw_asked(now, call)
        count = request.count or LOG_COUNT_DEFAULT
        if log.trimmed <= after < log.tail.checkpointed:
            bytes_max = min(call.reply_bytes_max // 4, LOG_REPLY_BYTES_MAX)  # names and JSON make it longer
            return [ReadLog(call, after, count, bytes_max)]
        return self._answer(call, after, count, [])

    def read(self, message: LogRead) -> Decisions:
        """Answer with what LMDB has."""
        return self._answer(message.call, message.after, message.count, list(message.entries))

    def _answer(self, call: Call, after: int, count: int, stored: list[bytes]) -> Decisions:
        """From LMDB's entries, or from memory if it had none behind `after`."""
        log = self._log
        entries = stored or [entry.data for entry in log.tail.behind(after, up_to=log.committed)[:count]]
        return [Answered([(call, log_reply(call.request, after, count, entries, log.trimmed, log.committed))])]

    # -- entries as they are stored ----------------------------------------------------------------------------

    def _raw_asked(self, now: float, call: Call) -> Decisions:
        if call.is_single:
            reason = "raw: the entries do not fit into a datagram: ask over TCP"
            return [Answered([(call, refusal(call.request, ErrorWord.NOT_SUPPORTED, reason))])]
        self._raw.append(call)
        return self.tick(now)

    def tick(self, now: float) -> Decisions:
        """Begin the next part, unless one is being read or it is time for a rest."""
        decisions: Decisions = []
        log = self._log
        while self._raw and not self._is_reading and now >= self._rests_until:
            call = self._raw.popleft()
            if call.client.is_gone:
                continue
            request = call.request
            assert isinstance(request.after, int | None)
            after = request.after or 0
            count = request.count or RAW_COUNT_MAX
            bytes_max = min(call.reply_bytes_max, RAW_BYTES_MAX)
            if after < log.trimmed:
                decisions.append(Answered([(call, trimmed_reply(request, log.trimmed))]))
            elif after < log.tail.checkpointed:
                self._is_reading = True
                self._begun_at, self._end_before = now, log.tail.end.trans_id
                decisions.append(ReadRaw(call, after, count, bytes_max))
            else:
                found = log.tail.behind(after, up_to=log.committed, bytes_max=bytes_max)
                while len(found) > 1 and found[-1].last_trans_id - after > count:
                    found.pop()
                last = found[-1].last_trans_id if found else after
                decisions.append(self._raw_answer(call, [entry.data for entry in found], last))
        return decisions

    def raw_read(self, now: float, message: RawRead) -> Decisions:
        """Answer with a part that was read. A head that was trimmed meanwhile is told so: what was asked for begins
        before it."""
        self._is_reading = False
        log, request = self._log, message.call.request
        if log.tail.end.trans_id != self._end_before:
            self._rests_until = now + min((now - self._begun_at) * REST, REST_MAX_S)
        assert isinstance(request.after, int | None)
        if not message.entries or (request.after or 0) < log.trimmed:
            self._raw.appendleft(message.call)  # a snapshot has taken the log's place, or its head has gone: look again
            return self.tick(now)
        return [self._raw_answer(message.call, message.entries, message.last_trans_id), *self.tick(now)]

    def _raw_answer(self, call: Call, entries: list[bytes], last: int) -> Answered:
        request, log = call.request, self._log
        reply = LogReplyWithEntries(
            action=request.action,
            code=Code.OK,
            seq=request.seq,
            shard=request.shard or 0,
            bytes=sum(map(len, entries)) + 4 * len(entries),
            first_trans_id=log.trimmed + 1,
            last_trans_id=last,
            committed=log.committed,
            entries=entries,
        )
        return Answered([(call, reply)])
