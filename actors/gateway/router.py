"""Router: which node does a request. Hosts the routing machine; splits produces to virtual queues, and gathers.

Its other half serves what other nodes forward: those calls come from a client that is a node, and go to the owner.
"""

from typing import Any, Final

import msgspec
import pykka

from actors.gateway.routing import Routed, Routing
from actors.gateway.virtual_queues import Gather
from actors.messages.calls import Answer, Answered, Call, ClientGone, Execute, Returned, send_answers
from actors.messages.lifecycle import Reconfigure, Stop
from actors.messages.log import Drain, Undrain
from actors.messages.peers import CutPeer, LeaderChanged, PeerDown, PeerSaid, PeerUnheard, PeerUp, SendPeers
from actors.runtime.contract import Runtime, Timer
from actors.runtime.gathering import Gathering
from actors.runtime.loop_actor import LoopActor
from net.peers.messages import ClientLeft, Forward, ForwardAnswers, ForwardedCall, ForwardReturned
from net.protocols.json_codec import encode_reply
from quorate.protocol import Action, EncodedReply, ErrorWord, Reply, Request, refusal

LAST_ANSWERS_S: Final = 1.0
"""How long a node that stops waits for the answers to what it has forwarded."""

_decode_request = msgspec.json.Decoder(Request).decode
_decode_reply = msgspec.json.Decoder(Reply).decode


