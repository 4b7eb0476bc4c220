"""Routing: where a request goes. A machine; its host is the Router.

What asks about this node is answered here; everything else is for the leader. Where another node leads, a request is
forwarded to it, or its client is sent there (`forward_request` 0). While nobody leads, and while a leader hands its
place over, requests are held; after `HOLD_S` they are refused, never guessed at. A forwarded request whose answer can't
come any more is sent again if it only looks; otherwise its client is told that the outcome is unknown.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from actors.messages.calls import Answer, Call, Client
from actors.messages.peers import LeaderChanged
from net.peers.messages import ForwardedCall
from quorate.actions import ASKS_NODE, LOOKS
from quorate.protocol import Action, Code, EncodedReply, ErrorWord, RedirectReply, refusal

HOLD_S: Final = 4.0
"""How long a request waits for a leader: some elections."""

RETURN_S: Final = 0.02
"""After this a request that came back is looked at again."""

ANSWER_S: Final = 10.0
"""What a forwarded request may take beyond what it asks to wait."""

RETURNS_MAX: Final = 100
"""So often a request may come back undone: some seconds in which nodes do not agree who leads."""

LAST_S: Final = 1.0
"""What a former leader has to answer what was forwarded to it."""

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Outgoing:
    """A call that was forwarded to `node_id` and is not answered; `deadline` (monotonic s)."""

    call: Call
    node_id: int
    deadline: float


@dataclass(slots=True)
class Routed:
    """What is to be done with calls: `own` by this node, `forwards` by the node `to`; `answers` are final."""

    own: list[Call] = field(default_factory=list)
    forwards: list[ForwardedCall] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    to: int = 0


class Routing:
    """One node's. `forwards` False: redirect. `linked` are the nodes that a link is open to.

    Times are monotonic seconds.
    """

    def __init__(self, *, forwards: bool) -> None:
        self.leader = 0
        self.leads = False
        self._host = ""
        self._port = 0
        self._is_draining = False
        self._forwards = forwards
        self._held: list[tuple[float, float, Call]] = []
        self._serial = 0
        self._outgoing: dict[int, Outgoing] = {}
        self._client_numbers: dict[Client, int] = {}
        self._next_number = 0
        self.linked: set[int] = set()

    @property
    def is_direct(self) -> bool:
        """Whether every request is for this node's owner."""
        return self.leads and not self._is_draining

    @property
    def next_at(self) -> float:
        """When `tick` has something to do."""
        held = min((min(look_at, deadline) for look_at, deadline, _ in self._held), default=float("inf"))
        return min(held, min((one.deadline for one in self._outgoing.values()), default=float("inf")))

    @property
    def has_open(self) -> bool:
        """Whether anything is held or waits for another node's answer."""
        return bool(self._held or self._outgoing)

    def route(self, now: float, calls: list[Call], until: float | None = None) -> Routed:
        """Where each of the calls goes; none is held for longer than `until`."""
        routed = Routed(to=self.leader)
        deadline = now + HOLD_S if until is None else until
        waiting = {held[2].client for held in self._held}
        for call in calls:
            if waiting and call.client in waiting and not call.is_single:
                self._held.append((now + RETURN_S, deadline, call))  # a client's requests are done in their order
            elif self.is_direct or self._is_for_this_node(call.request.action):
                routed.own.append(call)
            elif not self.leader or self._is_draining or self.leads:
                self._held.append((deadline, deadline, call))
            elif self._forwards and self.leader not in self.linked:
                self._held.append((now + RETURN_S, deadline, call))
            elif self._forwards:
                routed.forwards.append(self._forwarded(now, call))
            else:
                routed.answers.append((call, self._redirect(call)))
        return routed

    def _is_for_this_node(self, action: int) -> bool:
        """Who leads is answered here, too, but not before it is known: a node that has just started soon knows."""
        return action in ASKS_NODE and (action != Action.LEADER or self.leader != 0)

    def leader_changed(self, now: float, message: LeaderChanged) -> Routed:
        """Somebody else leads, or nobody: what was held can go on."""
        if message.leader != self.leader:
            for one in self._outgoing.values():
                if message.leader and one.node_id != message.leader:
                    one.deadline = min(one.deadline, now + LAST_S)
            self._is_draining = False
        self.leader, self.leads = message.leader, message.is_self
        self._host, self._port = message.host, message.port
        return self._release(now)

    def drain(self) -> None:
        """Hold everything: this node hands its place over."""
        self._is_draining = True

    def undrain(self, now: float) -> Routed:
        """It keeps its place."""
        self._is_draining = False
        return self._release(now)

    def returned(self, now: float, calls: list[Call]) -> None:
        """Calls that came back from a node that does not lead, undone."""
        for call in calls:
            call.returns += 1
            patience_s = HOLD_S if call.returns < RETURNS_MAX else 0.0
            self._held.append((now + RETURN_S, now + patience_s, call))

    def forget_held(self, client: Client) -> None:
        """A client is gone: what is held for it is not done any more."""
        self._held = [held for held in self._held if held[2].client is not client]

    def take_held(self) -> list[Call]:
        """All that is held; it is the caller's now."""
        held, self._held = self._held, []
        return [call for _, _, call in held]

    def _release(self, now: float) -> Routed:
        """What was held can go on, if there is somewhere to go."""
        if not self.leader or self._is_draining:
            return Routed()
        held, self._held = self._held, []
        return self._route_held(now, held)

    def _route_held(self, now: float, held: list[tuple[float, float, Call]]) -> Routed:
        routed = Routed(to=self.leader)
        for _, deadline, call in held:
            one = self.route(now, [call], deadline)
            routed.own += one.own
            routed.forwards += one.forwards
            routed.answers += one.answers
        return routed

    def tick(self, now: float) -> Routed:
        """Time has passed: look again at what came back, and give up what waited too long."""
        late = [held for held in self._held if held[1] <= now]
        due = [held for held in self._held if held[0] <= now < held[1]]
        self._held = [held for held in self._held if held[0] > now and held[1] > now]
        routed = self._route_held(now, due)
        reason = f"no node could be asked that leads, for {HOLD_S:g} s; the request was not done"
        routed.answers += [(call, refusal(call.request, ErrorWord.NO_LEADER, reason)) for _, _, call in late]
        silent = [serial for serial, one in self._outgoing.items() if one.deadline <= now]
        for serial in silent:
            one = self._outgoing.pop(serial)
            if one.call.request.action in LOOKS:
                self.returned(now, [one.call])
            else:
                routed.answers.append(self._lost(one, "did not answer in time"))
        return routed

    # -- forwarding --------------------------------------------------------------------------------------------

    def _forwarded(self, now: float, call: Call) -> ForwardedCall:
        self._serial += 1
        number = 0 if call.is_single else self._client_numbers.get(call.client)
        if number is None:
            self._next_number += 1
            number = self._client_numbers[call.client] = self._next_number
        self._outgoing[self._serial] = Outgoing(call, self.leader, now + ANSWER_S + (call.request.wait or 0.0))
        return ForwardedCall(self._serial, number, call.reply_bytes_max, _encode(call.request))

    def answered(self, serial: int, reply: bytes) -> Answer | None:
        """The leader's reply to a forwarded call, as JSON."""
        one = self._outgoing.pop(serial, None)
        if one is None:
            return None
        return one.call, EncodedReply(action=one.call.request.action, code=Code.OK, encoded=reply)

    def came_back(self, now: float, node_id: int, serials: list[int]) -> None:
        """The node that these were forwarded to does not lead."""
        for serial in serials:
            one = self._outgoing.pop(serial, None)
            if one is not None:
                request = one.call.request
                if request.wait:
                    request.wait = max(min(request.wait, one.deadline - ANSWER_S - now), 0.001)
                self.returned(now, [one.call])

    def link_lost(self, now: float, node_id: int) -> list[Answer]:
        """What was forwarded to that node may have arrived or not, and no answer will come."""
        lost = [serial for serial, one in self._outgoing.items() if one.node_id == node_id]
        answers: list[Answer] = []
        for serial in lost:
            one = self._outgoing.pop(serial)
            if one.call.request.action in LOOKS:
                self.returned(now, [one.call])
            else:
                answers.append(self._lost(one, "was lost"))
        return answers

    def _lost(self, one: Outgoing, what: str) -> Answer:
        reason = f"node {one.node_id}, which the request was forwarded to, {what}: it may have been done or not"
        return one.call, refusal(one.call.request, ErrorWord.UNKNOWN_OUTCOME, reason)

    @property
    def client_numbers(self) -> list[int]:
        """The numbers of all clients whose calls were forwarded."""
        return list(self._client_numbers.values())

    def client_gone(self, client: Client) -> int | None:
        """Its number, if calls of it were forwarded."""
        return self._client_numbers.pop(client, None)

    def _redirect(self, call: Call) -> RedirectReply:
        return RedirectReply(
            action=call.request.action,
            code=Code.REDIRECT,
            queue=call.request.queue,
            seq=call.request.seq,
            error=ErrorWord.REDIRECT,
            reason=f"node {self.leader} leads: ask {self._host}:{self._port}",
            leader_node_id=self.leader,
            leader_host=self._host,
            leader_port=self._port,
        )
