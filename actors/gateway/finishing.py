"""Finishing: how a Router stops. First what others do for this worker's clients is finished, and others are served on;
then its own shard is. A part of the Router.
"""

from collections.abc import Callable
from typing import Final

from actors.gateway.routing import Routing
from actors.gateway.serving import Serving
from actors.gateway.under_way import ForwardedClient
from actors.messages.answering import send_answers
from actors.messages.lifecycle import Stop
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToQueueOwner
from actors.runtime.contract import Runtime
from quorate.protocol import ErrorWord, refusal

LAST_ANSWERS_S: Final = 1.0
"""How long a node that stops waits for the answers to what it has forwarded."""


class Finishing:
    """Of one Router; `own` is its worker's shard, and `say_left` tells others whom they need not keep for it.

    `is_on`: the node stops.
    """

    def __init__(
        self,
        runtime: Runtime,
        owner: Mailbox[ToQueueOwner],
        own: Routing,
        serving: Serving,
        say_left: Callable[[list[ForwardedClient]], None],
    ) -> None:
        self.is_on = False
        self._runtime = runtime
        self._owner = owner
        self._own = own
        self._serving = serving
        self._say_left = say_left
        self._stopping: Stop | None = None
        self._routings: list[Routing] = []

    def begin(self, stopping: Stop, others: list[Routing]) -> None:
        """With the `others`; the own one is last."""
        self.is_on = True
        self._stopping = stopping
        self._finish(others)

    def _finish(self, routings: list[Routing]) -> None:
        """No consumer waits there any more; what is open there is answered, or is given up in a while."""
        self._routings = routings
        for routing in routings:
            self._say_left(routing.under_way.clients)
        self._runtime.call_later(LAST_ANSWERS_S, lambda: self._finished(routings))

    def look(self) -> None:
        """Go on as soon as nothing is open there."""
        if self._stopping is not None and not any(routing.has_open for routing in self._routings):
            self._finished(self._routings)

    def _finished(self, routings: list[Routing]) -> None:
        """Nothing waits there for another node or worker any more, or it has waited for too long."""
        if routings is not self._routings or self._stopping is None:
            return
        for routing in routings:
            self.refuse_held(routing)
        if not self._serving.is_stopping:
            self._serving.is_stopping = True
            self._finish([self._own])
            self.look()
            return
        stopping, self._stopping = self._stopping, None
        self._owner.tell(stopping)

    def refuse_held(self, routing: Routing) -> None:
        """There is no time to ask again."""
        held = routing.take_held()
        send_answers([(call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping")) for call in held])