class RemoteClient:
    """A client of another node, whose calls that node forwards."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id

    def answer(self, order: int, reply: Reply) -> None:
        """Answers go back by the Router."""
        raise AssertionError("a forwarded call is answered by the Router")


class Router(LoopActor):
    """Hands requests on. `virtual_queues` maps a name to the real queues' names."""

    def __init__(
        self,
        runtime: Runtime,
        owner: "pykka.ActorRef[Any]",
        virtual_queues: dict[str, list[str]],
        routing: Routing,
    ) -> None:
        super().__init__(runtime)
        self._owner = owner
        self._virtual_queues = virtual_queues
        self._machine = routing
        self._peers: pykka.ActorRef[Any]
        self._timer: Timer | None = None
        self._stopping: Stop | None = None
        self._is_stopping = False
        self._gathering = Gathering()
        self._is_gathering = False
        self._forwards: list[ForwardedCall] = []
        self._forward_to = 0
        self._session = int(runtime.random() * (1 << 48))
        self._remote: dict[int, dict[int, RemoteClient]] = {}
        self._heard: dict[int, tuple[int, int]] = {}

    def attach(self, peers: "pykka.ActorRef[Any]") -> None:
        """Whom it tells; called by the assembly before any message."""
        self._peers = peers

    def on_receive(self, message: Any) -> None:
        """Dispatch."""
        if isinstance(message, Execute):
            if self._virtual_queues:
                self._split(message)
            else:
                self._route(message)
        elif isinstance(message, Answered):
            self._answered(message.answers)
        elif isinstance(message, PeerSaid):
            self._peer_said(message)
        elif isinstance(message, Returned):
            self._returned(message.calls)
        elif isinstance(message, LeaderChanged):
            if not message.is_self:
                for node_id in list(self._remote):
                    self._forget_remote(node_id)
            self._do(self._machine.leader_changed(self.runtime.monotonic(), message))
        elif isinstance(message, PeerUp):
            self._machine.linked.add(message.node_id)
        elif isinstance(message, PeerUnheard):
            self._unheard(message.node_id)
        elif isinstance(message, PeerDown):
            self._link_lost(message.node_id)
        elif isinstance(message, Drain):
            self._machine.drain()
            self._owner.tell(message)
        elif isinstance(message, Undrain):
            self._owner.tell(message)
            self._do(self._machine.undrain(self.runtime.monotonic()))
        elif isinstance(message, Reconfigure):
            self._virtual_queues = message.limits
        elif isinstance(message, ClientGone):
            self._machine.forget_held(message.client)
            number = self._machine.client_gone(message.client)
            self._send_forwards()  # what it asked before must not come behind its leaving
            if number is not None and self._machine.leader:
                self._peers.tell(SendPeers((self._machine.leader,), ClientLeft(number)))
            self._owner.tell(message)
        elif isinstance(message, Stop):
            self._is_stopping = True
            self._send_forwards()
            for number in self._machine.client_numbers:  # their consumers wait no longer, and are told so
                self._peers.tell(SendPeers((self._machine.leader,), ClientLeft(number)))
            self._stopping = message
            self.runtime.call_later(LAST_ANSWERS_S, self._stop_on)
        else:
            raise TypeError(message)
        if self._stopping is not None and not self._machine.has_open:
            self._stop_on()

    def _stop_on(self) -> None:
        """Nothing waits for another node any more, or has waited for too long."""
        if self._stopping is not None:
            send_answers(
                [
                    (call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping"))
                    for call in self._machine.take_held()
                ]
            )
            stopping, self._stopping = self._stopping, None
            self._owner.tell(stopping)

    # -- requests of this node's clients -----------------------------------------------------------------------

    def _route(self, message: Execute) -> None:
        if self._machine.is_direct:
            self._owner.tell(message)
        else:
            self._do(self._machine.route(self.runtime.monotonic(), message.calls))

    def _do(self, routed: Routed) -> None:
        if routed.own:
            self._owner.tell(Execute(routed.own))
        if routed.forwards:
            if routed.to != self._forward_to:
                self._send_forwards()
                self._forward_to = routed.to
            self._forwards += routed.forwards
            if not self._is_gathering:
                self._forward()
        send_answers(routed.answers)
        self._arm()

    def _forward(self) -> None:
        """Send what has gathered, or wait a moment for the clients that were just answered: see `Gathering`."""
        self._is_gathering = bool(self._forwards) and not self._gathering.is_over(
            self.runtime.monotonic(), len(self._forwards)
        )
        if self._is_gathering:
            self.runtime.call_later(0.0, self._forward)
        else:
            self._send_forwards()

    def _send_forwards(self) -> None:
        forwards, self._forwards = self._forwards, []
        if forwards:
            self._peers.tell(SendPeers((self._forward_to,), Forward(self._session, forwards)))

    def _arm(self) -> None:
        if self._timer is None and self._machine.has_open:
            delay_s = min(max(self._machine.next_at - self.runtime.monotonic(), 0.001), 0.25)
            self._timer = self.runtime.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self.actor_ref.is_alive():
            self._do(self._machine.tick(self.runtime.monotonic()))
            if self._stopping is not None and not self._machine.has_open:
                self._stop_on()

    def _returned(self, calls: list[Call]) -> None:
        """Calls that the owner did not do: ours are routed again, others' go back to where they came from."""
        ours: list[Call] = []
        others: dict[int, list[int]] = {}
        for call in calls:
            if isinstance(call.client, RemoteClient):
                others.setdefault(call.client.node_id, []).append(call.order)
            else:
                ours.append(call)
        for node_id, serials in others.items():
            self._peers.tell(SendPeers((node_id,), ForwardReturned(serials)))
        self._machine.returned(self.runtime.monotonic(), ours)
        self._arm()

    def _link_lost(self, node_id: int) -> None:
        self._machine.linked.discard(node_id)
        if node_id == self._forward_to:  # these have not been sent
            unsent, self._forwards = self._forwards, []
            self._machine.came_back(self.runtime.monotonic(), node_id, [one.serial for one in unsent])
        send_answers(self._machine.link_lost(self.runtime.monotonic(), node_id))
        self._forget_remote(node_id)
        self._arm()

    def _unheard(self, node_id: int) -> None:
        """What that node said last may be lost, and so may its answers to what was forwarded to it."""
        self._forget_remote(node_id)
        send_answers(self._machine.link_lost(self.runtime.monotonic(), node_id))
        self._arm()

    def _forget_remote(self, node_id: int) -> None:
        """No message is kept waiting for the clients of that node."""
        for client in self._remote.pop(node_id, {}).values():
            self._owner.tell(ClientGone(client))

    # -- answers -----------------------------------------------------------------------------------------------

    def _answered(self, answers: list[Answer]) -> None:
        """Of copies to a virtual queue, and of calls that other nodes forwarded."""
        by_node: dict[int, list[tuple[int, bytes]]] = {}
        for call, reply in answers:
            client = call.client
            if isinstance(client, RemoteClient):
                by_node.setdefault(client.node_id, []).append((call.order, encode_reply(reply)))
                continue
            assert isinstance(client, Gather)
            if isinstance(reply, EncodedReply):
                reply = _decode_reply(reply.encoded)
            client.answer(call.order, reply)
            if client.is_complete:
                client.call.reply_to.tell(Answered([(client.call, client.reply())]))
        for node_id, encoded in by_node.items():
            self._peers.tell(SendPeers((node_id,), ForwardAnswers(encoded)))

    # -- other nodes -------------------------------------------------------------------------------------------

    def _peer_said(self, said: PeerSaid) -> None:
        message, node_id = said.message, said.node_id
        if isinstance(message, Forward):
            self._serve(node_id, message)
        elif isinstance(message, ForwardAnswers):
            self._gathering.committed(self.runtime.monotonic(), len(self._forwards), len(message.answers))
            found = [self._machine.answered(serial, reply) for serial, reply in message.answers]
            send_answers([answer for answer in found if answer is not None])
        elif isinstance(message, ForwardReturned):
            self._machine.came_back(self.runtime.monotonic(), node_id, message.serials)
            self._arm()
        elif isinstance(message, ClientLeft):
            client = self._remote.get(node_id, {}).pop(message.client, None)
            if client is not None:
                self._owner.tell(ClientGone(client))
        else:
            raise TypeError(message)

    def _serve(self, node_id: int, message: Forward) -> None:
        """Do what another node forwards, each call once."""
        session, heard = self._heard.get(node_id, (0, 0))
        if session != message.session:
            heard = 0
            self._forget_remote(node_id)
        fresh = [one for one in message.calls if one.serial > heard]
        if not fresh:
            return
        self._heard[node_id] = (message.session, fresh[-1].serial)
        if not self._machine.is_direct or self._is_stopping:
            returned = ForwardReturned([one.serial for one in fresh])
            self._peers.tell(SendPeers((node_id,), returned))
            return
        clients = self._remote.setdefault(node_id, {})
        calls: list[Call] = []
        for one in fresh:
            try:
                request = _decode_request(one.request)
            except msgspec.DecodeError as error:
                self._peers.tell(CutPeer(node_id, f"a forwarded request that is none: {error}"))
                return
            client = clients.get(one.client) or RemoteClient(node_id)
            if one.client:
                clients[one.client] = client
            calls.append(Call(request, client, one.serial, self.actor_ref, one.reply_bytes_max))
        self._owner.tell(Execute(calls))

    # -- virtual queues ----------------------------------------------------------------------------------------

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
                    calls.append(Call(copy, gather, order, self.actor_ref, is_single=True))
        send_answers(refused)
        if calls:
            self._route(Execute(calls))
