"""Replies that wait until so many nodes have what they tell of: more, or fewer, than a majority. A part of the ledger.

Such a reply is given up after a while, with its client, or when the time is over that was asked for; then what was
produced is removed again, where that was asked for, too, and nobody was given it.
"""

import heapq
import math
from collections import deque
from typing import Any, Final, Protocol

from actors.messages.call import Answer, Call, Client
from actors.shard.lease import Lease
from quorate.protocol import ErrorWord, Reply, refusal
from storage.kinds import LOST
from storage.message import Made, Message
from storage.message_ids import named
from storage.queue_state import NEVER
from storage.records import Clear
from storage.state import ShardState

REPLICATED_S: Final = 10.0
"""A reply that waits for more nodes than a majority is given up after so long: some of them may be down for good."""


STALE_MAX: Final = 1000
"""So many deadlines may be left over in any case of what is over."""


class Books(Protocol):
    """What is needed of the ledger that this is a part of."""

    state: ShardState
    now: float
    committed: int
    lease: Lease
    answers: list[Answer]

    def append(self, record: Made) -> None:
        """See `Ledger.append`."""


class _Replicated:
    """A reply that waits until `nodes` nodes have record `trans_id`, or until `until` (monotonic s).

    `message`: what was produced for somebody who wants it gone where it is not there in time.
    """

    __slots__ = ("call", "is_over", "message", "nodes", "reply", "trans_id", "until")

    def __init__(
        self, trans_id: int, nodes: int, until: float, call: Call, reply: Reply, message: Message | None
    ) -> None:
        self.trans_id = trans_id
        self.nodes = nodes
        self.until = until
        self.call = call
        self.reply = reply
        self.message = message
        self.is_over = False


