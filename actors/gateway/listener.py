"""Listener: the clients. Gathers what one turn of the loop read into one message, and takes replies back to them.

Bounds: how many clients there may be, how many requests may be open in all, and by sweeping, all that is of time.
Its sockets are opened and closed by the composition root; it only ever sees connections.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pykka

from actors.messages.calls import Answer, Answered, Call, ClientGone, Execute
from actors.messages.lifecycle import Reconfigure, Stop, Stopped
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.clients.connection import AT_ONCE, Connection, ConnectionLimits
from net.clients.udp import REPLY_BYTES_MAX, DatagramClient
from quorate.protocol import ErrorWord, Request, StatusReply, refusal

SWEEP_S: Final = 1.0
GRACE_S: Final = 0.3
"""How long a node that stops still answers that it does: a client that asks then knows that nothing was done."""


@dataclass
class ListenerLimits:
    """Counts; `connection` holds those of one client."""

    connections_max: int = 10_000
    requests_max: int = 100_000
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


class Listener(LoopActor):
    """Serves clients; a `Sink` for their connections. `on_stopped` is called when the last reply has been written."""

    def __init__(
        self,
        runtime: Runtime,
        router: "pykka.ActorRef[Any]",
        limits: ListenerLimits,
        on_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(runtime)
        self._router = router
        self._on_stopped = on_stopped
        self.limits = limits
        self._connections: dict[Connection, None] = {}  # a set would make its order differ from run to run
        self._gathered: list[Call] = []
        self._open = 0
        self._is_stopping = False
        self._requests = 0
        self._started_at = runtime.monotonic()

    def on_start(self) -> None:
        """Begin to sweep."""
        self.runtime.call_later(SWEEP_S, self._sweep)

    # -- the sink ----------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Why a new client can't be served; None if it is."""
        if len(self._connections) >= self.limits.connections_max:
            return f"{self.limits.connections_max} clients are connected already"
        self._connections[connection] = None
        return None

    def received(self, connection: Connection, order: int, request: Request) -> None:
        """A client's request: it leaves with all others of this turn."""
        gathered = self._gathered
        if not gathered:
            self.runtime.wake(self)
        gathered.append(Call(request, connection, order, self._actor_ref))

    def received_datagram(self, client: DatagramClient, request: Request) -> None:
        """A datagram's request."""
        if not self._gathered:
            self.runtime.wake(self)
        self._gathered.append(Call(request, client, AT_ONCE, self._actor_ref, REPLY_BYTES_MAX, is_single=True))

    def ended(self, connection: Connection) -> None:
        """A client that asks nothing more: no message is kept waiting for it."""
        self._hand_over()
        self._router.tell(ClientGone(connection))

    def closed(self, connection: Connection) -> None:
        """A client that is gone."""
        if connection in self._connections:
            del self._connections[connection]
            self.ended(connection)

    # -- the actor ---------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Hand over what was read, then what the inbox holds."""
        self._hand_over()
        super().take_turn()

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        if isinstance(message, Answered):
            self._answer(message.answers)
        elif isinstance(message, Reconfigure):
            self.limits = message.limits
        elif isinstance(message, Stop):
            self._hand_over()
            self._is_stopping = True
            self._router.tell(Stop(self.actor_ref))
        elif isinstance(message, Stopped):
            self.runtime.call_later(GRACE_S if self._connections else 0.0, self._close_all)
        else:
            raise TypeError(message)

    def _hand_over(self) -> None:
        calls = self._gathered
        if not calls:
            return
        self._gathered = []
        self._requests += len(calls)
        self._open += len(calls)
        if self._is_stopping:
            self._answer([(call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping")) for call in calls])
        elif self._open > self.limits.requests_max:
            reason = f"{self.limits.requests_max} requests are open already"
            self._answer([(call, refusal(call.request, ErrorWord.OVERLOADED, reason)) for call in calls])
        else:
            self._router.tell(Execute(calls))

    def _answer(self, answers: list[Answer]) -> None:
        self._open -= len(answers)
        for call, reply in answers:
            if type(reply) is StatusReply:
                self._complete(reply)
            call.client.answer(call.order, reply)

    def _complete(self, reply: StatusReply) -> None:
        reply.pid, reply.resident_bytes = self.runtime.process()
        reply.connections = len(self._connections)
        reply.requests = self._requests
        reply.uptime_s = round(self.runtime.monotonic() - self._started_at, 3)

    def _sweep(self) -> None:
        for connection in list(self._connections):
            connection.sweep(SWEEP_S)
        self.runtime.call_later(SWEEP_S, self._sweep)

    def _close_all(self) -> None:
        for connection in list(self._connections):
            connection.close_when_answered()
        self._on_stopped()
