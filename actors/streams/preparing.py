"""Two phases: a transaction that is prepared stays in the log until it is committed or rolled back (XA). A machine.

| phase | record | what is promised |
|---|---|---|
| prepare | `Prepare`, with all that is to be appended | that it can be committed, whatever happens |
| commit | `Decide`, and the appends, in one entry | it is there, all of it |
| roll back | `Decide` | nothing of it ever is |

A commit is done also where a partition was closed since, or no appends are accepted any more. Messages to a topic that
was removed since are gone with it.
"""

from collections.abc import Callable
from typing import Final

from actors.messages.call import Call
from actors.messages.rights import not_allowed
from actors.shard.machine import Machine, ShardContext
from actors.streams.finding import topic_of
from actors.streams.writing import Writing
from quorate.actions import Right
from quorate.protocol import Action, Code, ErrorWord, Reply, TransactionRequest, done
from quorate.stream_replies import PreparedReply, PreparedRow, TransactionReply
from storage.records import Append, Change, Decide, Prepare, Put

PREPARED_MAX: Final = 1000
PREPARED_BYTES_MAX: Final = 64 << 20
"""So many are prepared in a shard, and their messages have so many bytes: they stay in memory, perhaps for ever."""

COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
LIST: Final = "list"


class Preparing(Machine):
    """Of one shard. `writing` says what may be appended, and where to."""

    def __init__(self, context: ShardContext, writing: Writing) -> None:
        self._ledger = context.ledger
        self._topics = context.ledger.state.topics
        self._writing = writing

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.PREPARED: self.prepared}

    # -- prepare -----------------------------------------------------------------------------------------------

    def prepare(self, call: Call, request: TransactionRequest, xid: str) -> None:
        """Keep what a transaction appends until it is decided about."""
        ledger, prepared = self._ledger, self._topics.prepared
        if prepared.find(xid) is not None:
            return ledger.refuse(call, ErrorWord.TRANSACTION_EXISTS, f"the transaction {xid!r} is prepared already")
        puts: list[Put] = []
        for index, operation in enumerate(request.operations):
            part = Call(operation, call.client, call.order, call.reply_to, principal=call.principal)
            found = self._puts(part)
            if found is None:
                refused = ledger.take_answer(part)
                assert refused is not None, "what is not kept was refused"
                return ledger.answer_when_committed(call, refused_operation(request, index, refused))
            puts += found
        record = Prepare("", xid, ledger.now, puts)
        if len(prepared) >= PREPARED_MAX:
            return ledger.refuse(call, ErrorWord.LIMIT, f"{PREPARED_MAX} transactions are prepared and not decided")
        if prepared.bytes + record.data_bytes > PREPARED_BYTES_MAX:
            reason = f"transactions that are prepared and not decided hold {PREPARED_BYTES_MAX} bytes"
            return ledger.refuse(call, ErrorWord.LIMIT, reason)
        ledger.append(record)
        return ledger.answer_when_committed(call, done(request, TransactionReply))

    def _puts(self, part: Call) -> list[Put] | None:
        """Make what an operation appends; None if it was refused."""
        if part.request.action != Action.APPEND or part.request.producer is not None:
            reason = "a transaction that is prepared has appends without numbers, and nothing else"
            self._ledger.refuse(part, ErrorWord.NOT_SUPPORTED, reason)
            return None
        topic = topic_of(part, self._ledger)
        items = None if topic is None else self._writing.items(part)
        places = None if topic is None or items is None else self._writing.places(part, topic, items)
        if topic is None or items is None or places is None:
            return None
        return [
            Put(topic.name, topic.number, place, one.data, one.encoding, one.key, one.headers, one.attribute, one.flag)
            for one, place in zip(items, places, strict=True)
        ]

    # -- decide ------------------------------------------------------------------------------------------------

    def prepared(self, call: Call) -> None:
        """Do what a command says."""
        command = call.request.command
        if command == LIST:
            self._list(call)
        elif command in (COMMIT, ROLLBACK):
            self._decide(call, commits=command == COMMIT)
        else:
            self._ledger.refuse_field(call, "command", f"{command!r} is none of {COMMIT}, {ROLLBACK}, {LIST}")

    def _decide(self, call: Call, *, commits: bool) -> None:
        request, ledger = call.request, self._ledger
        if request.xid is None:
            return ledger.refuse_field(call, "xid", "is missing")
        known = self._topics.prepared.find(request.xid)
        if known is None:
            reason = f"there is no prepared transaction {request.xid!r}"
            return ledger.refuse(call, ErrorWord.NO_SUCH_TRANSACTION, reason)
        if not _may(call, known):
            return ledger.answer(call, not_allowed(request, Right.PRODUCE, call.principal.name))
        records: list[Change] = [Decide("", known.xid, commits)]
        if commits:
            records += self._appends(known)
        if len(records) == 1:
            ledger.append(records[0])
        else:
            ledger.append_together(records)
        reply = done(request, Reply)
        reply.count = len(records) - 1
        return ledger.answer_when_committed(call, reply)

    def _appends(self, prepared: Prepare) -> list[Append]:
        """Make the appends of a transaction, at the ends of their partitions."""
        nexts: dict[tuple[int, int], int] = {}
        made: list[Append] = []
        for one in prepared.puts:
            topic = self._topics.numbers.get(one.number)
            if topic is None:
                continue  # it is removed
            place = one.number, one.partition
            offset = nexts.get(place, topic.partitions[one.partition].next)
            nexts[place] = offset + 1
            about = one.data, one.encoding, self._ledger.now, one.key, one.headers, one.attribute, one.flag
            made.append(Append(topic.name, one.number, one.partition, offset, *about))
        return made

    def _list(self, call: Call) -> None:
        """List those that the client may decide about, the oldest first."""
        every = sorted(self._topics.prepared.by_key.values(), key=lambda one: (one.at, one.xid))
        rows = [
            PreparedRow(one.xid, one.at, len(one.puts), one.data_bytes, sorted({put.topic for put in one.puts}))
            for one in every
            if _may(call, one)
        ]
        self._ledger.answer_when_committed(call, done(call.request, PreparedReply, queue=None, prepared=rows))


def _may(call: Call, prepared: Prepare) -> bool:
    """Whether a client may append to all topics of a transaction, and so decide about it."""
    rights = call.principal.rights
    return rights.is_unlimited or all(rights.may(Right.PRODUCE, one) for one in {put.topic for put in prepared.puts})


def refused_operation(request: TransactionRequest, index: int, refused: Reply) -> TransactionReply:
    """Say which operation was refused, and why."""
    return TransactionReply(
        action=request.action,
        code=Code.ERROR,
        seq=request.seq,
        error=refused.error,
        reason=f"operations[{index}]: {refused.reason}",
        index=index,
        refused=refused,
    )
