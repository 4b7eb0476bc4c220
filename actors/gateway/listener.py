"""Listener: the clients. Gathers what one turn of the loop read into one message, and takes replies back to them.

Bounds: how many clients there may be (some places are kept for those on this machine), how many requests may be open in
all, how many bytes clients may make this worker hold (`HeldBytes`), how many datagrams' consumers wait, and by
sweeping, all that is of time. A limit that is reached is logged once, and again when it was not reached for a while.
Its sockets are opened and closed by the composition root; it only ever sees connections.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from actors.gateway.access import AccessTable
from actors.gateway.auditing import is_audited
from actors.gateway.client_identities import ClientIdentities, address_of
from actors.gateway.client_moves import MovingClients
from actors.gateway.listener_limits import Datagrams, ListenerLimits, Move, ReachedLimits, Room, TurnedAway
from actors.gateway.reception import OwnSettings
from actors.gateway.turns import Rests, Turns
from actors.messages.call import Answer, Call
from actors.messages.calls import Answered, ClientGone, Execute, RefusedForwarded, RightsChanged, StrangersForwarded
from actors.messages.lifecycle import AccessChanged, EndWaits, MoveClient, Reconfigure, Stop, Stopped
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToAuditor, ToListener, ToRouter
from actors.messages.measures import ClientCounts, bucket_of
from actors.messages.rights import not_allowed
from actors.runtime.contract import Runtime
from actors.runtime.loop_actor import LoopActor
from net.clients.connection import Connection
from net.clients.reading_turn import ReadingTurn
from net.clients.reply_order import UNORDERED
from net.clients.udp import DatagramClient
from net.protocols import REDIRECTED, spoken
from net.sockets import is_loopback
from quorate.authentication import NotAllowedReply
from quorate.protocol import ErrorWord, Reply, Request, refusal

log = logging.getLogger("quorate.clients")

SWEEP_S: Final = 1.0
GRACE_S: Final = 0.3
"""How long a node that stops still answers that it does: a client that asks then knows that nothing was done."""

ROOM: Final = 0.9
"""So much of the places may be taken when clients of other workers come."""

NEWCOMERS: Final = 16
"""Behind so many clients that have come a turn is begun."""

MAY_HAVE_CHANGED: Final = frozenset({None, ErrorWord.UNKNOWN_OUTCOME})
"""The errors of what is written down as done: what was refused has changed nothing."""

LIMITS_REACHED: Final = frozenset({ErrorWord.LIMIT, ErrorWord.OVERLOADED})


class Listener(LoopActor[ToListener]):
    """Serves clients; a `Sink` for their connections. `on_stopped` is called when the last reply has been written.

    `move`: see `Move`. `access`: who may do what. `auditor` writes down who did; `counts`: what others are to
    know of its clients; `settings` are the node's. `expects_clients`: when it stops some are still being taken in.
    """

    def __init__(
        self,
        runtime: Runtime,
        router: Mailbox[ToRouter],
        limits: ListenerLimits,
        on_stopped: Callable[[], None] = lambda: None,
        *,
        move: Move = lambda connection, shard: False,
        access: AccessTable | None = None,
        auditor: Mailbox[ToAuditor] | None = None,
        counts: ClientCounts | None = None,
        settings: OwnSettings | None = None,
    ) -> None:
        super().__init__(runtime)
        self._itself: Any = self._actor_ref  # compiled code takes an attribute of pykka's from a dict
        self._identities = ClientIdentities(runtime, access or AccessTable(), auditor)
        self._identities.reception.attach(self._end_waits, settings)
        self._moving = MovingClients(move)
        self._router = router
        self._on_stopped = on_stopped
        self.limits = limits
        self._connections: dict[Connection, None] = {}  # a set would make its order differ from run to run
        self.turned_away = TurnedAway(runtime)
        self.counts = ClientCounts() if counts is None else counts
        self.room = Room(limits.held_bytes_max, self._connections, ReachedLimits(log, self.counts))
        self.counts.traffic = self.room.held
        self._turns = Turns(runtime, ReadingTurn(runtime.monotonic_clock, lambda: runtime.wake(self), self.room.held))
        self._datagrams = Datagrams(self.room.account(), self.room.reached)
        self._gathered: list[Call] = []
        self._is_stopping = self.expects_clients = False
        self.handlers = {
            Answered: lambda m: self._answer(m.answers),
            Reconfigure: self._reconfigure,
            Stop: self._stop_asked,
            Stopped: self._stopped,
            MoveClient: self._move_client,
            AccessChanged: self._access_changed,
            RefusedForwarded: lambda m: self._identities.note_forwarded(m.node_id, m.refused),
            EndWaits: lambda m: self._end_waits(),
            StrangersForwarded: lambda m: self.turn.charge(m.count),
        }

    def on_start(self) -> None:
        """Begin to sweep."""
        self.runtime.call_later(SWEEP_S, self._sweep)

    # -- the sink ----------------------------------------------------------------------------------------------

    @property
    def turn(self) -> ReadingTurn:
        """How much all clients are heard in one turn of the loop."""
        return self._turns.turn

    @property
    def strangers(self) -> Rests:
        """Who sees to it that strangers take no more time than they have."""
        return self._turns.rests

    def admit(self, connection: Connection, address: Any = None, names: tuple[str, ...] = ()) -> str | None:
        """Why a new client, whose certificate has those `names`, can't be served; None if it is."""
        self._identities.connected(connection, address, names)
        self.counts.connections_begun += 1
        if not self.counts.connections_begun % NEWCOMERS and not self.turn.is_begun:
            self.turn.begin()  # with which the garbage collector is asked: they may ask for nothing
        allowed = self.limits.connections_max
        if not self._identities.has_place(connection, len(self._connections), allowed):
            self.room.reached.note("max_connections", f"{allowed} clients are connected")
            self.turned_away.no_place(connection)
            return f"{allowed} clients are connected already"
        self._connections[connection] = None
        self.counts.connections = len(self._connections)
        return None

    def admit_moved(self, connection: Connection, address: Any, name: str, proof: str) -> str | None:
        """Take in a client that another worker of this node has let in, and knew by that name for that `proof`.

        It is not turned away now: see `has_room`.
        """
        self._identities.moved_in(connection, address, name, proof)
        self._connections[connection] = None
        self.counts.connections = len(self._connections)
        return None

    @property
    def has_room(self) -> bool:
        """Whether clients of other workers may come; some places are left for those that are on their way."""
        return len(self._connections) < self.limits.connections_max * ROOM

    def received(self, connection: Connection, order: int, request: Request) -> None:
        """Send a client's request on, with all others of this turn."""
        counts = self.counts.by_action.get(request.action, self.counts.other)
        if counts.is_clients:
            self._hand_over()
            self.counts.answered(request.action, self._identities.asked(connection, order, request))
            if connection.account.is_known:
                self.strangers.is_known(connection)
            return
        if self._identities.is_refused(connection, order, request):
            return
        call = Call(request, connection, order, self._itself, principal=connection.principal)
        call.counts = counts
        self._gather(call)

    def _gather(self, call: Call) -> None:
        """With all others of this turn; for those that are not read in it one begins."""
        turn = self.turn
        if not turn.is_begun:
            turn.begin()
        call.read_at = turn.begun_at
        self._gathered.append(call)

    def received_datagram(self, client: DatagramClient, request: Request) -> None:
        """Send a datagram's request on."""
        identities, host = self._identities, client.address[0]
        principal = identities.datagrams_near if is_loopback(host) else identities.datagrams_far
        size = client.reply_bytes_max
        call = Call(request, client, UNORDERED, self._actor_ref, size, is_single=True, principal=principal)
        refused = self._datagrams.refused(client, request, self.limits)
        if refused is not None:
            client.answer(UNORDERED, request, refused)
            return
        self._gather(call)

    def ended(self, connection: Connection) -> None:
        """Keep no message waiting for a client that asks nothing more."""
        self._hand_over()
        self._router.tell(ClientGone(connection))

    def _end_waits(self) -> None:
        """Those clients wait for nothing any more whose protocol tells them why."""
        for connection in list(self._connections):
            if spoken(connection.protocol) not in REDIRECTED:
                self._router.tell(ClientGone(connection))

    def closed(self, connection: Connection) -> None:
        """Forget a client that is gone."""
        self.turned_away.closed(connection)
        self._moving.closed(connection)
        self.strangers.closed(connection)
        self._identities.disconnected(connection)
        if connection in self._connections:
            del self._connections[connection]
            self.counts.connections = len(self._connections)
            self.ended(connection)

    def broken(self, connection: Connection, error: Exception) -> None:
        """Let whoever made its session raise pay, and nobody else."""
        self.turned_away.broke(connection.identity.address, error)

    def broken_datagram(self, client: DatagramClient, error: Exception) -> None:
        """Let a datagram's session that has raised harm nobody else."""
        self.turned_away.broke(f"{client.address[0]} (UDP)", error)

    # -- clients that move to another worker ---------------------------------------------------------------------

    def _move_client(self, message: MoveClient) -> None:
        connection = message.client
        if connection in self._connections and not self._is_stopping:
            self._moving.begin(connection, message.shard)

    def cut(self, connection: Connection, *, may_have_token: bool = False) -> None:
        """Hear others first, and then go on with it."""
        self._turns.cut(connection, may_have_token=may_have_token)

    def settled(self, connection: Connection) -> None:
        """Send first what was answered."""
        self.runtime.call_later(0.0, lambda: self._go_on_moving(connection))

    def _go_on_moving(self, connection: Connection) -> None:
        if not self._is_stopping:
            self._moving.go_on(connection)

    # -- the actor ---------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Hand over what was read, then what the inbox holds."""
        self.turn.end()
        self._hand_over()
        super().take_turn()
        if self.turn.is_begun:  # replies have made room for more of their clients' requests
            self.turn.end()
            self._hand_over()

    def _reconfigure(self, message: Reconfigure) -> None:
        self.limits = message.limits
        self.room.held.bytes_max = self.limits.held_bytes_max

    def _stop_asked(self, message: Stop) -> None:
        self._hand_over()
        self._is_stopping = True
        self._router.tell(Stop(self.actor_ref))

    def _stopped(self, message: Stopped) -> None:
        self.runtime.call_later(GRACE_S if self._connections or self.expects_clients else 0.0, self._close_all)

    def _hand_over(self) -> None:
        calls = self._gathered
        if not calls:
            return
        self._gathered = []
        counts = self.counts
        counts.requests += len(calls)
        counts.open_requests += len(calls)
        if self._is_stopping:
            self._answer([(call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping")) for call in calls])
        elif counts.open_requests > self.limits.requests_max:
            self.room.reached.note("max_open_requests", f"{self.limits.requests_max} requests are open")
            reason = f"{self.limits.requests_max} requests are open already"
            self._answer([(call, refusal(call.request, ErrorWord.OVERLOADED, reason)) for call in calls])
        else:
            calls = self._allowed(calls)
            if calls:
                self._router.tell(Execute(calls))

    def _allowed(self, calls: list[Call]) -> list[Call]:
        """Those of the calls whose clients have the rights that they need; the others are refused."""
        refused: list[Answer] = []
        for call in calls:
            rights = call.principal.rights
            missing = None if rights.is_unlimited else rights.missing(call.request)
            if missing is not None:
                refused.append((call, not_allowed(call.request, missing, call.principal.name)))
        if refused:
            gone = {id(call) for call, _ in refused}
            calls = [call for call in calls if id(call) not in gone]
            self._answer(refused)
        return calls

    def _access_changed(self, message: AccessChanged) -> None:
        """Who waits for what he may not have any more is told so."""
        self._hand_over()
        for client, principal in self._identities.changed(
            message.table, list(self._connections), self._datagrams.waiting
        ):
            self._router.tell(RightsChanged(client, principal))

    def _answer(self, answers: list[Answer]) -> None:
        counts = self.counts
        counts.open_requests -= len(answers)
        now = self.runtime.monotonic()
        read_at, took_s, bucket = -1.0, 0.0, 0
        for call, reply in answers:
            client, request = call.client, call.request
            error = reply.error
            row = call.counts
            if row is None:
                row = counts.by_action.get(request.action, counts.other)
            if error is None:
                row.done += 1
            else:
                row.refuse(error)
            if not (row.may_wait and request.wait):
                if call.read_at != read_at:  # of all that one turn has read it is the same
                    read_at = call.read_at
                    took_s = now - read_at
                    bucket = bucket_of(took_s)
                row.seconds.add(bucket, took_s)
            if isinstance(client, Connection):
                if client.account.is_known:
                    client.answer(call.order, request, reply)
                else:
                    self.strangers.answer(client, call, reply)
            else:
                if isinstance(client, DatagramClient):
                    self._datagrams.answered(client, call)
                client.answer(call.order, request, reply)
            if error is not None:
                self._refused(call, reply)
            if row.is_audited and is_audited(request) and error in MAY_HAVE_CHANGED:
                self._identities.note([(call, address_of(client), None)], error)

    def _refused(self, call: Call, reply: Reply) -> None:
        if isinstance(reply, NotAllowedReply):
            self._identities.note([(call, address_of(call.client), reply.right)])
        elif reply.error in LIMITS_REACHED:
            self.room.reached.note(reply.reason or "", reply.reason or "", reply.error)

    def _sweep(self) -> None:
        for connection in list(self._connections):
            connection.sweep(SWEEP_S)
        self._identities.say_left_out()
        self.room.reached.sweep()
        self.runtime.call_later(SWEEP_S, self._sweep)

    def _close_all(self) -> None:
        for connection in list(self._connections):
            connection.close_when_answered()
        self._on_stopped()
