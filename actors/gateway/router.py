"""Router: which node does a shard's requests. Hosts the routing machine; splits produces to virtual queues.

Its other half serves what others forward: those calls come from a client that is a node, or a worker of this node, and
go to the owner. A shard that another worker of this node has gets a Router without an owner, which forwards everything.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pykka

from actors.gateway.access import AccessTable
from actors.gateway.remote_clients import RemoteClient
from actors.gateway.routing import Routed, Routing
from actors.gateway.served import Served
from actors.gateway.under_way import Forwarding, call_bytes
from actors.gateway.virtual_queues import Copies, VirtualQueues
from actors.gateway.worker_keys import node_of
from actors.messages.answering import send_answers
from actors.messages.audit import RefusedForwarded
from actors.messages.call import Answer, Call
from actors.messages.calls import Answered, ClientGone, CountsWanted, Execute, Rejudge, Returned
from actors.messages.lifecycle import AccessChanged, Listening, Reconfigure, Stop, Stopped
from actors.messages.log import Drain, Undrain
from actors.messages.peers import CutPeer, LeaderChanged, PeerBehind, PeerDown, PeerSaid, PeerUnheard, PeerUp, SendPeers
from actors.runtime.contract import Runtime, Timer
from actors.runtime.gathering import Gathering
from actors.runtime.loop_actor import LoopActor
from net.peers.forwarding import PackedReply, packed_call, packed_reply, unpacked_reply
from net.peers.messages import (
    ClientLeft,
    Forward,
    ForwardAnswers,
    ForwardedCall,
    ForwardReturned,
    StillHere,
    StillThere,
)
from quorate.actions import WAITS
from quorate.protocol import ErrorWord, Reply, StatusReply, refusal

LAST_ANSWERS_S: Final = 1.0
"""How long a node that stops waits for the answers to what it has forwarded."""

ARM_MIN_S: Final = 0.02
"""Held calls are looked at not more often than this: there may be very many."""

FORWARD_BYTES: Final = 1 << 20
"""What one frame of forwarded calls or answers has at most, or one of them: the cluster's own words wait behind it."""


