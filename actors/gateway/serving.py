"""Serving: what other nodes, and other workers of this one, have forwarded to this worker's own shard.

What a client of another node asks, its Router brings here; each call is done once. A call that has waited for longer
than it takes to be sure that its client is still there is asked about first (`LateRequests`). A part of the Router.
"""

from typing import Final

from actors.gateway.access import AccessTable
from actors.gateway.remote_clients import ANSWER_S, LateRequests, RemoteClient, RemoteClients
from actors.gateway.routing import Routing
from actors.gateway.under_way import CALL_BYTES, Voice
from actors.messages.call import Answer, Call, Receiver, note_late
from actors.messages.calls import ClientGone, Execute, RefusedForwarded, RightsChanged
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToListener, ToQueueOwner
from actors.messages.peers import PeerBehind, node_of
from actors.runtime.contract import Runtime
from net.peers.forwarding import PackedReply, packed_reply
from net.peers.messages import (
    ClientHalfClosed,
    ClientLeft,
    Forward,
    ForwardAnswers,
    ForwardReturned,
    StillHere,
    StillThere,
)
from quorate.actions import LONG_REPLIES
from quorate.protocol import Action

NOT_WHILE_BEHIND: Final = LONG_REPLIES | {Action.CONSUME}
"""What may have a long answer, and is not done for a node that takes its answers more slowly than they come."""


