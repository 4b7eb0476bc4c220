"""Routing: where a request goes. A machine; its host is the Router.

What asks about this node is answered here; everything else is for the leader. Where another node leads, a request is
forwarded to it, or its client is sent there (`forward_request` 0). While nobody leads, while the leader's address or
the link to it is not known yet, and while a leader hands its place over, requests are held; after a while they are
refused, never guessed at. A forwarded request whose answer can't come any more is sent again if it did not leave this
node, or only looks; otherwise its client is told that the outcome is unknown.

A client's requests are done in their order: as long as one of them is held, those behind it are, too.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from actors.gateway.held_calls import Held, HeldCalls
from actors.gateway.under_way import (
    CREDIT_BYTES,
    ForwardedClient,
    Forwarding,
    Outgoing,
    UnderWay,
    call_bytes,
    is_quick,
    kind_of,
)
from actors.messages.call import Answer, Call, Client, consumes, given_up, is_given_up, may_consume, nothing_for
from actors.messages.peers import LeaderChanged, node_of, shown
from actors.messages.rights import Principal, not_allowed
from net.peers.forwarding import level_of
from net.protocols import is_told_addresses
from quorate.actions import ANY_NODE, ASKS_NODE, LOOKS
from quorate.protocol import (
    Action,
    Code,
    ErrorWord,
    RedirectReply,
    Reply,
    done,
    refusal,
)
from storage.records import BASE_LEVEL, LEVEL

HOLD_S: Final = 4.0
"""How long a request waits for a leader, unless it says otherwise: some elections."""

RETURN_S: Final = 0.02  # after this a request that came back is looked at again

PATIENCE_MAX: Final = 15
"""A request may ask to be held for so many times as long: its client's patience is its own, the memory is not."""

LOOK_MAX: Final = 2000
"""So many held calls are looked at in one turn: some 10 ms."""

GIVE_UP_MAX: Final = 1000
"""So many of those that waited for too long are told in one turn, and of those whose answer is missing."""

RETURNS_MAX: Final = 100
"""So often a request may come back undone: some seconds in which nodes do not agree who leads."""

LAST_S: Final = 1.0  # what a former leader has to answer what was forwarded to it

WAS_LOST: Final = "was lost"
IS_LATE: Final = "did not answer in time"

_CANCEL: Final = int(Action.CANCEL)

NOT_HELD, HELD, HELD_FOR_CREDIT = range(3)
"""What becomes of a call: it is on its way, or answered; or nobody can be asked; or too much is on its way there."""


