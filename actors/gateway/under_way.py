"""What is under way to other nodes and workers: forwarded calls without an answer yet, and their credit.

`UnderWay` is a machine. Each call has a serial number, by which its answer is known, and a time by which that must be
there. What is on its way to one node, and what may come back, is counted in bytes: with more than the credit, the
next must wait.

`Asked` puts what this worker's clients want of others into frames. Calls for one destination leave together, cut into
frames that are not too long: the cluster's own words wait behind each. With several clients the next calls mostly
come in the turn after their answers, and are waited for (`CommitDelay`). `Voice` says what a Router's parts say to
other nodes and workers, by their keys.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from actors.messages.call import Answer, Call, Client, is_given_up
from actors.messages.mailbox import Mailbox
from actors.messages.mailboxes import ToLinks
from actors.messages.peers import CutPeer, SendPeers, node_of
from actors.runtime.commit_delay import CommitDelay
from actors.runtime.contract import Runtime
from net.clients.reply_length import ALONE, LONG, ONE_MESSAGE, SHORT, reply_length
from net.peers.forwarding import packed_call
from net.peers.messages import Forward, ForwardedCall
from quorate.actions import ASKS_NODE, LOOKS, WAITS
from quorate.protocol import NAME_BYTES_MAX, NO_DATA, Reply, Request, TransactionRequest, done

ANSWER_S: Final = 10.0
"""What a forwarded request may take beyond what it asks to wait, and what its way takes: see `SLOW_BYTES_PER_S`."""

SLOW_BYTES_PER_S: Final = 256 << 10
"""So slow may a link be: a request gets the time that all before it, and it, take on such a one."""

CREDIT_BYTES: Final = 16 << 20
"""What may be on its way to another node, or be expected back, at once; beyond it requests are held here."""

LOOKS_SHARE: Final = 0.5
"""What only looks gets so much of it at most."""

LONG_WAY_S: Final = 0.5
"""A call of a half-closed client that takes longer to its leader than this is late: several times a long link's way."""

CALL_BYTES: Final = 512
"""What a call takes beside its payloads, about."""

WAITING_BYTES: Final = 64
"""What one takes that waits there: it has long arrived, and its answer is small."""

WORK, LOOK, WAIT = range(3)
"""What calls do. Work and looks share the credit, looks have a part of it; waits, which last, have one of their own."""

POOLS: Final = ((WORK,), (WORK, LOOK), (WAIT,))
"""Of each kind, what it is counted in."""

ID_BYTES: Final = 9

REPLY_BYTES: Final = {LONG: 256 << 10, ONE_MESSAGE: 4096, SHORT: 0, ALONE: 0}
"""What is reckoned for a reply. Of a batch that is consumed it is mostly much less than it may be."""

LONG_LOOK_BYTES: Final = CREDIT_BYTES // 4
"""Who only looks may be shown as much again and again: so few of those are on their way at once."""

ANSWERED_AT_ONCE: Final = (LOOKS | ASKS_NODE) - WAITS


FORWARD_BYTES: Final = 1 << 20
"""What one frame of forwarded calls or answers has at most, or one of them."""


@dataclass(slots=True)
class Outgoing:
    """A call that was forwarded to `node_id` at `sent_at` and is not answered; `deadline` (monotonic s).

    Its client waits until `waits_until`, if it does. `size`: what it takes of the credit (bytes) for its `kind`.
    `is_lost`: its answer is not late, but will not come. `cancels`: requests to end its wait, answered behind it.
    """

    call: Call
    node_id: int
    sent_at: float
    deadline: float
    waits_until: float
    size: int
    kind: int = WORK
    is_lost: bool = False
    cancels: list[Call] = field(default_factory=list)

    def cancelled(self, count: int) -> list[Answer]:
        """Answer the requests to end its wait: so many waits were ended by them."""
        return [(call, done(call.request, Reply, cancelled=count)) for call in self.cancels]


NONE: Final[dict[int, Outgoing]] = {}


@dataclass(slots=True)
class ForwardedClient:
    """A client whose calls were forwarded: the number that other nodes know it by, and the node that knows it last.

    `is_former`: it has another number by now.
    """

    number: int
    node_id: int
    is_former: bool = False


@dataclass(slots=True)
class Forwarding:
    """A call that is to be forwarded to the node or worker `to`: its serial number, and its client's."""

    to: int
    serial: int
    client: int
    call: Call