class Serving:
    """One shard's: `owner` does it, if `routing` says that this node leads, and answers to `reply_to`.

    `access`: by which it judges what others forward; `forward_bytes`: what a frame of answers has at most. `listener`
    notes what was refused.
    """

    def __init__(
        self,
        runtime: Runtime,
        voice: Voice,
        owner: Mailbox[ToQueueOwner],
        routing: Routing,
        reply_to: Receiver,
        *,
        access: AccessTable | None,
        forward_bytes: int,
    ) -> None:
        self.listener: Mailbox[ToListener] | None = None
        self.is_stopping = False
        self._runtime = runtime
        self._voice = voice
        self._owner = owner
        self._routing = routing
        self._reply_to = reply_to
        self._forward_bytes = forward_bytes
        self._remote = RemoteClients(access or AccessTable())
        self._late = LateRequests()
        self._behind: set[int] = set()

    @property
    def _is_serving(self) -> bool:
        return self._routing.is_serving and not self.is_stopping

    # -- links -------------------------------------------------------------------------------------------------

    def behind(self, message: PeerBehind) -> None:
        """Note that a node takes its answers more slowly than they come, or does so no more."""
        if message.is_behind:
            self._behind.add(message.node_id)
        else:
            self._behind.discard(message.node_id)

    def forget(self, key: int) -> None:
        """Keep no message waiting for the clients of that node or worker, which are gone for this one."""
        self._late.forget(key)
        for client in self._remote.forget(key):
            self._owner.tell(ClientGone(client))

    def forget_all(self) -> None:
        """Note that this node does not lead any more."""
        for key in self._remote.nodes:
            self.forget(key)

    def access_changed(self, table: AccessTable) -> None:
        """Who may do what is another from now on."""
        for client in self._remote.changed(table):
            self._owner.tell(RightsChanged(client, client.principal))

    # -- what they say -----------------------------------------------------------------------------------------

    def said(self, key: int, message: Forward | StillHere | ClientLeft | ClientHalfClosed) -> None:
        """Of clients of that node or worker."""
        if isinstance(message, Forward):
            self._forwarded(key, message)
        elif isinstance(message, StillHere):
            self._still_here(key, message)
        else:
            is_gone = isinstance(message, ClientLeft)
            find = self._remote.left if is_gone else self._remote.half_closed
            client = find(key, message.client)
            if client is not None:
                self._owner.tell(ClientGone(client))

    def _forwarded(self, key: int, message: Forward) -> None:
        """Do what is forwarded, each call once."""
        if self._remote.is_new(key, message.session):
            self.forget(key)
        session = message.session
        fresh = self._remote.fresh(key, message)
        if key in self._behind:
            self._return(key, session, [one.serial for one in fresh if one.request.action in NOT_WHILE_BEHIND])
            fresh = [one for one in fresh if one.request.action not in NOT_WHILE_BEHIND]
        if not self._is_serving:
            may_look = key < 0 and not self.is_stopping
            own = [one for one in fresh if may_look and self._routing.answers_itself(one.request.action)]
            self._return(key, session, [one.serial for one in fresh if one not in own])
            fresh = own
        served = self._remote.serve(key, session, fresh, self._reply_to)
        if served is None:
            self._voice.cut(key, "a forwarded request that no client can have sent")
            return
        if served.refused:
            self._send_answers(key, session, served.refusals)
            if self.listener is not None:
                self.listener.tell(RefusedForwarded(key, served.refused))
        if served.calls and self._runtime.stood_still():
            note_late(served.calls)
        calls = self._certain(key, session, served.calls)
        if calls:
            self._owner.tell(Execute(calls))

    def _certain(self, key: int, session: int, calls: list[Call]) -> list[Call]:
        """Those whose clients are known to be there; about the others their node is asked."""
        asked = self._late.wanted(calls) if node_of(key) else []
        if not asked:
            return calls
        others = {id(call) for call in asked}
        serials = self._late.ask(self._runtime.monotonic(), (key, session), asked)
        self._voice.say(key, StillThere(serials, session))
        self._runtime.call_later(ANSWER_S * 1.1, self._nobody_spoke)
        return [call for call in calls if id(call) not in others]

    def _nobody_spoke(self) -> None:
        for (key, session), serials in self._late.expired(self._runtime.monotonic()):
            self._return(key, session, serials)

    def _still_here(self, key: int, message: StillHere) -> None:
        """Their clients are still there: what is to be done, if this node leads still."""
        calls, late = self._late.confirmed(self._runtime.monotonic(), (key, message.session), message.serials)
        if not self._is_serving:
            late, calls = [*late, *(call.order for call in calls)], []
        self._return(key, message.session, late)
        if calls:
            self._owner.tell(Execute(calls))

    def _return(self, key: int, session: int, serials: list[int]) -> None:
        """They are not done."""
        if serials:
            self._voice.say(key, ForwardReturned(serials, session))

    # -- what they are answered --------------------------------------------------------------------------------

    def take_answers(self, answers: list[Answer]) -> list[Answer]:
        """Send those that are for others; the rest is the caller's."""
        mine: list[Answer] = []
        by_asker: dict[tuple[int, int], list[tuple[int, PackedReply]]] = {}
        for call, reply in answers:
            client = call.client
            if isinstance(client, RemoteClient):
                by_asker.setdefault((client.node_id, client.session), []).append((call.order, packed_reply(reply)))
            else:
                mine.append((call, reply))
        for (key, session), packed in by_asker.items():
            self._send_answers(key, session, packed)
        return mine

    def take_returned(self, calls: list[Call]) -> list[Call]:
        """Give back to others what the owner did not do for them; the rest is the caller's."""
        mine: list[Call] = []
        by_asker: dict[tuple[int, int], list[int]] = {}
        for call in calls:
            if isinstance(call.client, RemoteClient):
                by_asker.setdefault((call.client.node_id, call.client.session), []).append(call.order)
            else:
                mine.append(call)
        for (key, session), serials in by_asker.items():
            self._return(key, session, serials)
        return mine

    def _send_answers(self, key: int, session: int, packed: list[tuple[int, PackedReply]]) -> None:
        """Answers, in frames that are not too long."""
        start = size = 0
        for index, (_, (_, data, payloads)) in enumerate(packed):
            grown = CALL_BYTES + len(data) + sum(map(len, payloads))
            if index > start and size + grown > self._forward_bytes:
                self._voice.say(key, ForwardAnswers(packed[start:index], session))
                start, size = index, 0
            size += grown
        self._voice.say(key, ForwardAnswers(packed[start:], session))
