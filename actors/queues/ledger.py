"""The ledger: numbers records, applies them as they are made, and holds replies back until they are durable.

The one rule here is the promise of a reply: what it says was true of committed state. So a reply is parked until
all that had been applied when it was made is committed; only a delivery that may be repeated (design.md, section 1)
is answered at once. A produced message is shown to nobody before its record is committed.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from actors.messages.call import Answer, Call, Client
from actors.queues.totals import Counting
from quorate.actions import WRITES
from quorate.protocol import ErrorWord, Reply, refusal
from storage.message import Made, Message
from storage.message_ids import message_id, named
from storage.queue_state import NEVER, ORIGINAL, QueueState
from storage.records import LEVEL, Clear
from storage.state import ShardState

REPLICATED_S: Final = 10.0
"""A reply that waits for more nodes than a majority is given up after so long: some of them may be down for good."""


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


_ORIGINAL: Final = ORIGINAL  # there is no other that is equal to it: see QueueAdmin.set_limits


class Ledger:
    """What one shard's owner has made and not yet seen committed. All times are the leader's, Unix seconds.

    `majority` is of the cluster's voters; `is_leased`: no other node can be leading now, so what this one knows of a
    message holds. `committed`: how far the state is settled, all of it unless said otherwise. `new_queue` is what
    a new queue is set to, `level` the feature level that records may use.
    """

    def __init__(self, state: ShardState, committed: int | None = None) -> None:
        self.state = state
        self.now = state.time
        self.committed = state.trans_id if committed is None else committed
        self.new_queue = ORIGINAL
        self.level = LEVEL
        self.records: list[Made] = []
        self.counting = Counting()
        self._together: list[tuple[int, int]] = []
        self._monotonic = 0.0
        self._leased_until = math.inf
        self._confirmed_at = math.inf
        self.answers: list[Answer] = []
        self._parked: deque[tuple[int, float, Call, Reply]] = deque()
        self._after_commit: deque[tuple[int, Callable[[], None]]] = deque()
        self._unplaced: deque[Message] = deque()
        self._replicated: dict[int, deque[_Replicated]] = {}
        self._replicated_of: dict[Client, list[_Replicated]] = {}
        self._deadlines: list[tuple[float, int, _Replicated]] = []
        self._doubtful: deque[tuple[float, Call, Reply]] = deque()
        self.majority = 1
        self.is_leased = True

    def set_time(self, now: float) -> None:
        """The leader's clock within a log never goes back."""
        if now > self.now:
            self.now = now
            if not self.counting.begun:
                self.counting.begun = now

    def append(self, record: Made) -> None:
        """Apply a new record and queue it for the log."""
        self.state.apply_next(record)
        self.records.append(record)
        self.counting.count(record)

    def append_together(self, records: Sequence[Made]) -> None:
        """As `append`, for records that are to be committed all or none."""
        begin = len(self.records)
        for record in records:
            self.append(record)
        self._together.append((begin, len(self.records)))

    def records_to_make(self, queue: str, *, is_transient: bool = False) -> int:
        """How many records `make_queue` would append."""
        has_own = self.new_queue is not _ORIGINAL or is_transient
        return 1 if has_own and queue not in self.state.queues else 0

    def make_queue(self, name: str, *, is_transient: bool = False) -> None:
        """Note what a new queue is set to before its first message: it must not depend on who replays the log."""
        if self.records_to_make(name, is_transient=is_transient):
            settings = QueueState(name, self.new_queue).settings()
            settings.is_transient = is_transient
            self.append(settings)

    def produced(self, message: Message) -> None:
        """The message of a produce record just appended is placed when that is committed."""
        self._unplaced.append(message)

    def answer(self, call: Call, reply: Reply) -> None:
        """Answer at once."""
        self.answers.append((call, reply))

    def park(self, call: Call, reply: Reply) -> None:
        """Answer when all that is applied by now is committed."""
        trans_id = self.state.trans_id
        if trans_id == self.committed:
            self.say(call, reply)
        else:
            self._parked.append((trans_id, self._monotonic, call, reply))

    def say(self, call: Call, reply: Reply) -> None:
        """Answer what committed state says: now, or when it is certain that no other node had led before."""
        if self.is_leased:
            self.answers.append((call, reply))
        else:
            self._doubtful.append((self._monotonic, call, reply))

    def pass_monotonic(self, now: float) -> None:
        """It is `now` by the monotonic clock, which leases go by (s)."""
        self._monotonic = now
        self.is_leased = now < self._leased_until

    def lease(self, leased_until: float, confirmed_at: float) -> None:
        """No other node leads before `leased_until`, and none led at `confirmed_at` (monotonic seconds).

        What was said before a moment at which a majority is known to have followed this node was true when it was said:
        it may be told even when the lease is over (Raft's read index, 6.4 in Ongaro's dissertation).
        """
        self._leased_until, self._confirmed_at = leased_until, confirmed_at
        self.is_leased = self._monotonic < leased_until
        doubtful = self._doubtful
        while doubtful and (self.is_leased or doubtful[0][0] <= confirmed_at):
            _, call, reply = doubtful.popleft()
            self.answers.append((call, reply))

    def refuse(self, call: Call, error: str, reason: str) -> None:
        """Park a refusal: what it rests on may not be committed yet."""
        self.park(call, refusal(call.request, error, reason))

    def refuse_field(self, call: Call, field: str, fault: str) -> None:
        """Refuse for what a field of the request is."""
        self.refuse(call, ErrorWord.FIELD, f"{field} {fault}")

    def park_for(self, nodes: int, call: Call, reply: Reply, wait_s: float | None, made: Message | None = None) -> None:
        """Answer when all that is applied by now is on the disks of so many nodes; 1: on this one's.

        Not within `wait_s` (0: that takes as long as it takes): then it is refused, and `made`, if that is given, is
        removed, unless somebody was given it.
        """
        allowed_s = REPLICATED_S if wait_s is None else wait_s or math.inf
        waiting = _Replicated(self.state.trans_id, nodes, self._monotonic + allowed_s, call, reply, made)
        self._replicated.setdefault(nodes, deque()).append(waiting)
        self._replicated_of.setdefault(call.client, []).append(waiting)
        if wait_s:
            heapq.heappush(self._deadlines, (self.now + wait_s, waiting.trans_id, waiting))

    @property
    def next_deadline(self) -> float:
        """When `give_up_late` has something to do (Unix seconds)."""
        return self._deadlines[0][0] if self._deadlines else NEVER

    def give_up_late(self) -> None:
        """Refuse what was to be on more nodes by now, and remove it."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= self.now:
            _, _, waiting = heapq.heappop(deadlines)
            if not waiting.is_over:
                self._end_replicated(waiting)
                self._not_replicated(waiting, f"{waiting.nodes} nodes were asked for, and did not have it in time")

    def _not_replicated(self, waiting: _Replicated, reason: str) -> None:
        """It is not there where it was to be: its message goes, if nobody was given it."""
        made, request = waiting.message, waiting.call.request
        if made is None:
            self.answers.append((waiting.call, refusal(request, ErrorWord.UNKNOWN_OUTCOME, reason)))
            return
        reply = refusal(request, ErrorWord.NOT_REPLICATED, reason)
        if self.state.messages.get(made.msg_id) is made:
            if not made.deliveries:
                self.append(Clear(made.queue, *named([made])))
        elif not made.deliveries:
            reply.error = ErrorWord.NO_SUCH_MESSAGE  # it has expired, or was cleared
        self.answers.append((waiting.call, reply))

    def durable(self, durable: int, replicas: tuple[int, ...]) -> None:
        """This node's disk has the records up to `durable`; n nodes have those up to the n-th of `replicas`."""
        for nodes, line in self._replicated.items():  # one line for each number: what is done stands at its head
            while line and (line[0].is_over or self._is_over(line[0], durable, replicas)):
                waiting = line.popleft()
                if not waiting.is_over:
                    self._end_replicated(waiting)
                    self._answer_replicated(waiting, nodes, replicas)

    def _is_over(self, waiting: _Replicated, durable: int, replicas: tuple[int, ...]) -> bool:
        """Whether it is on as many disks as were asked for, or can't be any more, or has waited for too long."""
        trans_id, nodes = waiting.trans_id, waiting.nodes
        if nodes == 1:
            is_done = trans_id <= durable
        elif nodes > len(replicas):
            is_done = trans_id <= self.committed
        else:
            is_done = trans_id <= replicas[nodes - 1] and (nodes < self.majority or trans_id <= self.committed)
        return is_done or self._monotonic >= waiting.until

    def _answer_replicated(self, waiting: _Replicated, nodes: int, replicas: tuple[int, ...]) -> None:
        has_it = sum(waiting.trans_id <= replica for replica in replicas)
        is_committed = waiting.trans_id <= self.committed
        if has_it >= nodes and (is_committed or nodes < self.majority):
            self.answers.append((waiting.call, waiting.reply))
            return
        if has_it >= nodes:  # among them some that do not vote
            reason = f"{has_it} nodes have it, and after {REPLICATED_S:g} s no majority of those that vote"
        elif nodes > len(replicas):
            reason = f"{nodes} nodes were asked for, and there are {len(replicas)} by now; those have it"
        else:
            reason = f"{nodes} nodes were asked for, and after {REPLICATED_S:g} s {has_it} have it"
        self._not_replicated(waiting, reason)

    def _end_replicated(self, waiting: _Replicated) -> None:
        waiting.is_over = True
        mine = self._replicated_of.get(waiting.call.client)
        if mine is not None:
            mine.remove(waiting)
            if not mine:
                del self._replicated_of[waiting.call.client]

    def forget(self, client: Client) -> None:
        """A client is gone: its replies wait for no disks any more. What it asked for is done as far as it is."""
        for waiting in self._replicated_of.pop(client, ()):
            waiting.is_over = True
            self._not_replicated(waiting, f"{waiting.nodes} nodes were asked for, and its client is gone")

    def take_open(self) -> list[tuple[int, Call, Reply]]:
        """All that is parked, and behind which record: it will not be committed by this node's doing."""
        taken = [(trans_id, call, reply) for trans_id, _, call, reply in self._parked]
        for line in self._replicated.values():
            taken += [(one.trans_id, one.call, one.reply) for one in line if not one.is_over]
        taken += [(0, call, reply) for _, call, reply in self._doubtful]
        self._doubtful.clear()
        self._parked.clear()
        self._replicated.clear()
        self._replicated_of.clear()
        self._deadlines.clear()
        self._after_commit.clear()
        return taken

    def followed(self, trans_id: int, time: float) -> None:
        """A follower: the records up to `trans_id` are committed, and applied."""
        self.set_time(time)
        self.commit(trans_id)

    def take_unplaced(self) -> list[Message]:
        """The messages that are produced but not committed."""
        taken = list(self._unplaced)
        self._unplaced.clear()
        return taken

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` when all that is applied by now is committed."""
        if self.state.trans_id == self.committed:
            action()
        else:
            self._after_commit.append((self.state.trans_id, action))

    def commit(self, trans_id: int) -> list[Message]:
        """Records up to `trans_id` are committed: free the replies; returns the produced messages to place now."""
        self.committed = trans_id = max(trans_id, self.committed)
        parked = self._parked
        answers = self.answers
        while parked and parked[0][0] <= trans_id:
            _, parked_at, call, reply = parked.popleft()
            if self.is_leased or call.request.action in WRITES or parked_at <= self._confirmed_at:
                answers.append((call, reply))
            else:  # what it looked at is committed now; whether another node had led before is not known yet
                self._doubtful.append((parked_at, call, reply))
        while self._after_commit and self._after_commit[0][0] <= trans_id:
            self._after_commit.popleft()[1]()
        unplaced = self._unplaced
        placeable: list[Message] = []
        bound = message_id(trans_id + 1, 0)
        while unplaced and unplaced[0].msg_id < bound:
            placeable.append(unplaced.popleft())
        return placeable

    def take_records(self) -> tuple[list[Made], list[tuple[int, int]]]:
        """The records that are to be logged next, and which of them belong together (see `make_entries`)."""
        records, together = self.records, self._together
        self.records, self._together = [], []
        return records, together

    def take_answers(self) -> list[Answer]:
        """The answers that may leave; they are the caller's now."""
        answers = self.answers
        self.answers = []
        return answers

    @property
    def parked_count(self) -> int:
        """How many replies wait for a commit."""
        return len(self._parked) + sum([len(waiting) for waiting in self._replicated_of.values()])

    @property
    def is_awaited(self) -> bool:
        """Whether anyone waits for a commit."""
        return bool(self._parked or self._after_commit or self._replicated_of)

    @property
    def is_settled(self) -> bool:
        """Whether everything applied is committed."""
        return self.committed == self.state.trans_id

    def uncommitted_due(self, queue: str, count: int) -> int:
        """How many of a queue's messages are due and not committed; at most `count` are looked for."""
        due = 0
        for message in self._unplaced:
            if message.queue == queue and message.due_at <= self.now:
                due += 1
                if due == count:
                    break
        return due

    @property
    def uncommitted_ids(self) -> list[int]:
        """The ids of the messages that are produced but not committed."""
        return [message.msg_id for message in self._unplaced]
