"""Transactions: several requests that are done, all of them or none, in one entry of the log. A machine.

Each operation is done as if it had come alone, by the machine that does it, in turn and at once: what a later one finds
is what the earlier ones have made of it. If one is refused, what was made is taken back (`Savepoint`), and nobody has
heard of it. But stricter than alone: each message that an operation names must be there, and in flight for who asks.

Asked again, a transaction is known by the numbers of its appends: all of it was done if they were. One that has none,
and confirms a delivery, can't be done twice, and is refused then. Where there is no room for what it makes, what nobody
needs goes, as for a produce, and it is tried once more.
"""

from collections.abc import Callable
from typing import Any, Final

from actors.messages.call import Call
from actors.messages.naming import naming_fault
from actors.queues.delivery import Delivery
from actors.queues.named_messages import NamedMessages
from actors.queues.producing import Producing
from actors.shard.machine import Machine, ShardContext
from actors.shard.savepoint import Savepoint
from actors.streams.preparing import Preparing, refused_operation
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
from storage.message import Message
from storage.records import STREAMS_LEVEL, Place

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
        preparing: Preparing,
        machines: list[Machine],
    ) -> None:
        self._ledger = context.ledger
        self._jobs = context.jobs
        self._named = NamedMessages(context.ledger, context.jobs)
        self._delivery = delivery
        self._producing = producing
        self._writing = writing
        self._preparing = preparing
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
        if request.xid is not None:
            return self._preparing.prepare(call, request, request.xid)
        numbered = [(index, one) for index, one in enumerate(request.operations) if _is_numbered(one)]
        twice = _twice(numbered)
        if twice is not None:
            index, fault = twice
            refused = refusal(request.operations[index], ErrorWord.FIELD, fault)
            return ledger.answer_when_committed(call, refused_operation(request, index, refused))
        if numbered and self._is_repeated(call, request, numbered):
            return self._answer_again(call, request)
        replies, is_done = self._try(call, request)
        if not is_done and replies[-1].error == ErrorWord.LIMIT and self._makes_room(request):
            replies, is_done = self._try(call, request)
        reply: Reply = done(request, TransactionReply, replies=replies)
        if not is_done:
            reply = self._refused(request, len(replies) - 1, replies[-1])
        return ledger.answer_when_committed(call, reply)

    def _try(self, call: Call, request: TransactionRequest) -> tuple[list[Reply], bool]:
        """Do all operations, or none: the replies up to the first that was refused, and whether none was.

        What was given back or buried is placed when that is committed: nobody is to see a part.
        """
        savepoint, is_done = Savepoint(self._ledger), False
        put_off: list[Message] = []
        self._delivery.put_off = put_off
        self._producing.makes_room = False  # what that does is not taken back
        piece, self._jobs.piece = self._jobs.piece, NAMED_MAX + 1  # all at once
        try:
            replies, is_done = self._do(call, request)
        finally:
            self._jobs.piece = piece
            self._producing.makes_room = True
            self._delivery.put_off = None
            if is_done:
                savepoint.keep()
            else:
                self._look_again(savepoint.take_back())
        for message in put_off if is_done else ():
            self._ledger.produced(message)
        return replies, is_done

    def _do(self, call: Call, request: TransactionRequest) -> tuple[list[Reply], bool]:
        replies: list[Reply] = []
        for one in request.operations:
            replies.append(self._do_one(call, one))
            if replies[-1].code != Code.OK:
                return replies, False
        return replies, True

    def _do_one(self, call: Call, operation: Request) -> Reply:
        if operation.action == Action.CONFIRM:
            operation.held = True
        part = _part(call, operation)
        ids = _ids_of(operation) if operation.action in COUNTED else []
        refused = None if naming_fault(operation) is not None else self._why_not(part, ids)
        if refused is not None:
            return refused
        self._does[operation.action](part)
        reply = self._ledger.take_answer(part)
        if reply is None:
            raise RuntimeError(f"an operation of action {operation.action} has no answer")
        if reply.code == Code.OK and ids:
            count = getattr(reply, COUNTED[operation.action]) or 0
            if count < len(ids):
                reason = f"{count} of {len(ids)} messages are in flight for who asks"
                return refusal(operation, ErrorWord.NOT_IN_FLIGHT, reason)
        return reply

    def _why_not(self, part: Call, ids: list[int]) -> Reply | None:
        """Refuse an operation that names what is not there, or not in flight; None: it is."""
        for msg_id in ids:
            message = self._named.message(part, msg_id)
            if message is None:
                return refusal(part.request, ErrorWord.NO_SUCH_MESSAGE, f"there is no message {msg_id}")
            if message.place != Place.IN_FLIGHT:
                return refusal(part.request, ErrorWord.NOT_IN_FLIGHT, f"message {msg_id} is not in flight")
        return None

    def _look_again(self, made: list[Any]) -> None:
        """Look at the queues of records that were taken back: what is due there may stand otherwise than before."""
        for record in made:
            for name in (getattr(record, "queue", None), getattr(record, "to", None)):
                if name in self._ledger.state.queues:
                    self._delivery.alarms.set(name, self._ledger.now)

    def _refused(self, request: TransactionRequest, index: int, refused: Reply) -> TransactionReply:
        """Say which operation was refused, and why: not by the id of a message that is not there any more."""
        msg_id, live = refused.msg_id, self._ledger.state.messages
        if refused.error == ErrorWord.DUPLICATE_KEY and msg_id is not None and live.get(msg_id) is None:
            refused.msg_id, refused.reason = None, "the message of an operation before has the key"
        return refused_operation(request, index, refused)

    # -- before it is begun ------------------------------------------------------------------------------------

    def _is_repeated(self, call: Call, request: TransactionRequest, numbered: list[tuple[int, Request]]) -> bool:
        """Whether it was done before: all its appends that have numbers came before.

        Not where a message that it confirms is in flight: then those numbers were used by others.
        """
        if not all(self._writing.is_repeated(one) for _, one in numbered):
            return False
        for one in request.operations:
            if one.action == Action.CONFIRM:
                for msg_id in _ids_of(one):
                    message = self._named.message(_part(call, one), msg_id)
                    if message is not None and message.place == Place.IN_FLIGHT:
                        return False
        return True

    def _answer_again(self, call: Call, request: TransactionRequest) -> None:
        """Say once more where its messages are, as far as that is known. What else it did is done."""
        replies: list[Reply | None] = []
        for one in request.operations:
            reply = self._do_one(call, one) if _is_numbered(one) else None
            replies.append(reply if reply is not None and reply.code == Code.OK else None)
        self._ledger.answer_when_committed(call, done(request, TransactionReply, replies=replies, duplicate=True))

    def _makes_room(self, request: TransactionRequest) -> bool:
        """Let go of what nobody needs for all that it makes; whether anything went."""
        state = self._ledger.state
        before = state.trans_id
        makes = [one for one in request.operations if one.action in (Action.PRODUCE, Action.APPEND)]
        items = [item for one in makes for item in one.messages or (one,)]
        named = {one.queue for one in makes if one.queue not in state.topics.by_name}
        new = [name for name in named if name is not None and name not in state.queues]
        self._producing.make_room_for(len(items), sum([len(bytes(item.data)) for item in items]), len(new))
        return state.trans_id > before


def _part(call: Call, operation: Request) -> Call:
    return Call(operation, call.client, call.order, call.reply_to, principal=call.principal)


def _ids_of(operation: Request) -> list[int]:
    """Give the ids that an operation names, each once."""
    named = [] if operation.msg_id is None else [operation.msg_id]
    return list(dict.fromkeys([*named, *(operation.msg_ids or ())]))


def _twice(numbered: list[tuple[int, Request]]) -> tuple[int, str] | None:
    """Find an append that has the number of an earlier one: it would be taken for that one, asked again."""
    seen: set[tuple[str | None, str | None, int | None]] = set()
    for index, one in numbered:
        if (one.topic, one.producer, one.number) in seen:
            return index, f"number {one.number} of {one.producer!r} stands there twice"
        seen.add((one.topic, one.producer, one.number))
    return None


def _is_numbered(operation: Request) -> bool:
    return operation.action == Action.APPEND and operation.producer is not None and operation.number is not None
