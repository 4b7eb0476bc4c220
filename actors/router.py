"""Router: which owner does a request. With one shard that is the one there is; what it splits are virtual queues.

A virtual queue is a name for several real ones: a produce to it becomes one produce to each, and one reply with all
the ids (its `msg_id` is the first, for clients that look at that). If some refuse, the reply is the first refusal,
and still names the ids of the copies that were stored.
"""

from typing import Any

import msgspec
import pykka

from actors.loop_actor import LoopActor
from actors.messages import Answer, Answered, Call, ClientGone, Execute, Reconfigure, Stop
from actors.runtime import Runtime
from quorate.protocol import Action, Code, ErrorWord, Reply, refusal


class Gather:
    """A produce to a virtual queue that waits for its copies' replies; it is the client of each of them."""

    def __init__(self, call: Call, size: int) -> None:
        self.call = call
        self._replies: list[Reply | None] = [None] * size
        self._missing = size

    def answer(self, order: int, reply: Reply) -> None:
        """The reply to the copy number `order`."""
        self._replies[order] = reply
        self._missing -= 1

    @property
    def is_complete(self) -> bool:
        """Whether all replies are there."""
        return not self._missing

    def reply(self) -> Reply:
        """The one reply to the produce."""
        request = self.call.request
        ids: list[int] = []
        refused: Reply | None = None
        for reply in self._replies:
            assert reply is not None
            if reply.code != Code.OK:
                refused = refused or reply
            elif reply.msg_ids is not None:
                ids += reply.msg_ids
            elif reply.msg_id is not None:
                ids.append(reply.msg_id)
        gathered = Reply(action=request.action, code=Code.OK, queue=request.queue, seq=request.seq)
        if refused is not None:
            gathered.code = refused.code
            gathered.error = refused.error
            gathered.reason = f"queue {refused.queue!r}: {refused.reason}; {len(ids)} of the copies are stored"
        gathered.msg_ids = ids
        gathered.msg_id = ids[0] if ids else None
        return gathered


class Router(LoopActor):
    """Hands requests to the queue owner. `virtual_queues` maps a name to the real queues' names."""

    def __init__(self, runtime: Runtime, owner: "pykka.ActorRef[Any]", virtual_queues: dict[str, list[str]]) -> None:
        super().__init__(runtime)
        self._owner = owner
        self._virtual_queues = virtual_queues

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        if isinstance(message, Execute):
            if self._virtual_queues:
                self._split(message)
            else:
                self._owner.tell(message)
        elif isinstance(message, Answered):
            self._gather(message)
        elif isinstance(message, Reconfigure):
            self._virtual_queues = message.limits
        elif isinstance(message, ClientGone | Stop):
            self._owner.tell(message)
        else:
            raise TypeError(message)

    def _split(self, message: Execute) -> None:
        calls: list[Call] = []
        refused: list[Answer] = []
        for call in message.calls:
            request = call.request
            queues = self._virtual_queues.get(request.queue or "")
            if queues is None:
                named = [request.dead_letter] if isinstance(request.dead_letter, str) else request.queues or []
                virtual = [name for name in named if name in self._virtual_queues]
                if virtual:
                    reason = f"{virtual[0]!r} is a virtual queue: it only takes produce"
                    refused.append((call, refusal(request, ErrorWord.NOT_SUPPORTED, reason)))
                else:
                    calls.append(call)
            elif request.action != Action.PRODUCE:
                reason = f"{request.queue!r} is a virtual queue: it only takes produce, for {', '.join(queues)}"
                refused.append((call, refusal(request, ErrorWord.NOT_SUPPORTED, reason)))
            else:
                gather = Gather(call, len(queues))
                for order, name in enumerate(queues):
                    copy = msgspec.structs.replace(request, queue=name)
                    calls.append(Call(copy, gather, order, self.actor_ref))
        for answer in refused:
            answer[0].reply_to.tell(Answered([answer]))
        if calls:
            self._owner.tell(Execute(calls))

    def _gather(self, message: Answered) -> None:
        for call, reply in message.answers:
            gather = call.client
            assert isinstance(gather, Gather)
            gather.answer(call.order, reply)
            if gather.is_complete:
                gather.call.reply_to.tell(Answered([(gather.call, gather.reply())]))
