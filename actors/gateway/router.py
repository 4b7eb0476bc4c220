"""Router: which shard does a request, and where. One a worker; the door between its clients and all shards.

| part | what it has |
|---|---|
| `Routing`, a shard each | where that shard's requests go: to this worker's owner, to another worker, to another node |
| `ScatterGather` | requests that are done in parts: over several shards, or by several queues |
| `Asked` | what this worker's clients want of others, on its way there |
| `Serving` | what others forward to this worker's own shard |

A request for the own shard of a node that leads it passes as it came; the answer goes to its client's Listener. Other
workers and nodes are known by numbers (`actors.messages.peers`), each of which leads to one shard.
"""

from typing import Any, Final

import msgspec

from actors.gateway.access import AccessTable
from actors.gateway.client_moves import MOVE_AFTER, ClientMoves
from actors.gateway.finishing import Finishing
from actors.gateway.gathers import PartedCall
from actors.gateway.removal import Removal
from actors.gateway.routing import Routed, Routing
from actors.gateway.scatter_gather import Parted, ScatterGather
from actors.gateway.serving import Serving
from actors.gateway.sharding import OF_WAITS, SEVERAL, Sharding
from actors.gateway.under_way import FORWARD_BYTES, Asked, ForwardedClient, Voice
from actors.gateway.virtual_queues import VirtualQueues
from actors.messages.answering import send_answers
from actors.messages.call import Answer, Call, Client, is_strangers, note_late
from actors.messages.calls import Answered, ClientGone, Execute, Returned, RightsChanged, StrangersForwarded
from actors.messages.lifecycle import AccessChanged, EndWaits, MoveClient, Reconfigure, ShardFaults, Stop
from actors.messages.log import Drain, Undrain
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToLinks, ToListener, ToQueueOwner, ToRouter
from actors.messages.peers import (
    LeaderChanged,
    NodeRemoved,
    PeerBehind,
    PeerDown,
    PeerSaid,
    PeerUnheard,
    PeerUp,
    shard_of,
    worker_key,
)
from actors.runtime.contract import Runtime, Timer
from actors.runtime.loop_actor import LoopActor
from net.peers.forwarding import unpacked_reply
from net.peers.messages import (
    KNOWS_HALF_CLOSED,
    ClientHalfClosed,
    ClientLeft,
    Forward,
    ForwardAnswers,
    ForwardReturned,
    StillHere,
    StillThere,
)
from quorate.actions import WAITS
from quorate.protocol import Action, ErrorWord, Reply, refusal

NAMES_ANOTHER: Final = frozenset({int(Action.MOVE), int(Action.CONFIGURE), int(Action.TRANSACTION)})
"""Actions that may name a queue beside theirs (see `goes_to`), or in their operations."""

ARM_MIN_S: Final = 0.02
"""Held calls are looked at not more often than this: there may be very many."""