class UnderWay:
    """What one Routing has forwarded. `credit_bytes`: see `CREDIT_BYTES`; one call may always be under way.

    Who works is not kept waiting by who looks, or by those who wait: see `WORK`.

    `next_at` (monotonic s): the earliest time by which an answer is missing. `has_credit`: what had to wait may go on.
    """

    def __init__(self, credit_bytes: int) -> None:
        self.has_credit = False
        self._allowed = (credit_bytes, int(credit_bytes * LOOKS_SHARE), credit_bytes)
        self._bytes: dict[tuple[int, int], int] = {}
        self._short: set[tuple[int, int]] = set()
        self._serial = 0
        self._calls: dict[int, Outgoing] = {}
        self._of: dict[Client, dict[int, Outgoing]] = {}
        self._clients: dict[Client, list[ForwardedClient]] = {}
        self._next_number = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter([*self._calls.values()])

    @property
    def next_at(self) -> float:
        """When the first of them is late (monotonic s); infinite if there is none."""
        return min((one.deadline for one in self._calls.values()), default=math.inf)

    @property
    def is_short(self) -> bool:
        """Whether a call waits for credit."""
        return bool(self._short)

    def has_room(self, to: int, size: int, kind: int = WORK) -> bool:
        """Whether so many bytes more may be on their way to that node; if not, `has_credit` says when."""
        for pool in POOLS[kind]:
            if (there := self._bytes.get((to, pool), 0)) and there + size > self._allowed[pool]:
                self._short.add((to, pool))
                return False
        return True

    def send(
        self, now: float, call: Call, to: int, size: int, leader: int, kind: int = WORK
    ) -> tuple[Forwarding, float]:
        """Send it to that node; with the time by which its answer must be there."""
        self._serial += 1
        is_nobodys = call.is_single or call.client.has_left or to != leader
        number = 0 if is_nobodys else self._number_of(call.client, leader)
        patience_s = call.request.patience
        for pool in POOLS[kind]:
            self._bytes[to, pool] = self._bytes.get((to, pool), 0) + size
        answer_s = ANSWER_S + self._bytes.get((to, WORK), 0) / SLOW_BYTES_PER_S
        if patience_s is not None and is_quick(call):
            answer_s = patience_s
        waits_until = now + (call.request.wait or 0.0)
        deadline = waits_until + answer_s
        one = self._calls[self._serial] = Outgoing(call, to, now, deadline, waits_until, size, kind)
        of_client = self._of.get(call.client)
        if of_client is None:
            of_client = self._of[call.client] = {}
        of_client[self._serial] = one
        return Forwarding(to, self._serial, number, call), deadline

    def _number_of(self, client: Client, leader: int) -> int:
        numbers = self._clients.get(client)
        if numbers is None:
            numbers = self._clients[client] = []
        if not numbers or numbers[-1].is_former:
            self._next_number += 1
            numbers.append(ForwardedClient(self._next_number, leader))
        numbers[-1].node_id = leader
        return numbers[-1].number

    def answered(self, node_id: int, serial: int, reply: Reply) -> list[Answer]:
        """Take a node's reply to a call, and behind it the replies to requests that were to end its wait; none if it
        was not forwarded to that node, or is answered already."""
        one = self._calls.get(serial)
        if one is None or one.node_id != node_id:
            return []
        self.take_back(serial)
        one.call.was_forwarded = True
        return [(one.call, reply), *one.cancelled(0)]

    def take_back(self, serial: int) -> Outgoing:
        """Note that it is on its way no more: there is credit for others, which are looked at when half of all is
        free."""
        one = self._calls.pop(serial)
        of_client = self._of[one.call.client]
        del of_client[serial]
        if not of_client:
            del self._of[one.call.client]
        for pool in POOLS[one.kind]:
            key = (one.node_id, pool)
            self._bytes[key] = left = self._bytes[key] - one.size
            if key in self._short and left <= self._allowed[pool] // 2:
                self._short.discard(key)
                self.has_credit = True
        return one

    def take_those(self, node_id: int, serials: list[int]) -> list[Outgoing]:
        """Those of the calls that were forwarded to that node and are not answered; they are the caller's now."""
        return [self.take_back(serial) for serial in serials if self._is_at(node_id, serial)]

    def _is_at(self, node_id: int, serial: int) -> bool:
        one = self._calls.get(serial)
        return one is not None and one.node_id == node_id

    def of(self, client: Client) -> list[Outgoing]:
        """Give what that client waits for."""
        return [*self._of.get(client, NONE).values()]

    def lost(self, now: float, node_id: int) -> list[int]:
        """Note that what that node has not answered it will not answer: it is late from now on. Its serial numbers."""
        serials: list[int] = []
        for serial, one in self._calls.items():
            if one.node_id == node_id:
                serials.append(serial)
                one.is_lost = True
                one.deadline = now
        return serials

    def late(self, now: float, most: int) -> list[int]:
        """Give the serial numbers of those whose answer is missing, the first `most` of them."""
        serials: list[int] = []
        for serial, one in self._calls.items():
            if one.deadline <= now:
                serials.append(serial)
                if len(serials) == most:
                    break
        return serials

    def still_there(self, now: float, node_id: int, serials: list[int]) -> list[int]:
        """Those of the calls that a node asks about that are to be done still: their clients have not given them up.

        One that left this node longer than `LONG_WAY_S` ago was late.
        """
        found: list[int] = []
        for serial in serials:
            if self._is_at(node_id, serial):
                one = self._calls[serial]
                one.call.was_late = one.call.was_late or now - one.sent_at > LONG_WAY_S
                if not is_given_up(one.call):
                    found.append(serial)
        return found

    @property
    def clients(self) -> list[ForwardedClient]:
        """Those whose calls were forwarded."""
        return [one for numbers in self._clients.values() for one in numbers]

    def known(self, client: Client) -> list[ForwardedClient]:
        """Say what other nodes know a client by, if calls of it were forwarded."""
        return [*self._clients.get(client, ())]

    def renewed(self, client: Client) -> list[ForwardedClient]:
        """Say what other nodes know a client by; what is forwarded from now on has another number."""
        known = self.known(client)
        for one in known:
            one.is_former = True
        return known

    def client_gone(self, client: Client) -> list[ForwardedClient]:
        """Say what other nodes know a client by that is gone, and forget it."""
        return self._clients.pop(client, [])