@dataclass(slots=True)
class Routed:
    """What is to be done with calls: `own` by this node, `forwards` by others; `answers` are final."""

    own: list[Call] = field(default_factory=list)
    forwards: list[Forwarding] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class Routing:
    """One node's, for one shard. `forwards` False: redirect. `hold_s`: see `HOLD_S`. Times are monotonic seconds.

    `under_way`: what was forwarded, within `credit_bytes`.

    `sibling`: where the shard's owner is in another process of this node, that worker's number (`worker_key`). It is
    asked what asks about this node; everything else is for the shard's leader, which may be it.
    """

    def __init__(
        self, *, forwards: bool, hold_s: float = HOLD_S, sibling: int = 0, credit_bytes: int = CREDIT_BYTES
    ) -> None:
        self._sibling = sibling
        self.under_way = UnderWay(credit_bytes)
        self.leader = 0
        self.leads = False
        self.next_at = math.inf
        self._host = ""
        self._port = 0
        self._is_draining = False
        self._ends_waits = ""
        self._forwards = forwards
        self._hold_s = hold_s
        self._linked: set[int] = set()
        self._levels: dict[int, int] = {}
        self._held = HeldCalls()
        self._ended: list[Answer] = []
        self._to_look_at: deque[Held] = deque()

    @property
    def is_direct(self) -> bool:
        """Whether every request is for this node's owner, and none waits before it."""
        return self.leads and not self._is_draining and not self._held.has_any

    @property
    def is_serving(self) -> bool:
        """Whether this node does what other nodes forward."""
        return self.leads and not self._is_draining

    @property
    def has_open(self) -> bool:
        """Whether anything is held, or waits for another node's answer, or is to be answered with the next tick."""
        return self._held.has_any or bool(self.under_way) or bool(self._ended)

    # -- requests ----------------------------------------------------------------------------------------------

    def route(self, now: float, calls: list[Call]) -> Routed:
        """Where each of the calls goes."""
        routed = Routed()
        for call in calls:
            is_behind = not call.is_single and self._held.has_of(call.client)
            where = self._route(now, call, routed, is_behind=is_behind)
            if where != NOT_HELD:
                deadline = now + _patience_s(call, self._hold_s)
                self._hold(call, deadline, deadline, for_credit=where == HELD_FOR_CREDIT)
        return routed

    def _route(self, now: float, call: Call, routed: Routed, *, is_behind: bool) -> int:
        """Send a call where it goes, or answer it, or say why it is to be held; `is_behind`: one before it is."""
        if call.client.has_left and consumes(call) and not may_consume(call):
            routed.answers.append((call, nothing_for(call.request)))
        elif self._ends_waits and _may_not_wait(call, self._ends_waits):
            routed.answers.append((call, refusal(call.request, self._ends_waits, f"the node is {self._ends_waits}")))
        elif call.request.action == _CANCEL:
            self._cancel(now, call, routed)
        elif is_behind:
            return HELD
        elif self.is_serving or (self.answers_itself(call.request.action) and not call.elsewhere):
            routed.own.append(call)
        elif self._is_draining or self.leads:
            return HELD
        else:
            return self._send_on(now, call, routed)
        return NOT_HELD

    def _cancel(self, now: float, call: Call, routed: Routed) -> None:
        """End what waits: it may be held here, or be under way to who leads; where it is, there the answer is.

        One that is under way to a former leader is answered by that, or comes back and is ended here: the cancel is
        answered behind it.
        """
        client, seq = call.client, call.request.seq
        held = next((one for one in self._held.of(client) if _is_wait(one.call, seq)), None)
        if held is not None:
            self._held.remove(held)
            routed.answers.append((held.call, nothing_for(held.call.request)))
            routed.answers.append((call, done(call.request, Reply, cancelled=1)))
            return
        if self.is_serving:
            routed.own.append(call)
            return
        there = next((one for one in self.under_way.of(client) if _is_wait(one.call, seq)), None)
        if there is not None:
            there.waits_until = now
            if there.node_id != self.leader:
                there.cancels.append(call)  # its answer may be on its way, and comes first
                return
            if self._levels.get(self.leader, BASE_LEVEL) >= level_of(call.request):
                self._forward(now, call, self.leader, routed)
                return
        routed.answers.append((call, done(call.request, Reply, cancelled=0)))

    def waits(self, client: Client, seq: object) -> bool:
        """Whether a request of that client, which has that `seq`, waits here or where it was forwarded to."""
        return any(_is_wait(call, seq) for call in _calls_of(client, self._held, self.under_way))

    def _send_on(self, now: float, call: Call, routed: Routed) -> int:
        """Send it to another node, or another worker."""
        to = self._to(call.request.action)
        forwards = self._forwards or to == self._sibling or call.is_part or not is_told_addresses(call.client)
        if not to or (to not in self._linked if forwards else not self._port):
            return HELD  # it can't be reached, or where clients reach it is not known
        if not forwards:
            routed.answers.append((call, _redirect(call, self.leader, self._host, self._port)))
        elif (level := self._levels.get(to, BASE_LEVEL)) < LEVEL and level < level_of(call.request):
            reason = f"{shown(to)}, which leads, runs a version that has no such action, or no such field"
            routed.answers.append((call, refusal(call.request, ErrorWord.NOT_SUPPORTED, reason)))
        elif is_given_up(call):
            routed.answers.append((call, given_up(call.request)))
        elif not self.under_way.has_room(to, call_bytes(call), kind_of(call)):
            return HELD_FOR_CREDIT
        else:
            self._forward(now, call, to, routed)
        return NOT_HELD

    def _forward(self, now: float, call: Call, to: int, routed: Routed) -> None:
        forwarding, answer_by = self.under_way.send(now, call, to, call_bytes(call), self.leader, kind_of(call))
        self.next_at = min(self.next_at, answer_by)
        routed.forwards.append(forwarding)

    def _to(self, action: int) -> int:
        """Who does it: the leader, or this node's worker of the shard where it is asked for its own view.

        What any node's view answers as well the leader is asked for while that worker is down.
        """
        if not self._sibling or action not in ASKS_NODE:
            return self.leader
        return self.leader if action in ANY_NODE and self._sibling not in self._linked else self._sibling

    def answers_itself(self, action: int) -> bool:
        """Who leads is answered here, too, but not before it is known: a node that has just started soon knows."""
        return not self._sibling and action in ASKS_NODE and (action != Action.LEADER or self._port != 0)

    # -- holding -----------------------------------------------------------------------------------------------

    def _hold(self, call: Call, look_at: float, deadline: float, *, for_credit: bool = False) -> None:
        call.was_late = True
        self._held.add(call, look_at, deadline, for_credit=for_credit)
        self.next_at = min(self.next_at, look_at, deadline)

    def take_held(self) -> list[Call]:
        """All that is held; it is the caller's now."""
        self._to_look_at.clear()
        self.next_at = self.under_way.next_at
        return self._held.take_all()

    def _look_again(self, now: float) -> Routed:
        """Go on with what is held, in its order, if there is somewhere to go: `LOOK_MAX` calls at a time.

        The rest is looked at with the next tick, which is soon then.
        """
        self._to_look_at = deque(self._held.all())
        routed = Routed()
        self._look_on(now, routed)
        return routed

    def _look_on(self, now: float, routed: Routed) -> None:
        to_look_at = self._to_look_at
        for _ in range(min(LOOK_MAX, len(to_look_at))):
            one = to_look_at.popleft()
            if not self._held.has(one) or now < one.look_at < one.deadline:
                continue  # it was cancelled, or it came back just now
            call = one.call
            where = NOT_HELD
            if (missing := _missing_right(call)) is not None:
                routed.answers.append((call, not_allowed(call.request, missing)))
            else:
                where = self._route(now, call, routed, is_behind=self._held.is_behind(one))
            if where == NOT_HELD:
                self._held.remove(one)
            else:
                one.look_at = one.deadline
                one.for_credit = where == HELD_FOR_CREDIT
        if self.under_way.is_short:
            to_look_at.clear()  # there will be credit again, and all is looked at then
        self.next_at = now if to_look_at else min(self._held.next_at(), self.under_way.next_at)

    def credit_again(self, now: float) -> Routed:
        """Go on with what was held since too much was on its way."""
        self.under_way.has_credit = False
        return self._look_again(now)

    def leader_changed(self, now: float, message: LeaderChanged) -> Routed:
        """Somebody else leads, or nobody, or where the leader is has become known: what was held can go on."""
        if message.leader != self.leader:
            for one in self.under_way:
                is_view = one.node_id == self._sibling and one.call.request.action in ASKS_NODE
                if message.leader and one.node_id != message.leader and not is_view:
                    one.deadline = min(one.deadline, now + LAST_S)
                    self.next_at = min(self.next_at, one.deadline)
            self._is_draining = False
        self.leader, self.leads = message.leader, message.is_self
        self._host, self._port = message.host, message.port
        return self._look_again(now) if self.leader else Routed()

    def end_waits(self, word: str) -> None:
        """No consumer waits any more, also none that comes back to be asked for elsewhere: the node is stopping.

        Where it is leaving, none that can be told so. "": they may wait again.
        """
        if self._ends_waits != ErrorWord.STOPPING:
            self._ends_waits = word

    def drain(self) -> None:
        """Hold everything: this node hands its place over."""
        self._is_draining = True

    def undrain(self, now: float) -> Routed:
        """Send to the owner again: the node keeps its place."""
        self._is_draining = False
        return self._look_again(now)

    def linked(self, now: float, node_id: int, level: int = BASE_LEVEL) -> Routed:
        """Note that the link to a node, which understands feature level `level`, is open."""
        self._linked.add(node_id)
        self._levels[node_id] = level
        return self._look_again(now) if node_id in (self.leader, self._sibling) else Routed()

    def returned(self, now: float, calls: list[Call]) -> None:
        """Route again calls that came back, undone, from a node that does not lead."""
        deadlines: list[float] = []
        for call in calls:
            call.returns += 1
            call.was_late = True
            deadlines.append(now + (_patience_s(call, self._hold_s) if call.returns < RETURNS_MAX else 0.0))
        look_at = now + RETURN_S
        self._held.add_returned(calls, look_at, deadlines)
        self.next_at = min([self.next_at, look_at, *deadlines])

    def forget(self, client: Client) -> list[Answer]:
        """Let the held consumers of a client that asks nothing more wait for no message, and take none if it is gone.

        All else that it asked is done: it may have ended its side and read on, and its requests count as open.
        """
        answers: list[Answer] = []
        for one in self._held.of(client):
            if consumes(one.call) and not may_consume(one.call):
                self._held.remove(one)
                answers.append((one.call, nothing_for(one.call.request)))
        return answers

    def tick(self, now: float) -> Routed:
        """Time has passed: look again at what came back, and give up what waited too long."""
        routed = Routed()
        if now < self.next_at:
            return routed
        routed.answers, self._ended = self._ended, []
        late = self._held.late(now, GIVE_UP_MAX)
        for one in late:
            self._held.remove(one)
            routed.answers.append(_given_up(one))
        for serial in self.under_way.late(now, GIVE_UP_MAX):
            self._give_up(now, serial, routed)
        if not self._to_look_at and len(late) < GIVE_UP_MAX and self._held.next_at() <= now:
            self._to_look_at = deque(self._held.all())
        self._look_on(now, routed)
        return routed

    # -- forwarding --------------------------------------------------------------------------------------------

    def came_back(self, now: float, node_id: int, serials: list[int]) -> None:
        """Route again calls to a node that were not done: they did not leave this one, or that one does not lead."""
        for one in self.under_way.take_those(node_id, serials):
            self._again(now, one)

    def _again(self, now: float, one: Outgoing) -> None:
        """Ask for it again; it waits only for what is left of its time, and not at all if its client has ended that."""
        request = one.call.request
        if one.cancels:
            self._ended += [(one.call, nothing_for(request)), *one.cancelled(1)]
            self.next_at = now
            return
        if request.wait:
            left_s = max(min(request.wait, one.waits_until - now), 0.001)
            one.call.request = replace(request, wait=left_s)
        self.returned(now, [one.call])

    def link_lost(self, now: float, node_id: int, last_serial: int | None = None) -> None:
        """No answer of that node will come: to calls behind number `last_serial`, since they have not left.

        Those go elsewhere, the others are given up with the next ticks. Without `last_serial` the link to it holds, and
        what it says is lost: it may have done any of them.
        """
        if last_serial is not None:
            self._linked.discard(node_id)
        lost = self.under_way.lost(now, node_id)
        if last_serial is not None:
            self.came_back(now, node_id, [serial for serial in lost if serial > last_serial])
        if lost:
            self.next_at = now

    def _give_up(self, now: float, serial: int, routed: Routed) -> None:
        one = self.under_way.take_back(serial)
        request = one.call.request
        if request.action in LOOKS and not is_quick(one.call):
            self._again(now, one)
            return
        what = WAS_LOST if one.is_lost else IS_LATE
        reason = f"{shown(one.node_id)}, which the request was forwarded to, {what}: it may have been done or not"
        routed.answers += [(one.call, refusal(request, ErrorWord.UNKNOWN_OUTCOME, reason)), *one.cancelled(0)]

    def rejudged(self, client: Client, principal: Principal) -> list[ForwardedClient]:
        """Judge what a client has open, since what it may do has changed. If it waits elsewhere for what it may not
        have, gives what other nodes know it by, which is to wait no more; it has another number from then on."""
        mine = _calls_of(client, self._held, self.under_way)
        for call in mine:
            call.principal = principal
        waits = any(consumes(call) and principal.rights.missing(call.request) for call in mine)
        return self.under_way.renewed(client) if waits else []


