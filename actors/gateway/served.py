"""What other nodes, and other workers of this one, have forwarded to this shard: their clients, and what is theirs.

What a client of another node asks, its Router brings here; each call is done once. A call that has waited for longer
than it takes to be sure that its client is still there is asked about first (`LateRequests`).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from actors.gateway.access import AccessTable
from actors.gateway.late_requests import ANSWER_S, LateRequests
from actors.gateway.remote_clients import RemoteClient, RemoteClients
from actors.gateway.under_way import CALL_BYTES
from actors.messages.call import Call, Receiver
from actors.messages.peers import PeerBehind, PeerUp
from actors.messages.worker_keys import node_of
from actors.runtime.contract import Runtime
from net.peers.forwarding import PackedReply
from net.peers.messages import KNOWS_STILL_THERE, Forward, ForwardAnswers, ForwardReturned, StillHere, StillThere
from quorate.actions import LONG_REPLIES
from quorate.protocol import Action

NOT_WHILE_BEHIND: Final = LONG_REPLIES | {Action.CONSUME}
"""What may have a long answer, and is not done for a node that takes its answers more slowly than they come."""


class ToDo(NamedTuple):
    """What came of a Forward: `calls` for the owner, `refused` with the right that is missing; or it must be `cut`."""

    calls: list[Call]
    refused: list[tuple[Call, str]] = []
    is_cut: bool = False


class Served:
    """One shard's. `say` sends to a node or worker; `forward_bytes`: what a frame of answers has at most."""

    def __init__(
        self, runtime: Runtime, say: Callable[[int, Any], None], access: AccessTable | None, forward_bytes: int
    ) -> None:
        self._runtime = runtime
        self._say = say
        self._forward_bytes = forward_bytes
        self.remote = RemoteClients(access or AccessTable())
        self._late = LateRequests()
        self._knows_still_there: set[int] = set()
        self._behind: set[int] = set()

    def linked(self, message: PeerUp) -> None:
        """The link to a node is open."""
        if message.hello.minor >= KNOWS_STILL_THERE and node_of(message.node_id):
            self._knows_still_there.add(message.node_id)

    def behind(self, message: PeerBehind) -> None:
        """A node takes its answers more slowly than they come, or does so no more."""
        if message.is_behind:
            self._behind.add(message.node_id)
        else:
            self._behind.discard(message.node_id)

    def forget(self, node_id: int) -> list[RemoteClient]:
        """The clients of that node, which are gone for this one."""
        self._late.forget(node_id)
        return self.remote.forget(node_id)

    def send_answers(self, node_id: int, session: int, packed: list[tuple[int, PackedReply]]) -> None:
        """Answers, in frames that are not too long."""
        start = size = 0
        for index, (_, (_, data, payloads)) in enumerate(packed):
            grown = CALL_BYTES + len(data) + sum(map(len, payloads))
            if index > start and size + grown > self._forward_bytes:
                self._say(node_id, ForwardAnswers(packed[start:index], session))
                start, size = index, 0
            size += grown
        self._say(node_id, ForwardAnswers(packed[start:], session))

    def take(self, node_id: int, message: Forward, reply_to: Receiver, may_do: Callable[[int], bool] | None) -> ToDo:
        """What is to be done of a Forward. `may_do` says of an action whether it is done here; None: all are."""
        session = message.session
        fresh = self.remote.fresh(node_id, message)
        if node_id in self._behind:
            self._return(node_id, session, [one.serial for one in fresh if one.request.action in NOT_WHILE_BEHIND])
            fresh = [one for one in fresh if one.request.action not in NOT_WHILE_BEHIND]
        if may_do is not None:
            own = [one for one in fresh if may_do(one.request.action)]
            self._return(node_id, session, [one.serial for one in fresh if one not in own])
            fresh = own
        served = self.remote.serve(node_id, session, fresh, reply_to)
        if served is None:
            return ToDo([], is_cut=True)
        if served.refused:
            self.send_answers(node_id, session, served.refusals)
        calls = served.calls
        asked = self._late.wanted(calls) if node_id in self._knows_still_there else []
        if asked:
            others = {id(call) for call in asked}
            calls = [call for call in calls if id(call) not in others]
            self._say(
                node_id, StillThere(self._late.ask(self._runtime.monotonic(), (node_id, session), asked), session)
            )
            self._runtime.call_later(ANSWER_S * 1.1, self._nobody_spoke)
        return ToDo(calls, served.refused)

    def _return(self, node_id: int, session: int, serials: list[int]) -> None:
        """They are not done."""
        if serials:
            self._say(node_id, ForwardReturned(serials, session))

    def _nobody_spoke(self) -> None:
        for (node_id, session), serials in self._late.expired(self._runtime.monotonic()):
            self._return(node_id, session, serials)

    def still_here(self, node_id: int, message: StillHere, *, is_serving: bool) -> list[Call]:
        """Their clients are still there: what is to be done, if this node leads still."""
        calls, late = self._late.confirmed(self._runtime.monotonic(), (node_id, message.session), message.serials)
        if not is_serving:
            late, calls = [*late, *(call.order for call in calls)], []
        self._return(node_id, message.session, late)
        return calls
