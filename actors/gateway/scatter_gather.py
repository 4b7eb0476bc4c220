"""ScatterGather: requests that are done in parts, each asked under an order of its own; the answers make one reply.

A produce to a virtual queue is one produce to each real queue (`actors.gateway.virtual_queues`). What concerns several
shards is asked of each (`actors.gateway.gathers`), a consume or a watch over queues of several shards with a search
that ends when one of them has something (`actors.gateway.seeking`). A machine; the Router hosts it.
"""

from typing import Any, Final, NamedTuple

from actors.gateway.gathers import (
    ClusterRows,
    ConfirmSum,
    FirstRefusal,
    Found,
    LeaderMap,
    Listed,
    Measured,
    MembersInSync,
    NodeStatus,
    PartedCall,
    ShardsCall,
)
from actors.gateway.seeking import Seeking, Step
from actors.gateway.sharding import OVER_QUEUES, Part, Sharding
from actors.messages.call import Answer, Call, Client, Receiver
from actors.messages.rights import Principal, not_allowed
from quorate.actions import BY_NUMBER, COMMAND_OF, About
from quorate.actions import Gathered as How
from quorate.protocol import ErrorWord, Request, refusal

GATHERS: Final[dict[str, type[ShardsCall]]] = {
    How.LIST: Listed,
    How.SUM: ConfirmSum,
    How.FOUND: Found,
    How.LEADERS: LeaderMap,
    How.MEMBERS: ClusterRows,
    How.METRICS: Measured,
    How.AFTER_ALL: MembersInSync,
    How.ALL: FirstRefusal,
}
"""Beside `NodeStatus`, which is made with more."""

SEEKING_MAX: Final = 32
"""Consumers over several shards that one client may have open: fewer than a connection may, so its end is noticed."""


class Parted(NamedTuple):
    """What is to be done: `asks` of shards; `answers` are final; `let_go`: who wants nothing more of which shard."""

    asks: list[tuple[int, Call]]
    answers: list[Answer]
    let_go: list[tuple[Client, int]]