def _patience_s(call: Call, hold_s: float) -> float:
    """For how long it is held at most. What another worker asks for its client has been bounded there."""
    asked_s = call.request.patience
    if asked_s is None:
        return hold_s
    return asked_s if call.is_part else min(asked_s, PATIENCE_MAX * hold_s)


def _redirect(call: Call, leader: int, host: str, port: int) -> RedirectReply:
    """Where its client is to ask."""
    return RedirectReply(
        action=call.request.action,
        code=Code.REDIRECT,
        queue=call.request.queue,
        seq=call.request.seq,
        error=ErrorWord.REDIRECT,
        reason=f"node {node_of(leader)} leads: ask {host}:{port}",
        leader_node_id=node_of(leader),
        leader_host=host,
        leader_port=port,
    )


def _given_up(held: Held) -> Answer:
    """Give up a call that was held for as long as it may be."""
    request = held.call.request
    if held.for_credit:
        reason = "too much is on its way to the node that leads: the request was not done"
        return held.call, refusal(request, ErrorWord.OVERLOADED, reason)
    reason = "no node could be asked that leads, for as long as the request may wait; it was not done"
    return held.call, refusal(request, ErrorWord.NO_LEADER, reason)


def _missing_right(call: Call) -> str | None:
    """Refuse what its client may not do (any more), of a call that was held: it may have been elsewhere when that
    changed."""
    call.principal = getattr(call.client, "principal", None) or call.principal
    return call.principal.rights.missing(call.request)


def _may_not_wait(call: Call, word: str) -> bool:
    """Whether it would wait where no consumer does, or none of those that can be told that the node is leaving."""
    if not consumes(call) or not call.request.wait:
        return False
    return word == ErrorWord.STOPPING or bool(call.request.as_job)


def _calls_of(client: Client, held: HeldCalls, under_way: UnderWay) -> list[Call]:
    """Give what a client has open here: what is held, and what was forwarded."""
    return [*[one.call for one in held.of(client)], *[one.call for one in under_way.of(client)]]


def _is_wait(call: Call, seq: object) -> bool:
    return call.request.seq == seq and consumes(call) and bool(call.request.wait)