class Router(LoopActor):
    """Hands requests on. `forward_bytes`: see `FORWARD_BYTES`. `owner` None: the shard is another worker's.

    `access`: by which it judges what other nodes forward.
    """

    def __init__(
        self,
        runtime: Runtime,
        owner: "pykka.ActorRef[Any] | None",
        virtual_queues: dict[str, list[str]],
        routing: Routing,
        forward_bytes: int = FORWARD_BYTES,
        access: AccessTable | None = None,
    ) -> None:
        super().__init__(runtime)
        self._owner = owner
        self._virtual_queues = VirtualQueues(virtual_queues)
        self._machine = routing
        self._forward_bytes = forward_bytes
        self._peers: pykka.ActorRef[Any]
        self._siblings: pykka.ActorRef[Any]
        self._listener: pykka.ActorRef[Any] | None = None
        self._timer: Timer | None = None
        self._stopping: Stop | None = None
        self._is_stopping = False
        self._gathering = Gathering()
        self._is_gathering = False
        self._forwards: dict[int, list[Forwarding]] = {}
        self._session = int(runtime.random() * (1 << 48))
        self._served = Served(runtime, self._say, access, forward_bytes)
        self.handlers = {
            Execute: self._execute,
            Answered: self._answered,
            PeerSaid: self._peer_said,
            Returned: self._returned,
            LeaderChanged: self._leader_changed,
            PeerUp: self._linked,
            PeerBehind: self._served.behind,
            PeerUnheard: self._unheard,
            PeerDown: self._link_lost,
            Drain: self._drain,
            Undrain: self._undrain,
            Reconfigure: self._reconfigure,
            AccessChanged: self._access_changed,
            ClientGone: self._client_gone,
            Rejudge: self._rejudge,
            Listening: self._listening,
            Stop: self._stop_asked,
        }

    def attach(self, peers: "pykka.ActorRef[Any]", siblings: "pykka.ActorRef[Any] | None" = None) -> None:
        """Whom it tells: who has the links to nodes, and to this node's other workers. Before any message."""
        self._peers = peers
        self._siblings = peers if siblings is None else siblings

    def on_receive(self, message: Any) -> None:
        """Dispatch; a node that stops goes on with that as soon as nothing is open here."""
        self.handlers[type(message)](message)
        if self._stopping is not None and not self._machine.has_open:
            self._stop_on()

    def _now(self) -> float:
        return self.runtime.monotonic()

    def _say(self, node_id: int, message: Any) -> None:
        if not self.has_ended:
            (self._peers if node_id > 0 else self._siblings).tell(SendPeers((node_id,), message))

    def _cut(self, node_id: int, reason: str) -> None:
        (self._peers if node_id > 0 else self._siblings).tell(CutPeer(node_id, reason))

    def _tell_owner(self, message: Any) -> None:
        assert self._owner is not None, "without an owner nothing is for this worker"
        self._owner.tell(message)

    def _listening(self, message: Listening) -> None:
        self._listener = message.listener

    # -- leading, draining, stopping ---------------------------------------------------------------------------

    def _leader_changed(self, message: LeaderChanged) -> None:
        if not message.is_self:
            for node_id in self._served.remote.nodes:
                self._forget_remote(node_id)
        self._do(self._machine.leader_changed(self._now(), message))

    def _drain(self, message: Drain) -> None:
        self._machine.drain()
        self._tell_owner(message)

    def _undrain(self, message: Undrain) -> None:
        self._tell_owner(message)
        self._do(self._machine.undrain(self._now()))

    def _reconfigure(self, message: Reconfigure) -> None:
        self._virtual_queues = VirtualQueues(message.limits)

    def _access_changed(self, message: AccessChanged) -> None:
        for client in self._served.remote.changed(message.table):
            self._tell_owner(Rejudge(client, client.principal))

    def _rejudge(self, message: Rejudge) -> None:
        """Here what is with this node's owner; the leader of another node goes by its own table."""
        left = self._machine.rejudged(message.client, message.principal)
        if left is not None:
            self._say(left.node_id, ClientLeft(left.number))
        if self._owner is not None:
            self._owner.tell(message)

    def _stop_asked(self, message: Stop) -> None:
        self._is_stopping = True
        self._send_forwards()
        for one in self._machine.under_way.clients:  # their consumers wait no longer, and are told so
            self._say(one.node_id, ClientLeft(one.number))
        self._stopping = message
        self.runtime.call_later(LAST_ANSWERS_S, self._stop_on)

    def _stop_on(self) -> None:
        """Nothing waits for another node any more, or has waited for too long."""
        if self._stopping is not None:
            held = self._machine.take_held()
            send_answers([(call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping")) for call in held])
            stopping, self._stopping = self._stopping, None
            if self._owner is None:
                stopping.reply_to.tell(Stopped("router"))
            else:
                self._owner.tell(stopping)

    # -- requests of this node's clients -----------------------------------------------------------------------

    def _execute(self, message: Execute) -> None:
        if self._virtual_queues.names:
            calls, refused = self._virtual_queues.split(message.calls, self.actor_ref)
            send_answers(refused)
            if not calls:
                return
            message = Execute(calls)
        owner = self._owner
        if self._machine.is_direct and owner is not None:
            owner.tell(message)
        else:
            self._do(self._machine.route(self._now(), message.calls))

    def _do(self, routed: Routed) -> None:
        if routed.own:
            self._tell_owner(Execute(routed.own))
        if routed.forwards:
            for one in routed.forwards:
                self._forwards.setdefault(one.to, []).append(one)
            if not self._is_gathering:
                self._forward()
        send_answers(routed.answers)
        self._arm()

    def _forward(self) -> None:
        """Send what has gathered, or wait a moment for the clients that were just answered: see `Gathering`."""
        is_near = all(to < 0 and not node_of(to) for to in self._forwards)  # written to in microseconds: no wait
        self._is_gathering = not is_near and not self._gathering.is_over(self._now(), self._unsent_count)
        if self._is_gathering:
            self.runtime.call_later(0.0, self._forward)
        else:
            self._send_forwards()

    @property
    def _unsent_count(self) -> int:
        return sum(map(len, self._forwards.values()))

    def _send_forwards(self) -> None:
        all_forwards, self._forwards = self._forwards, {}
        for to, forwards in all_forwards.items():
            self._send_to(to, forwards)

    def _send_to(self, to: int, forwards: list[Forwarding]) -> None:
        calls: list[ForwardedCall] = []
        size = 0
        for one in forwards:
            packed = packed_call(
                one.serial, one.client, one.call.reply_bytes_max, one.call.request, one.call.principal.name
            )
            grown = call_bytes(one.call)
            if calls and size + grown > self._forward_bytes:
                self._say(to, Forward(self._session, calls))
                calls, size = [], 0
            calls.append(packed)
            size += grown
        if calls:
            self._say(to, Forward(self._session, calls))

    def _arm(self) -> None:
        if self._timer is None and self._machine.has_open:
            delay_s = min(max(self._machine.next_at - self._now(), ARM_MIN_S), 0.25)
            self._timer = self.runtime.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self.has_ended:
            self._do(self._machine.tick(self._now()))
            if self._stopping is not None and not self._machine.has_open:
                self._stop_on()

    def _returned(self, message: Returned) -> None:
        """Calls that the owner did not do: ours are routed again, others' go back to where they came from."""
        ours: list[Call] = []
        others: dict[tuple[int, int], list[int]] = {}
        for call in message.calls:
            if isinstance(call.client, RemoteClient):
                others.setdefault((call.client.node_id, call.client.session), []).append(call.order)
            else:
                ours.append(call)
        for (node_id, session), serials in others.items():
            self._say(node_id, ForwardReturned(serials, session))
        self._machine.returned(self._now(), ours)
        self._arm()

    def _client_gone(self, message: ClientGone) -> None:
        send_answers(self._machine.forget(message.client))
        self._send_forwards()  # what it asked before must not come behind its leaving
        left = self._machine.client_gone(message.client)
        if left is not None:
            self._say(left.node_id, ClientLeft(left.number))
        if self._owner is not None:
            self._owner.tell(message)

    # -- links -------------------------------------------------------------------------------------------------

    def _linked(self, message: PeerUp) -> None:
        self._served.linked(message)
        self._do(self._machine.linked(self._now(), message.node_id, message.hello.level))

    def _link_lost(self, message: PeerDown) -> None:
        node_id, now = message.node_id, self._now()
        self._take_back_unsent(node_id)
        send_answers(self._machine.link_lost(now, node_id, message.last_serial))
        self._forget_remote(node_id)
        self._arm()

    def _unheard(self, message: PeerUnheard) -> None:
        """What that node said last may be lost, and so may its answers to what was forwarded to it."""
        self._forget_remote(message.node_id)
        self._take_back_unsent(message.node_id)
        send_answers(self._machine.link_lost(self._now(), message.node_id))
        self._arm()

    def _take_back_unsent(self, node_id: int) -> None:
        unsent = self._forwards.pop(node_id, ())
        self._machine.came_back(self._now(), node_id, [one.serial for one in unsent])

    def _forget_remote(self, node_id: int) -> None:
        """No message is kept waiting for the clients of that node."""
        for client in self._served.forget(node_id):
            self._tell_owner(ClientGone(client))

    # -- answers -----------------------------------------------------------------------------------------------

    def _answered(self, message: Answered) -> None:
        """Of copies to a virtual queue, and of calls that other nodes forwarded."""
        by_node: dict[tuple[int, int], list[tuple[int, PackedReply]]] = {}
        for call, reply in message.answers:
            client = call.client
            if isinstance(client, RemoteClient):
                if type(reply) is StatusReply and not reply.pid and self._listener is not None:
                    self._listener.tell(CountsWanted(call, reply))  # it comes back with what the Listener counts
                    continue
                by_node.setdefault((client.node_id, client.session), []).append((call.order, packed_reply(reply)))
                continue
            assert isinstance(client, Copies)
            client.answer(call.order, call.request, reply)
            if client.is_complete:
                client.call.reply_to.tell(Answered([(client.call, client.reply())]))
        for (node_id, session), packed in by_node.items():
            self._served.send_answers(node_id, session, packed)

    # -- other nodes -------------------------------------------------------------------------------------------

    def _peer_said(self, said: PeerSaid) -> None:
        message, node_id = said.message, said.node_id
        if isinstance(message, ForwardAnswers | ForwardReturned) and message.session not in (0, self._session):
            return  # it is about requests of an earlier life of this node, whose numbers begin anew
        if isinstance(message, Forward):
            self._serve(node_id, message)
        elif isinstance(message, ForwardAnswers):
            self._answers_came(node_id, message)
        elif isinstance(message, ForwardReturned):
            self._machine.came_back(self._now(), node_id, message.serials)
            if self._machine.under_way.has_credit:
                self._do(self._machine.credit_again(self._now()))
            self._arm()
        elif isinstance(message, StillThere):
            here = self._machine.under_way.still_there(node_id, message.serials)
            if here:
                self._say(node_id, StillHere(here, message.session))
        elif isinstance(message, StillHere):
            calls = self._served.still_here(node_id, message, is_serving=self._is_serving)
            if calls:
                self._tell_owner(Execute(calls))
        elif isinstance(message, ClientLeft):
            client = self._served.remote.left(node_id, message.client)
            if client is not None:
                self._tell_owner(ClientGone(client))
        else:
            raise TypeError(message)

    def _answers_came(self, node_id: int, message: ForwardAnswers) -> None:
        self._gathering.committed(self._now(), self._unsent_count, len(message.answers), is_shared=True)
        try:
            replies = [(serial, unpacked_reply(packed)) for serial, packed in message.answers]
        except (msgspec.DecodeError, ValueError, RecursionError, TypeError) as error:
            self._cut(node_id, f"an answer that is none: {error}")
            return
        found = [self._machine.under_way.answered(node_id, serial, reply) for serial, reply in replies]
        send_answers([self._as_stopping(*answer) for answer in found if answer is not None])
        if self._machine.under_way.has_credit:
            self._do(self._machine.credit_again(self._now()))

    def _as_stopping(self, call: Call, reply: Reply) -> Answer:
        """A consumer that this node has called back since it stops has not waited in vain: it may go on elsewhere."""
        is_empty = reply.code == 0 and reply.msg_id is None and not (reply.count or getattr(reply, "messages", None))
        if self._is_stopping and call.request.wait and call.request.action in WAITS and is_empty:
            return call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping")
        return call, reply

    def _serve(self, node_id: int, message: Forward) -> None:
        """Do what another node forwards, each call once."""
        if self._served.remote.is_new(node_id, message.session):
            self._forget_remote(node_id)
        may_do: Callable[[int], bool] | None = None
        if not self._is_serving:
            may_look = node_id < 0 and not self._is_stopping
            may_do = self._machine.answers_itself if may_look else lambda action: False
        to_do = self._served.take(node_id, message, self.actor_ref, may_do)
        if to_do.is_cut:
            self._cut(node_id, "a forwarded request that no client can have sent")
        if to_do.refused and self._listener is not None:
            self._listener.tell(RefusedForwarded(node_id, to_do.refused))
        if to_do.calls:
            self._tell_owner(Execute(to_do.calls))

    @property
    def _is_serving(self) -> bool:
        return self._machine.is_serving and not self._is_stopping