def kind_of(call: Call) -> int:
    """Which part of the credit it takes."""
    if call.request.wait and call.request.action in WAITS:
        return WAIT
    return LOOK if call.request.action in LOOKS else WORK


def call_bytes(call: Call) -> int:
    """Reckon what a call takes of a link, there and back, about."""
    request = call.request
    length = reply_length(request)
    size = CALL_BYTES + REPLY_BYTES[length]
    if request.wait and request.action in WAITS:
        size = WAITING_BYTES
    elif length == LONG and request.action in LOOKS:
        size = LONG_LOOK_BYTES
    if isinstance(request, TransactionRequest):
        size += sum([CALL_BYTES + _request_bytes(one) for one in request.operations])
    return size + _request_bytes(request)


def _request_bytes(request: Request) -> int:
    """Count what it has that may be large."""
    size = 0
    if request.data is not NO_DATA:
        size += memoryview(request.data).nbytes
    if request.messages is not None:
        size += sum(CALL_BYTES + memoryview(item.data).nbytes for item in request.messages)
    if request.queues is not None or request.msg_ids is not None:
        size += NAME_BYTES_MAX * len(request.queues or ()) + ID_BYTES * len(request.msg_ids or ())
    return size


def is_quick(call: Call) -> bool:
    """Whether it is a part of a list or a status: that says what is missing rather than waiting for it."""
    return call.is_part and call.request.action in ANSWERED_AT_ONCE and not call.request.wait


class Voice:
    """One Router's; `links` is known before any message comes."""

    def __init__(self) -> None:
        self.links: Mailbox[ToLinks]
        self.has_ended = False

    def say(self, key: int, message: Any) -> None:
        """Say this to that one, if there is a link."""
        if not self.has_ended:
            self.links.tell(SendPeers((key,), message))

    def cut(self, key: int, reason: str) -> None:
        """Say that what that one says can't be right."""
        self.links.tell(CutPeer(key, reason))


class Asked:
    """One Router's, in this life of it, `session`. `forward_bytes`: see `FORWARD_BYTES`."""

    def __init__(self, runtime: Runtime, voice: Voice, forward_bytes: int) -> None:
        self.session = int(runtime.random() * (1 << 48))
        self._runtime = runtime
        self._voice = voice
        self._forward_bytes = forward_bytes
        self._unsent: dict[int, list[Forwarding]] = {}
        self._gathering = CommitDelay()
        self._is_gathering = False

    @property
    def _unsent_count(self) -> int:
        return sum(map(len, self._unsent.values()))

    def forward(self, forwards: list[Forwarding]) -> None:
        """Send these, now or with more that will come soon."""
        for one in forwards:
            self._unsent.setdefault(one.to, []).append(one)
        self._send_or_gather()

    def answered(self, count: int) -> None:
        """So many calls were answered: their clients may ask again in a moment."""
        self._gathering.committed(self._runtime.monotonic(), self._unsent_count, count, is_shared=True)

    def _send_or_gather(self) -> None:
        is_near = all(to < 0 and not node_of(to) for to in self._unsent)  # written to in microseconds: no wait
        now = self._runtime.monotonic()
        if is_near or self._gathering.is_over(now, self._unsent_count):
            self.send()
        elif not self._is_gathering:
            self._is_gathering = True
            self._runtime.call_later(self._gathering.left_s(now), self._gathered)

    def _gathered(self) -> None:
        self._is_gathering = False
        if self._unsent:
            self._send_or_gather()

    def send(self) -> None:
        """All that has gathered leaves."""
        unsent, self._unsent = self._unsent, {}
        for to, forwards in unsent.items():
            self._send_to(to, forwards)

    def _send_to(self, to: int, forwards: list[Forwarding]) -> None:
        calls: list[ForwardedCall] = []
        size = 0
        for one in forwards:
            call = one.call
            grown = call_bytes(call)
            if calls and size + grown > self._forward_bytes:
                self._voice.say(to, Forward(self.session, calls))
                calls, size = [], 0
            calls.append(packed_call(one.serial, one.client, call.reply_bytes_max, call.request, call.principal.name))
            size += grown
        if calls:
            self._voice.say(to, Forward(self.session, calls))

    def take_back(self, to: int) -> list[int]:
        """Take back what has not left for that node or worker; its serial numbers."""
        return [one.serial for one in self._unsent.pop(to, ())]
