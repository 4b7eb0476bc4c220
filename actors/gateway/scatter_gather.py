"""ScatterGather: requests that are done in parts, each asked under an order of its own; the answers make one reply.

A produce to a virtual queue is one produce to each real queue (`actors.gateway.virtual_queues`). What concerns
several shards is asked of each (`actors.gateway.gathers`), a consume or a watch over queues of several shards with a
search that ends when one of them has something (`Seeking`). Machines; the Router hosts them.

A consume over queues of several shards takes from one of them, and never from two. It asks the shards in the order of
preference, one after the other, each whether it has a message now; the first that has one has done the request. If
none has, and the consumer waits, every shard is asked to tell of a message (`watch`), and whoever tells first is
asked again. What a shard keeps for it that it does not want any more it lets go.

| state | asked | comes | then |
|---|---|---|---|
| trying | one consume | a message, or a refusal that says something of the request | done; all watches are let go |
| trying | one consume | nothing, or that the shard has no leader | the next group; after the last, watching |
| watching | a watch of each shard | told | trying that shard's queues |
| watching | a watch of each shard | its time is over, on all | done, with nothing |

A shard without a leader is passed over after a moment, and watched all the same: it may get one in time.
"""

from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from actors.gateway.gathers import (
    NOT_DONE_ERRORS,
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
    TopicsListed,
)
from actors.gateway.sharding import OVER_QUEUES, Part, Sharding, short_patience
from actors.messages.call import Answer, Call, Client, Receiver, given_up, is_given_up
from actors.messages.rights import Principal, not_allowed
from quorate.actions import BY_NUMBER, COMMAND_OF, About
from quorate.actions import Gathered as How
from quorate.protocol import Action, Code, ErrorWord, Reply, Request, done, refusal
from quorate.shard_replies import EmptyReply

WAIT_MIN_S: Final = 0.001