class Router(LoopActor[ToRouter]):
    """`routings`: one for each shard, by its number; `owner` has that of this worker, `sharding.own`.

    `forward_bytes`: see `FORWARD_BYTES`. `access`: by which it judges what other nodes forward.
    """

    def __init__(
        self,
        runtime: Runtime,
        owner: Mailbox[ToQueueOwner],
        sharding: Sharding,
        routings: list[Routing],
        virtual_queues: dict[str, list[str]],
        *,
        forward_bytes: int = FORWARD_BYTES,
        access: AccessTable | None = None,
        move_after: int = MOVE_AFTER,
    ) -> None:
        super().__init__(runtime)
        self._owner = owner
        self._sharding = sharding
        self._routings = routings
        self._own = routings[sharding.own]
        self._virtual_queues = VirtualQueues(virtual_queues)
        self._moves = ClientMoves(move_after)
        self._parts = ScatterGather(sharding, self.actor_ref)
        self._voice = Voice()
        self._asked = Asked(runtime, self._voice, forward_bytes)
        self._serving = Serving(
            runtime, self._voice, owner, self._own, self.actor_ref, access=access, forward_bytes=forward_bytes
        )
        self._listener: Mailbox[ToListener] | None = None
        self._timer: Timer | None = None
        self._know_half_closed: set[int] = set()
        self._finishing = Finishing(runtime, owner, self._own, self._serving, self._say_left)
        self.handlers = {
            Execute: self._execute,
            Answered: self._answered,
            PeerSaid: self._peer_said,
            Returned: self._returned,
            LeaderChanged: self._leader_changed,
            PeerUp: self._linked,
            PeerBehind: self._serving.behind,
            PeerUnheard: self._unheard,
            PeerDown: self._link_lost,
            Drain: self._drain,
            Undrain: self._undrain,
            EndWaits: self._end_waits,
            Reconfigure: lambda m: self._virtual_queues.become(m.limits),
            AccessChanged: lambda m: self._serving.access_changed(m.table),
            ShardFaults: lambda m: self._parts.know_faults(m.faults),
            ClientGone: self._client_gone,
            RightsChanged: self._rejudge,
            NodeRemoved: lambda m: self._removal.told(m),
            Stop: self._stop_asked,
        }
        self._removal = Removal()

    def attach(self, links: Mailbox[ToLinks]) -> None:
        """Whom it tells: who has the links to nodes, and to this node's other workers. Before any message."""
        self._voice.links = links

    def serve(self, listener: Mailbox[ToListener]) -> None:
        """Know the Listener of this worker, which is made when all others are. Before any message."""
        self._listener = self._serving.listener = listener

    def on_receive(self, message: Any) -> None:
        """Dispatch; a node that stops goes on with that as soon as nothing is open here."""
        self.handlers[type(message)](message)
        if self._finishing.is_on:
            self._finishing.look()

    def _now(self) -> float:
        return self.runtime.monotonic()

    def _routing_to(self, key: int) -> Routing:
        """Find the Routing of the shard which that node or worker is asked about."""
        return self._own if key > 0 else self._routings[shard_of(key)]

    def on_stop(self) -> None:
        """Nobody is told anything any more."""
        self._voice.has_ended = True

    # -- requests of this worker's clients ---------------------------------------------------------------------

    def _execute(self, message: Execute) -> None:
        if self.runtime.stood_still():
            note_late(message.calls)
        if self._removal.by:
            message = Execute(self._removal.without_refused(message.calls))
        names = self._virtual_queues.names
        if names and may_name(names, message.calls):
            calls, refused = self._virtual_queues.split(message.calls, self.actor_ref)
            send_answers(refused)
            if len(self._routings) > 1:
                for call in calls:
                    call.is_part = isinstance(call.client, PartedCall)
            message = Execute(calls)
        if len(self._routings) == 1:
            self._route(0, message.calls, message)
            return
        by_shard: dict[int, list[Call]] = {}
        shard_of_call, own, now = self._sharding.shard_of, self._sharding.own, self._now()
        for call in message.calls:
            shard = shard_of_call(call.request)
            if shard == SEVERAL and call.request.action in OF_WAITS:
                for at, calls in by_shard.items():  # what it ends may be among them
                    self._route(at, calls)
                by_shard.clear()
                self._cancel(now, call)
                continue
            if shard == SEVERAL:
                parted = self._parts.scatter(now, call)
                for at, part in parted.asks:  # with what else is asked in this turn
                    by_shard.setdefault(at, []).append(part)
                send_answers(parted.answers)
                continue
            by_shard.setdefault(shard, []).append(call)
            if shard != own:
                if self._moves.asked_by(call.client, shard) and self._listener is not None:
                    self._listener.tell(MoveClient(call.client, shard))
            elif (affinity := getattr(call.client, "affinity", None)) is not None:
                affinity.count = 0
        for shard, calls in by_shard.items():
            self._route(shard, calls)

    def _cancel(self, now: float, call: Call) -> None:
        """End a search, or what waits in one shard: the one that is under way, or else this worker's own."""
        parted = self._parts.cancel(now, call)
        if parted is not None:
            self._do_parts(parted)
            return
        client, seq = call.client, call.request.seq
        at = next((at for at, one in enumerate(self._routings) if one.waits(client, seq)), self._sharding.own)
        self._route(at, [call])

    def _route(self, shard: int, calls: list[Call], message: Execute | None = None) -> None:
        """`message`: it has just these calls."""
        routing = self._routings[shard]
        if routing is self._own and routing.is_direct:
            if calls:
                self._owner.tell(message or Execute(calls))
        else:
            self._do(routing.route(self._now(), calls))

    def _do_parts(self, parted: Parted) -> None:
        """Ask what is to be asked, then let go of what is not wanted any more, and answer what is done."""
        by_shard: dict[int, list[Call]] = {}
        for shard, call in parted.asks:
            by_shard.setdefault(shard, []).append(call)
        for shard, calls in by_shard.items():
            self._route(shard, calls)
        for client, shard in parted.let_go:
            self._forget(client, shard)
        send_answers(parted.answers)

    def _do(self, routed: Routed) -> None:
        if routed.own:
            self._owner.tell(Execute(routed.own))
        if routed.forwards:
            self._asked.forward(routed.forwards)
            strangers = sum([is_strangers(one.call) for one in routed.forwards])
            if strangers and self._listener is not None:
                self._listener.tell(StrangersForwarded(strangers))
        send_answers(routed.answers)
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and any(routing.has_open for routing in self._routings):
            next_at = min(routing.next_at for routing in self._routings)
            self._timer = self.runtime.call_later(min(max(next_at - self._now(), ARM_MIN_S), 0.25), self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self.has_ended:
            for routing in self._routings:
                self._do(routing.tick(self._now()))
            if self._finishing.is_on:
                self._finishing.look()

    def _returned(self, message: Returned) -> None:
        """Route again those of our calls that the owner did not do."""
        self._own.returned(self._now(), self._serving.take_returned(message.calls))
        self._arm()

    def _answered(self, message: Answered) -> None:
        """Of parts of requests, and of calls that other nodes and workers forwarded."""
        parts = self._serving.take_answers(message.answers)
        if parts:
            self._do_parts(self._parts.answered(self._now(), parts, is_stopping=self._finishing.is_on))

    # -- clients -----------------------------------------------------------------------------------------------

    def _client_gone(self, message: ClientGone) -> None:
        client = message.client
        self._do_parts(self._parts.client_gone(self._now(), client))
        for shard in range(len(self._routings)):
            self._forget(client, shard)

    def _forget(self, client: Client, shard: int) -> None:
        """Let the clients want nothing more of the shard."""
        routing = self._routings[shard]
        send_answers(routing.forget(client))
        under_way = routing.under_way
        if client.is_gone:
            self._say_left(under_way.client_gone(client), is_gone=True)
        else:
            self._say_left(under_way.known(client))
        if routing is self._own:
            self._owner.tell(ClientGone(client))

    def _say_left(self, left: list[ForwardedClient], *, is_gone: bool = False) -> None:
        """End what waits elsewhere for clients that others know by these numbers. `is_gone`: they read nothing more.

        What they asked before leaves first: behind the word of their leaving, a consume would wait for nobody and take
        a message.
        """
        if left:
            self._asked.send()
        for one in left:
            knows = one.node_id in self._know_half_closed
            leaves = ClientLeft(one.number) if is_gone or not knows else ClientHalfClosed(one.number)
            self._voice.say(one.node_id, leaves)

    def _rejudge(self, message: RightsChanged) -> None:
        """Judge what is with this worker's owner by its table; the leader of another node goes by its own."""
        parted, seekings = self._parts.rejudged(self._now(), message.client, message.principal)
        self._do_parts(parted)
        for client in (*seekings, message.client):
            for routing in self._routings:
                self._say_left(routing.rejudged(client, message.principal))
            self._owner.tell(RightsChanged(client, message.principal))

    # -- leading, draining, stopping ---------------------------------------------------------------------------

    def _leader_changed(self, message: LeaderChanged) -> None:
        routing = self._routings[message.shard]
        if routing is self._own and self._removal.by:
            self._removal.leader_changed(message)
        if routing is self._own and not message.is_self:
            self._serving.forget_all()
        self._do(routing.leader_changed(self._now(), message))
        by_shard = enumerate(self._routings)
        self._moves.led_here = frozenset(shard for shard, one in by_shard if one.leader == worker_key(shard))

    def _drain(self, message: Drain) -> None:
        self._own.drain()
        self._owner.tell(message)

    def _end_waits(self, message: EndWaits) -> None:
        for routing in self._routings:
            routing.end_waits(ErrorWord.LEAVING if message.is_leaving else "")
        if self._listener is not None and message.is_leaving:
            self._listener.tell(message)

    def _undrain(self, message: Undrain) -> None:
        self._owner.tell(message)
        self._do(self._own.undrain(self._now()))

    def _stop_asked(self, message: Stop) -> None:
        self._finishing.is_on = True
        for routing in self._routings:
            routing.end_waits(ErrorWord.STOPPING)
        self._do_parts(self._parts.stop(self._now()))
        self._finishing.begin(message, [routing for routing in self._routings if routing is not self._own])

    # -- links -------------------------------------------------------------------------------------------------

    def _linked(self, message: PeerUp) -> None:
        if message.hello.minor >= KNOWS_HALF_CLOSED:
            self._know_half_closed.add(message.node_id)
        else:
            self._know_half_closed.discard(message.node_id)
        self._do(self._routing_to(message.node_id).linked(self._now(), message.node_id, message.hello.level))

    def _link_lost(self, message: PeerDown) -> None:
        key, now = message.node_id, self._now()
        routing = self._routing_to(key)
        routing.came_back(now, key, self._asked.take_back(key))
        routing.link_lost(now, key, message.last_serial)
        self._serving.forget(key)
        self._do(routing.tick(now))

    def _unheard(self, message: PeerUnheard) -> None:
        """Note that what that node said last may be lost, and so may its answers to what was forwarded to it."""
        key, now = message.node_id, self._now()
        routing = self._routing_to(key)
        self._serving.forget(key)
        routing.came_back(now, key, self._asked.take_back(key))
        routing.link_lost(now, key)
        self._do(routing.tick(now))

    # -- other nodes and workers -------------------------------------------------------------------------------

    def _peer_said(self, said: PeerSaid) -> None:
        message, key = said.message, said.node_id
        if isinstance(message, (ForwardAnswers, ForwardReturned)) and message.session not in (0, self._asked.session):
            return  # it is about requests of an earlier life of this node, whose numbers begin anew
        if isinstance(message, (Forward, StillHere, ClientLeft, ClientHalfClosed)):
            self._serving.said(key, message)
        elif isinstance(message, ForwardAnswers):
            self._answers_came(key, message)
        elif isinstance(message, ForwardReturned):
            routing = self._routing_to(key)
            routing.came_back(self._now(), key, message.serials)
            if self._finishing.is_on:
                self._finishing.refuse_held(routing)  # who gave it back may be stopping, too
            if routing.under_way.has_credit:
                self._do(routing.credit_again(self._now()))
            self._arm()
        elif isinstance(message, StillThere):
            here = self._routing_to(key).under_way.still_there(self._now(), key, message.serials)
            if here:
                self._voice.say(key, StillHere(here, message.session))
        else:
            raise TypeError(message)

    def _answers_came(self, key: int, message: ForwardAnswers) -> None:
        self._asked.answered(len(message.answers))
        try:
            replies = [(serial, unpacked_reply(packed)) for serial, packed in message.answers]
        except (msgspec.DecodeError, ValueError, RecursionError, TypeError) as error:
            self._voice.cut(key, f"an answer that is none: {error}")
            return
        routing = self._routing_to(key)
        answers: list[Answer] = []
        for serial, reply in replies:
            answers += routing.under_way.answered(key, serial, reply)
        send_answers([_as_stopping(*answer) for answer in answers] if self._finishing.is_on else answers)
        if routing.under_way.has_credit:
            self._do(routing.credit_again(self._now()))


def _as_stopping(call: Call, reply: Reply) -> Answer:
    """Let a consumer go on elsewhere that this node has called back since it stops: it has not waited in vain."""
    is_empty = reply.code == 0 and reply.msg_id is None and not (reply.count or getattr(reply, "messages", None))
    if call.request.action == Action.SHOW:
        is_empty = reply.error == ErrorWord.NO_SUCH_MESSAGE
    if call.request.wait and call.request.action in WAITS and is_empty:
        return call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping")
    return call, reply


def may_name(names: dict[str, list[str]], calls: list[Call]) -> bool:
    """Whether one of the calls may be about one of these virtual queues: `VirtualQueues` looks then, interpreted."""
    for call in calls:
        request = call.request
        queue = request.queue
        if (queue is not None and queue in names) or request.queues is not None or request.action in NAMES_ANOTHER:
            return True
        if request.topic is not None and request.topic in names:
            return True
    return False