class ReplicatedReplies:
    """Those of one ledger. `majority` is of the cluster's voters; `of_messages`: those that are about one that is to go
    where it is not there in time, by its id.
    """

    def __init__(self, ledger: Books) -> None:
        self.majority = 1
        self._ledger = ledger
        self._lines: dict[int, deque[_Replicated]] = {}
        self._of: dict[Client, list[_Replicated]] = {}
        self.of_messages: dict[int, _Replicated] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._known: tuple[int, tuple[int, ...]] = (0, ())

    def __len__(self) -> int:
        return sum([len(line) for line in self._lines.values()])

    @property
    def is_awaited(self) -> bool:
        """Whether anyone waits."""
        return bool(self._of)

    @property
    def is_counted(self) -> bool:
        """Whether anyone waits for other nodes' disks than those that a commit needs."""
        return bool(self._of) and any(line and nodes not in (1, self.majority) for nodes, line in self._lines.items())

    def answer_when_stored(
        self, nodes: int, call: Call, reply: Reply, wait_s: float | None, made: Message | None = None
    ) -> None:
        """Answer when all that is applied by now is on the disks of so many nodes; 1: on this one's.

        Not within `wait_s` (0: that takes as long as it takes): then it is refused, and `made`, if that is given, is
        removed, unless somebody was given it.
        """
        allowed_s = REPLICATED_S if wait_s is None else wait_s or math.inf
        waiting = _Replicated(self._ledger.state.trans_id, nodes, self._ledger.lease.now + allowed_s, call, reply, made)
        self._lines.setdefault(nodes, deque()).append(waiting)
        self._of.setdefault(call.client, []).append(waiting)
        if wait_s:
            heapq.heappush(self._deadlines, (self._ledger.now + wait_s, made.msg_id if made is not None else 0))
        if made is not None:
            self.of_messages[made.msg_id] = waiting

    @property
    def next_deadline(self) -> float:
        """When `give_up_late` has something to do (Unix seconds)."""
        return self._deadlines[0][0] if self._deadlines else NEVER

    def give_up_late(self) -> None:
        """Refuse what was to be on more nodes by now, and remove it."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= self._ledger.now:
            waiting = self.of_messages.get(heapq.heappop(deadlines)[1])
            if waiting is not None:
                self._end(waiting)
                self._not_replicated(waiting, f"{waiting.nodes} nodes were asked for, and did not have it in time")

    def noted(self, record: Made) -> None:
        """Note that a record was made: who waits for a message that has expired, or was removed, waits no more."""
        if type(record) in LOST:
            lost: Any = record
            for msg_id in lost.msg_ids:
                waiting = self.of_messages.get(msg_id)
                if waiting is not None:
                    self._end(waiting)
                    self._not_replicated(waiting, "it has expired, or was removed, before so many nodes had it")

    def _not_replicated(self, waiting: _Replicated, reason: str) -> None:
        """Let its message go, if nobody was given it: it is not there where it was to be."""
        made, request = waiting.message, waiting.call.request
        if made is None:
            self._ledger.answers.append((waiting.call, refusal(request, ErrorWord.UNKNOWN_OUTCOME, reason)))
            return
        reply = refusal(request, ErrorWord.NOT_REPLICATED, reason)
        if self._ledger.state.messages.get(made.msg_id) is made:
            if not made.deliveries:
                self._ledger.append(Clear(made.queue, *named([made])))
        elif not made.deliveries:
            reply.error = ErrorWord.NO_SUCH_MESSAGE  # it has expired, or was cleared
        self._ledger.answers.append((waiting.call, reply))

    def durable(self, durable: int, replicas: tuple[int, ...]) -> None:
        """Note that this node's disk has the records up to `durable`; n nodes have those up to the n-th of
        `replicas`."""
        self._known = durable, replicas
        for nodes, line in self._lines.items():  # one line for each number: what is done stands at its head
            while line and (line[0].is_over or self._is_over(line[0], durable, replicas)):
                waiting = line.popleft()
                if not waiting.is_over:
                    self._end(waiting)
                    self._answer(waiting, nodes, replicas)

    def committed(self) -> None:
        """Note that more is committed: a commit may go in pieces behind what `durable` said."""
        if self._of:
            self.durable(*self._known)

    def _is_over(self, waiting: _Replicated, durable: int, replicas: tuple[int, ...]) -> bool:
        """Whether it is on as many disks as were asked for, or can't be any more, or has waited for too long."""
        trans_id, nodes = waiting.trans_id, waiting.nodes
        if nodes == 1:
            is_done = trans_id <= durable
        elif nodes > len(replicas):
            is_done = trans_id <= self._ledger.committed
        else:
            is_done = trans_id <= replicas[nodes - 1] and (nodes < self.majority or trans_id <= self._ledger.committed)
        return is_done or self._ledger.lease.now >= waiting.until

    def _answer(self, waiting: _Replicated, nodes: int, replicas: tuple[int, ...]) -> None:
        has_it = sum(waiting.trans_id <= replica for replica in replicas)
        is_committed = waiting.trans_id <= self._ledger.committed
        if has_it >= nodes and (is_committed or nodes < self.majority):
            self._ledger.answers.append((waiting.call, waiting.reply))
            return
        if has_it >= nodes:  # among them some that do not vote
            reason = f"{has_it} nodes have it, and after {REPLICATED_S:g} s no majority of those that vote"
        elif nodes > len(replicas):
            reason = f"{nodes} nodes were asked for, and there are {len(replicas)} by now; those have it"
        else:
            reason = f"{nodes} nodes were asked for, and after {REPLICATED_S:g} s {has_it} have it"
        self._not_replicated(waiting, reason)

    def forget(self, client: Client) -> None:
        """Let a client's replies wait for no disks any more, since it is gone. What it asked for is done as far as it
        is."""
        for waiting in list(self._of.get(client, ())):
            self._end(waiting)
            self._not_replicated(waiting, f"{waiting.nodes} nodes were asked for, and its client is gone")

    def _end(self, waiting: _Replicated) -> None:
        waiting.is_over = True
        if waiting.message is not None:
            self.of_messages.pop(waiting.message.msg_id, None)
            if len(self._deadlines) > 2 * len(self.of_messages) + STALE_MAX:
                self._deadlines = [one for one in self._deadlines if one[1] in self.of_messages]
                heapq.heapify(self._deadlines)
        mine = self._of.get(waiting.call.client)
        if mine is not None:
            mine.remove(waiting)
            if not mine:
                del self._of[waiting.call.client]

    def take_open(self) -> list[tuple[int, Call, Reply]]:
        """All of them, and behind which record each: they do not wait any more."""
        taken = [
            (one.trans_id, one.call, one.reply) for line in self._lines.values() for one in line if not one.is_over
        ]
        self._lines.clear()
        self._of.clear()
        self._deadlines.clear()
        self.of_messages.clear()
        return taken
