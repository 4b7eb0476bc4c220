"""Transactions: several requests that are done, all of them or none, in one entry of the log. A machine.

Each operation is done as if it had come alone, by the machine that does it, in turn and at once: what a later one finds
is what the earlier ones have made of it. If one is refused, what was made is taken back (`Savepoint`), and nobody has
heard of it. But stricter than alone: each message that an operation names must be there, and in flight for who asks.

Asked again, a transaction is known by the numbers of its appends: all of it was done if they were. One that has none,
and confirms a delivery, can't be done twice, and is refused then.
"""

from collections.abc import Callable
from typing import Any, Final

from actors.messages.call import Call
from actors.queues.delivery import Delivery
from actors.queues.named_messages import NamedMessages
from actors.queues.producing import Producing
from actors.shard.machine import Machine, ShardContext
from actors.shard.savepoint import Savepoint
from actors.streams.writing import Writing
from quorate.actions import OF_TRANSACTIONS
from quorate.protocol import (
    NAMED_MAX,
    Action,
    Code,
    ErrorWord,
    Reply,
    Request,
    TransactionRequest,
    done,
    refusal,
)
from quorate.stream_replies import TransactionReply
from storage.records import STREAMS_LEVEL

COUNTED: Final[dict[int, str]] = {
    int(Action.CONFIRM): "confirmed",
    int(Action.RELEASE): "released",
    int(Action.BURY): "buried",
}
"""What names messages, and the field of its reply that says to how many of them it was done."""


class Transacting(Machine):
    """Of one shard. `machines`: those that do the operations."""

    def __init__(
        self,
        context: ShardContext,
        delivery: Delivery,
        producing: Producing,
        writing: Writing,
        machines: list[Machine],
    ) -> None:
        self._ledger = context.ledger
        self._jobs = context.jobs
        self._named = NamedMessages(context.ledger, context.jobs)
        self._delivery = delivery
        self._producing = producing
        self._writing = writing
        table = {action: does for machine in machines for action, does in machine.actions().items()}
        self._does = {int(action): table[action] for action in OF_TRANSACTIONS}

    def actions(self) -> dict[int, Callable[[Call], None]]:
        """Its table."""
        return {Action.TRANSACTION: self.transact}

    def transact(self, call: Call) -> None:
        """Do all operations of a request, or none."""
        request, ledger = call.request, self._ledger
        if not isinstance(request, TransactionRequest):
            return ledger.refuse_field(call, "operations", "is missing: a list of requests")
        if ledger.level < STREAMS_LEVEL:
            reason = f"a transaction needs feature level {STREAMS_LEVEL}, and the cluster has {ledger.level}"
            return ledger.refuse(call, ErrorWord.NOT_SUPPORTED, reason)
        if self._is_repeated(request):
            return self._answer_again(call, request)
        why = self._why_no_room(request)
        if why is not None:
            return ledger.refuse(call, ErrorWord.LIMIT, why)
        return self._transact(call, request)

    def _transact(self, call: Call, request: TransactionRequest) -> None:
        savepoint = Savepoint(self._ledger)
        self._delivery.is_serving = True  # what is ready may not stay so
        piece, self._jobs.piece = self._jobs.piece, NAMED_MAX + 1  # all at once
        is_done = False
        try:
            replies, is_done = self._do(call, request)
        finally:
            self._jobs.piece = piece
            made = savepoint.made
            if is_done:
                savepoint.keep()
            else:
                savepoint.take_back()
                self._look_again(made)
            self._serve(is_done=is_done)
        reply: Reply = done(request, TransactionReply, replies=replies)
        if not is_done:
            reply = _refused(request, len(replies) - 1, replies[-1])
        self._ledger.answer_when_committed(call, reply)

    def _do(self, call: Call, request: TransactionRequest) -> tuple[list[Reply], bool]:
        """Do the operations up to the first that is refused; their replies, and whether none was."""
        replies: list[Reply] = []
        for one in request.operations:
            replies.append(self._do_one(call, one))
            if replies[-1].code != Code.OK:
                return replies, False
        return replies, True

    def _do_one(self, call: Call, operation: Request) -> Reply:
        if operation.action == Action.CONFIRM:
            operation.held = True
        part = Call(operation, call.client, call.order, call.reply_to, principal=call.principal)
        asked = 0
        if operation.action in COUNTED:
            ids = [*([] if operation.msg_id is None else [operation.msg_id]), *(operation.msg_ids or ())]
            asked = len({*ids})
            missing = next((msg_id for msg_id in ids if self._named.message(part, msg_id) is None), None)
            if missing is not None:
                return refusal(operation, ErrorWord.NO_SUCH_MESSAGE, f"there is no message {missing}")
        self._does[operation.action](part)
        reply = self._ledger.take_answer(part)
        if reply is None:
            raise RuntimeError(f"an operation of action {operation.action} has no answer")
        if reply.code == Code.OK and asked:
            count = getattr(reply, COUNTED[operation.action]) or 0
            if count < asked:
                reason = f"{count} of {asked} messages are in flight for who asks"
                return refusal(operation, ErrorWord.NOT_IN_FLIGHT, reason)
        return reply

    def _serve(self, *, is_done: bool) -> None:
        """Give what has become ready to those who wait; or not, where it is not ready any more."""
        delivery = self._delivery
        delivery.is_serving = False
        to_serve = [*delivery.to_serve.values()] if is_done else []
        delivery.to_serve.clear()
        for queue in to_serve:
            delivery.serve(queue)

    def _look_again(self, made: list[Any]) -> None:
        """Look at the queues of records that were taken back: what is due there may stand otherwise than before."""
        for record in made:
            for name in (getattr(record, "queue", None), getattr(record, "to", None)):
                if name in self._ledger.state.queues:
                    self._delivery.alarms.set(name, self._ledger.now)

    # -- before it is begun ------------------------------------------------------------------------------------

    def _is_repeated(self, request: TransactionRequest) -> bool:
        """Whether it was done before: there are appends with numbers, and all of them came before."""
        numbered = [one for one in request.operations if _is_numbered(one)]
        return bool(numbered) and all(map(self._writing.is_repeated, numbered))

    def _answer_again(self, call: Call, request: TransactionRequest) -> None:
        """Say once more where its messages are. What else it did is done, and not known any more."""
        replies: list[Reply | None] = []
        for index, one in enumerate(request.operations):
            if not _is_numbered(one):
                replies.append(None)
                continue
            reply = self._do_one(call, one)
            if reply.code != Code.OK:
                return self._ledger.answer_when_committed(call, _refused(request, index, reply))
            replies.append(reply)
        return self._ledger.answer_when_committed(
            call, done(request, TransactionReply, replies=replies, duplicate=True)
        )

    def _why_no_room(self, request: TransactionRequest) -> str | None:
        """Why there is no room for all that it makes; None if there is: no operation makes room then."""
        queues, topics = self._ledger.state.queues, self._ledger.state.topics.by_name
        count = size = new_queues = 0
        for one in request.operations:
            if one.action in (Action.PRODUCE, Action.APPEND):
                count += len(one.messages or (one,))
                size += sum([len(bytes(item.data)) for item in one.messages or (one,)])
            is_new = one.action == Action.PRODUCE and one.queue not in queues and one.queue not in topics
            new_queues += is_new or one.action == Action.BURY
        return self._producing.why_no_room(count, size, new_queues) if count or new_queues else None


def _is_numbered(operation: Request) -> bool:
    return operation.action == Action.APPEND and operation.producer is not None and operation.number is not None


def _refused(request: TransactionRequest, index: int, refused: Reply) -> TransactionReply:
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