GATHERS: Final[dict[str, type[ShardsCall]]] = {
    How.LIST: Listed,
    How.TOPICS: TopicsListed,
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


class Step(NamedTuple):
    """What is to be done now: `asks`, each under its order; shards to be told that nothing is wanted; the reply."""

    asks: list[tuple[int, Part]]
    let_go: list[int]
    reply: Reply | None = None


class Seeking:
    """One such request; the client of what it asks. `groups`: shards and their queues, in the order of preference.

    `cancels`: requests to end it, answered when it is answered.

    Times are monotonic seconds.
    """

    def __init__(self, call: Call, groups: list[tuple[int, list[str]]], now: float) -> None:
        self.call = call
        self.cancels: list[Call] = []
        self._groups = groups
        self._until = now + (call.request.wait or 0.0)
        self._to_try = list(range(len(groups)))
        self._trying: int | None = None
        self._watches: dict[int, int] = {}
        self._told: set[int] = set()
        self._missing: dict[int, Reply] = {}
        self._given_up: set[int] = set()
        self._asked_shards: set[int] = set()
        self._order = 0
        self._is_done = False

    @property
    def has_left(self) -> bool:
        """As its own client; and when it is done, what of it is held is wanted by nobody."""
        return self._is_done or self.call.client.has_left

    @property
    def has_ended(self) -> bool:
        """As its own client."""
        return self.call.client.has_ended

    @property
    def is_gone(self) -> bool:
        """As its own client; and when it is done."""
        return self._is_done or self.call.client.is_gone

    def answer(self, order: int, request: Request, reply: Reply) -> None:
        """Answers come by the Router."""
        raise AssertionError("a part is answered to the Router")

    def begin(self, now: float) -> Step:
        """Ask the first."""
        return self._go_on(now)

    def answered(self, now: float, order: int, reply: Reply) -> Step:
        """Take a shard's reply to what was asked under `order`."""
        if self._is_done:
            return Step([], [])
        if order in self._watches:
            return self._was_told(now, self._watches.pop(order), reply)
        assert self._trying is not None, "a consume is asked one at a time"
        shard = self._groups[self._trying][0]
        self._trying = None
        self._told.discard(shard)
        if reply.code != Code.OK and reply.error in NOT_DONE_ERRORS:
            self._missing[shard] = reply
            self._to_try = [at for at in self._to_try if self._groups[at][0] != shard]
        elif reply.code != Code.OK or reply.msg_id is not None or getattr(reply, "messages", None):
            return self._done(reply)
        elif reply.count is not None:
            return self._done(reply)  # it was a watch that was asked for
        else:
            self._missing.pop(shard, None)
        return self._go_on(now)

    def _was_told(self, now: float, shard: int, reply: Reply) -> Step:
        if reply.code != Code.OK and reply.error not in NOT_DONE_ERRORS:
            return Step([], []) if self._trying is not None else self._done(reply)
        if reply.code != Code.OK:
            self._missing[shard] = reply
            self._given_up.add(shard)
        elif reply.count is not None:
            self._missing.pop(shard, None)
            if self.call.request.action == Action.WATCH and self._trying is None:
                return self._done(reply)
            self._told.add(shard)
            ours = [at for at, (its, _) in enumerate(self._groups) if its == shard]
            self._to_try = sorted({*self._to_try, *ours})
        return Step([], []) if self._trying is not None else self._go_on(now)

    def client_gone(self, now: float) -> Step:
        """Wait no longer for a message; what is being asked for is still given."""
        return self._end(now, self._nothing())

    def cancelled(self, reply: Reply) -> list[Answer]:
        """Answer those who wanted an end of it, now that it has its `reply`, which may be a message."""
        is_ended = reply.msg_id is None and reply.count is None and not getattr(reply, "messages", None)
        return [(call, done(call.request, Reply, cancelled=int(is_ended))) for call in self.cancels]

    def stop(self, now: float) -> Step:
        """Let the consumer go on elsewhere, since this node is stopping."""
        return self._end(now, refusal(self.call.request, ErrorWord.STOPPING, "the node is stopping"))

    def refuse(self, now: float, reply: Reply) -> Step:
        """Refuse the consumer, which may not have these queues any more."""
        return self._end(now, reply)

    def _end(self, now: float, reply: Reply) -> Step:
        self._until = now
        self._to_try = []
        return Step([], []) if self._is_done or self._trying is not None else self._done(reply)

    def _go_on(self, now: float) -> Step:
        request = self.call.request
        if self._to_try:
            at = self._trying = self._to_try.pop(0)
            shard, names = self._groups[at]
            patience_s = short_patience(request)
            ask = replace(request, queue=None, queues=names, wait=None, seq=None, patience=patience_s)
            return Step([self._asked(Part(shard, ask))], [])
        left_s = self._until - now
        if left_s < WAIT_MIN_S:
            return self._done(self._nothing())
        asks: list[tuple[int, Part]] = []
        watched = set(self._watches.values())
        for shard in dict.fromkeys(shard for shard, _ in self._groups):
            if shard not in watched and shard not in self._given_up:
                names = [name for its, queues in self._groups if its == shard for name in queues]
                ask = Request(Action.WATCH, queues=names, wait=left_s, patience=left_s, as_job=request.as_job)
                asks.append(self._asked(Part(shard, ask)))
                self._watches[asks[-1][0]] = shard
        if not asks and not self._watches:
            return self._done(self._nothing())
        return Step(asks, [])

    def _asked(self, part: Part) -> tuple[int, Part]:
        self._order += 1
        self._asked_shards.add(part.shard)
        return self._order, part

    def _nothing(self) -> Reply:
        """Nothing was there; the refusal, if no shard could be asked."""
        request = self.call.request
        shards = {shard for shard, _ in self._groups}
        if shards == self._missing.keys():
            return next(iter(self._missing.values()))
        reply = EmptyReply(action=request.action, code=Code.OK, queue=self._groups[0][1][0])
        if self._missing:
            reply.partial, reply.missing_shards = True, sorted(self._missing)
        return reply

    def _done(self, reply: Reply) -> Step:
        self._is_done = True
        reply.seq, reply.action = self.call.request.seq, self.call.request.action
        self._watches.clear()
        return Step([], sorted(self._asked_shards), reply)


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
        elif is_given_up(call):
            parted.answers.append((call, given_up(call.request)))
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