class ScatterGather:
    """One worker's. Parts are answered to `reply_to`. `faults` say why a shard's worker does not run.

    Times are monotonic seconds.
    """

    def __init__(self, sharding: Sharding, reply_to: Receiver) -> None:
        self.faults: dict[int, str] = {}
        self._sharding = sharding
        self._reply_to = reply_to
        self._seeking_of: dict[Client, dict[Seeking, None]] = {}

    def know_faults(self, faults: dict[int, str]) -> None:
        """Why these shards' workers do not run; those of all others do."""
        self.faults = faults

    def scatter(self, now: float, call: Call) -> Parted:
        """Decide what is asked of which shard for a request that concerns several."""
        request, sharding = call.request, self._sharding
        fault = sharding.fault(request)
        if fault is not None:
            return Parted([], [(call, fault)], [])
        if request.action in OVER_QUEUES and request.queues is not None:
            return self._seek(now, call)
        facts = BY_NUMBER[request.action]
        how = COMMAND_OF[request.command].gathered if facts.about == About.CLUSTER else facts.gathered
        if how in (How.SUM, How.FOUND):
            parts = sharding.of_messages(request)
            if len(parts) == 1:
                return Parted([(parts[0].shard, call)], [], [])
        elif how == How.AFTER_ALL:
            parts = sharding.every(Request(request.action, command="status"))
        else:
            parts = sharding.every(request)
        gathered = (
            NodeStatus(call, parts, sharding.own, self.faults) if how == How.STATUS else GATHERS[how](call, parts)
        )
        parts_of = enumerate(gathered.parts)
        asks = [(part.shard, self._part(call, gathered, order, part, is_single=True)) for order, part in parts_of]
        return Parted(asks, [], [])

    def _seek(self, now: float, call: Call) -> Parted:
        groups = self._sharding.groups(call.request)
        if len(groups) == 1:
            return Parted([(groups[0][0], call)], [], [])
        if len(self._seeking_of.get(call.client, ())) >= SEEKING_MAX:
            reason = f"{SEEKING_MAX} consumers of this connection wait for queues of several shards already"
            return Parted([], [(call, refusal(call.request, ErrorWord.OVERLOADED, reason))], [])
        seeking = Seeking(call, groups, now)
        self._seeking_of.setdefault(call.client, {})[seeking] = None
        return self._stepped(seeking, seeking.begin(now))

    def _part(self, call: Call, client: Any, order: int, part: Part, *, is_single: bool) -> Call:
        return Call(
            part.request,
            client,
            order,
            self._reply_to,
            call.reply_bytes_max,
            is_single=is_single,
            is_part=True,
            principal=call.principal,
        )

    # -- answers -----------------------------------------------------------------------------------------------

    def answered(self, now: float, answers: list[Answer], *, is_stopping: bool) -> Parted:
        """Of parts. When this node `is_stopping`, nothing more is begun."""
        parted = Parted([], [], [])
        for call, reply in answers:
            client = call.client
            if isinstance(client, Seeking):
                _extend(parted, self._stepped(client, client.answered(now, call.order, reply)))
                continue
            assert isinstance(client, PartedCall), "only parts are answered to the Router"
            client.answer(call.order, call.request, reply)
            if client.is_complete:
                self._gathered(client, parted, is_stopping=is_stopping)
        return parted

    def _gathered(self, gather: PartedCall, parted: Parted, *, is_stopping: bool) -> None:
        call = gather.call
        if not isinstance(gather, MembersInSync) or gather.fault is not None:
            parted.answers.append((call, gather.reply()))
        elif is_stopping:
            parted.answers.append((call, refusal(call.request, ErrorWord.STOPPING, "the node is stopping")))
        elif call.client.is_gone:  # it may have asked for it again, and for more since
            parted.answers.append((call, refusal(call.request, ErrorWord.MEMBERSHIP, "its client is gone")))
        else:
            parted.asks.append((0, call))

    def _stepped(self, seeking: Seeking, step: Step) -> Parted:
        call = seeking.call
        asks = [(part.shard, self._part(call, seeking, order, part, is_single=False)) for order, part in step.asks]
        if step.reply is None:
            return Parted(asks, [], [])
        open_ones = self._seeking_of.get(call.client)
        if open_ones is not None:
            open_ones.pop(seeking, None)
            if not open_ones:
                del self._seeking_of[call.client]
        answers = [(call, step.reply), *seeking.cancelled(step.reply)]
        return Parted(asks, answers, [(seeking, shard) for shard in step.let_go])

    # -- clients -----------------------------------------------------------------------------------------------

    def cancel(self, now: float, call: Call) -> Parted | None:
        """End the search that the call names, as if its time were over; None if there is none."""
        for seeking in self._seeking_of.get(call.client, ()):
            if seeking.call.request.seq == call.request.seq and call.request.seq is not None:
                seeking.cancels.append(call)
                return self._stepped(seeking, seeking.client_gone(now))
        return None

    def client_gone(self, now: float, client: Client) -> Parted:
        """Its searches end."""
        parted = Parted([], [], [])
        for seeking in list(self._seeking_of.get(client, ())):
            _extend(parted, self._stepped(seeking, seeking.client_gone(now)))
        return parted

    def rejudged(self, now: float, client: Client, principal: Principal) -> tuple[Parted, list[Seeking]]:
        """Tell a client, of which has changed what it may do, where it may not have all of its queues any more.

        Also gives the searches, which are clients themselves, to be judged as theirs is.
        """
        parted = Parted([], [], [])
        seekings = list(self._seeking_of.get(client, ()))
        for seeking in seekings:
            call = seeking.call
            call.principal = principal
            missing = principal.rights.missing(call.request)
            if missing is not None:
                _extend(parted, self._stepped(seeking, seeking.refuse(now, not_allowed(call.request, missing))))
        return parted, seekings

    def stop(self, now: float) -> Parted:
        """Let who searches go on elsewhere, since this node is stopping."""
        parted = Parted([], [], [])
        for seekings in list(self._seeking_of.values()):
            for seeking in list(seekings):
                _extend(parted, self._stepped(seeking, seeking.stop(now)))
        return parted


def _extend(parted: Parted, more: Parted) -> None:
    parted.asks.extend(more.asks)
    parted.answers.extend(more.answers)
    parted.let_go.extend(more.let_go)
