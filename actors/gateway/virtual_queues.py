"""Produces to virtual queues: one produce to each of the real queues, and one reply with all the ids. A machine."""

from typing import Final

from msgspec.structs import replace

from actors.gateway.gathers import NOT_DONE_ERRORS, PartedCall
from actors.messages.call import Answer, Call, Receiver
from actors.messages.rights import not_allowed
from quorate.actions import NAME_NO_QUEUE, NAME_QUEUES, OF_TOPICS, TABLE, Right
from quorate.protocol import Action, Code, ErrorWord, RedirectReply, Reply, TransactionRequest, goes_to, refusal

NAME_A_QUEUE: Final = frozenset(facts.action for facts in TABLE) - NAME_NO_QUEUE


class Copies(PartedCall):
    """A produce to a virtual queue that waits for its copies' replies.

    If some refuse, the reply is the first refusal, and still names the ids of the copies that were stored.
    """

    def reply(self) -> Reply:
        """Make the one reply to the produce."""
        request = self.call.request
        ids: list[int] = []
        refused: Reply | None = None
        for reply in self.replies:
            if reply.code != Code.OK:
                refused = refused or reply
            elif reply.msg_ids is not None:
                ids += reply.msg_ids
            elif reply.msg_id is not None:
                ids.append(reply.msg_id)
        unknown = [one for one in self.replies if one.error == ErrorWord.UNKNOWN_OUTCOME]
        if unknown:
            refused = unknown[0]  # whatever else was refused: nobody may take it for certainly not done
        if isinstance(refused, RedirectReply) and not ids:
            return replace(refused, queue=request.queue, seq=request.seq)
        if refused is not None and refused.error in NOT_DONE_ERRORS and ids:
            refused.code, refused.error = Code.ERROR, ErrorWord.UNKNOWN_OUTCOME  # to do all of it again doubles some
        gathered = Reply(action=request.action, code=Code.OK, queue=request.queue, seq=request.seq)
        if refused is not None:
            gathered.code = refused.code
            gathered.error = refused.error
            gathered.reason = f"queue {refused.queue!r}: {refused.reason}; {len(ids)} of the copies are stored"
        gathered.msg_ids = ids
        gathered.msg_id = ids[0] if ids else None
        return gathered


class VirtualQueues:
    """`names` maps a virtual queue to the real queues' names."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        self.names = names

    def become(self, names: dict[str, list[str]]) -> None:
        """Go by the others that the configuration names."""
        self.names = names

    def _keep_out(self, call: Call, request: TransactionRequest, out: list[Call], refused: list[Answer]) -> None:
        """Refuse a transaction that names a virtual queue: its copies would be operations of several shards."""
        for index, one in enumerate(request.operations):
            name = one.topic if one.action in OF_TOPICS else one.queue
            if name in self.names:
                reason = f"operations[{index}]: {name!r} is a virtual queue: a transaction names the real ones"
                reply = refusal(request, ErrorWord.NOT_SUPPORTED, reason)
                refused.append((call, reply))
                return
        out.append(call)

    def split(self, calls: list[Call], reply_to: Receiver) -> tuple[list[Call], list[Answer]]:
        """Give the calls, with each produce to a virtual queue as one to each real queue; and what is refused at once.

        The copies' answers go to `reply_to`, to be given to their client, `Copies`.
        """
        names = self.names
        out: list[Call] = []
        refused: list[Answer] = []
        for call in calls:
            request = call.request
            name = request.topic if request.action in OF_TOPICS else request.queue
            if isinstance(request, TransactionRequest):
                self._keep_out(call, request, out, refused)
                continue
            queues = None if request.action not in NAME_A_QUEUE else names.get(name or "")
            if queues is None:
                named: list[str] = []
                if other := goes_to(request):
                    named = [other]
                elif request.action in NAME_QUEUES:
                    named = request.queues or []
                virtual = [name for name in named if name in names]
                if virtual:
                    reason = f"{virtual[0]!r} is a virtual queue: it only takes produce"
                    refused.append((call, refusal(request, ErrorWord.NOT_SUPPORTED, reason)))
                else:
                    out.append(call)
            elif request.action != Action.PRODUCE:
                reason = f"{name!r} is a virtual queue: it only takes produce"
                if all(call.principal.rights.may(Right.PRODUCE, name) for name in queues):
                    reason += f", for {', '.join(queues)}"
                refused.append((call, refusal(request, ErrorWord.NOT_SUPPORTED, reason)))
            elif request.scope is not None or any(item.scope is not None for item in request.messages or ()):
                reason = f"{request.queue!r} is a virtual queue: a key that is one among all has one message"
                refused.append((call, refusal(request, ErrorWord.NOT_SUPPORTED, reason)))
            elif request.on_duplicate or any(item.on_duplicate for item in request.messages or ()):
                reason = f"{request.queue!r} is a virtual queue: on_duplicate is about one queue's message"
                refused.append((call, refusal(request, ErrorWord.NOT_SUPPORTED, reason)))
            elif not all(call.principal.rights.may(Right.PRODUCE, name) for name in queues):
                refused.append((call, not_allowed(request, Right.PRODUCE)))
            else:
                gather = Copies(call, len(queues))
                for order, name in enumerate(queues):
                    copy = replace(request, queue=name)
                    out.append(Call(copy, gather, order, reply_to, is_single=True, principal=call.principal))
        return out, refused
