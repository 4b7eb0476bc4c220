"""The ledger: numbers records, applies them as they are made, and holds replies back until they are durable.

The one rule here is the promise of a reply: what it says was true of committed state. So a reply is parked until
all that had been applied when it was made is committed; only a delivery that may be repeated (design.md, section 1)
is answered at once. A produced message is shown to nobody before its record is committed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from actors.messages.call import Answer, Call
from actors.shard.lease import Lease
from actors.shard.replicated import ReplicatedReplies
from actors.shard.totals import Counting
from quorate.actions import WRITES
from quorate.protocol import ErrorWord, Reply, refusal
from storage.message import Made, Message
from storage.queue_state import ORIGINAL, QueueState
from storage.records import LEVEL, STREAMS_LEVEL
from storage.state import ShardState

_ORIGINAL: Final = ORIGINAL  # there is no other that is equal to it: see QueueAdmin.set_limits


class Ledger:
    """What one shard's owner has made and not yet seen committed. All times are the leader's, Unix seconds.

    `lease`: whether what this node knows of a message holds. `committed`: how far the state is settled, all of it
    unless said otherwise, and `committable` how far the log says that it is. `new_queue` is what a new queue is set to,
    `level` the feature level that records may use, `replicated` what waits for other nodes than a majority.
    `has_begun`: what is being done has changed something that no record says yet. Of `records`, those of each of
    `together`, a first place and the one behind the last, are committed all or none. `unplaced` messages are placed
    when the record that is beside them is committed.
    """

    def __init__(self, state: ShardState, committed: int | None = None) -> None:
        self.state = state
        self.now = state.time
        self.committed = state.trans_id if committed is None else committed
        self.committable = self.committed
        self.new_queue = ORIGINAL
        self.level = LEVEL
        self.records: list[Made] = []
        self.counting = Counting()
        self.together: list[tuple[int, int]] = []
        self.lease = Lease()
        self.answers: list[Answer] = []
        self._parked: deque[tuple[int, float, Call, Reply]] = deque()
        self._after_commit: deque[tuple[int, Callable[[], None]]] = deque()
        self.has_begun = False
        self.unplaced: deque[tuple[int, Message]] = deque()
        self.replicated = ReplicatedReplies(self)

    def set_time(self, now: float) -> None:
        """Set the leader's clock, which within a log never goes back."""
        if now > self.now:
            self.now = now
            if not self.counting.begun:
                self.counting.begun = now

    def append(self, record: Made) -> None:
        """Apply a new record and queue it for the log."""
        self.state.apply_next(record)
        self.records.append(record)
        self.counting.count(record)
        if self.replicated.of_messages:
            self.replicated.noted(record)

    def append_together(self, records: Sequence[Made]) -> None:
        """As `append`, for records that are to be committed all or none."""
        begin = len(self.records)
        for record in records:
            self.append(record)
        self.together.append((begin, len(self.records)))

    def records_to_make(self, queue: str, *, is_transient: bool = False) -> int:
        """How many records `make_queue` would append."""
        has_own = self.new_queue is not _ORIGINAL or is_transient
        return 1 if has_own and queue not in self.state.queues else 0

    def make_queue(self, name: str, *, is_transient: bool = False) -> None:
        """Note what a new queue is set to before its first message: it must not depend on who replays the log."""
        if self.records_to_make(name, is_transient=is_transient):
            settings = QueueState(name, self.new_queue).settings()
            settings.is_transient = is_transient
            settings.has_own_ttl = None if self.level < STREAMS_LEVEL else False
            self.append(settings)

    def produced(self, message: Message) -> None:
        """Keep the message of a record just appended; it is placed when that is committed."""
        self.unplaced.append((self.state.trans_id, message))

    def answer(self, call: Call, reply: Reply) -> None:
        """Answer at once."""
        self.answers.append((call, reply))

    def has_answer(self, call: Call) -> bool:
        """Whether the call, the last that was executed, has its answer, told or parked."""
        parked, waiting = self._parked, self.lease.last_waiting
        return (
            any(answered is call for answered, _ in self.answers)
            or bool(parked and parked[-1][2] is call)
            or waiting is call
        )

    def take_answer(self, call: Call) -> Reply | None:
        """Take back the answer to the call that was executed last, wherever it waits; None: there is none."""
        if self._parked and self._parked[-1][2] is call:
            return self._parked.pop()[3]
        if self.answers and self.answers[-1][0] is call:
            return self.answers.pop()[1]
        return self.lease.take_last(call)

    def answer_when_committed(self, call: Call, reply: Reply) -> None:
        """Answer when all that is applied by now is committed."""
        trans_id = self.state.trans_id
        if trans_id == self.committed:
            self.answer_if_leased(call, reply)
        else:
            self._parked.append((trans_id, self.lease.now, call, reply))

    def answer_if_leased(self, call: Call, reply: Reply) -> None:
        """Answer what committed state says: now, or when it is certain that no other node had led before."""
        if self.lease.is_held:
            self.answers.append((call, reply))
        else:
            self.lease.wait(self.lease.now, call, reply)

    def renew_lease(self, until: float, confirmed_at: float) -> None:
        """See `Lease.renew`: what waited for that is answered."""
        self.answers += self.lease.renew(until, confirmed_at)

    def refuse(self, call: Call, error: str, reason: str) -> None:
        """Park a refusal: what it rests on may not be committed yet."""
        self.answer_when_committed(call, refusal(call.request, error, reason))

    def refuse_field(self, call: Call, field: str, fault: str) -> None:
        """Refuse for what a field of the request is."""
        self.refuse(call, ErrorWord.FIELD, f"{field} {fault}")

    def take_open(self) -> list[tuple[int, Call, Reply]]:
        """All that is parked, and behind which record: it will not be committed by this node's doing."""
        taken = [(trans_id, call, reply) for trans_id, _, call, reply in self._parked]
        taken += self.replicated.take_open()
        taken += [(0, call, reply) for call, reply in self.lease.take_waiting()]
        self._parked.clear()
        self._after_commit.clear()
        return taken

    def followed(self, trans_id: int, time: float) -> None:
        """Note on a follower that the records up to `trans_id` are committed, and applied."""
        self.set_time(time)
        self.commit(trans_id)

    def take_unplaced(self) -> list[Message]:
        """Take the messages that are produced but not committed."""
        taken = [message for _, message in self.unplaced]
        self.unplaced.clear()
        return taken

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` when all that is applied by now is committed."""
        if self.state.trans_id == self.committed:
            action()
        else:
            self._after_commit.append((self.state.trans_id, action))

    def commit(self, trans_id: int) -> list[Message]:
        """Free the replies of records up to `trans_id`, which are committed; returns the produced messages to place
        now."""
        self.committed = trans_id = max(trans_id, self.committed)
        self.committable = max(trans_id, self.committable)
        self.state.undo.forget(trans_id)
        parked, lease = self._parked, self.lease
        answers = self.answers
        while parked and parked[0][0] <= trans_id:
            _, parked_at, call, reply = parked.popleft()
            if lease.is_held or call.request.action in WRITES or parked_at <= lease.confirmed_at:
                answers.append((call, reply))
            else:  # what it looked at is committed now; whether another node had led before is not known yet
                lease.wait(parked_at, call, reply)
        while self._after_commit and self._after_commit[0][0] <= trans_id:
            self._after_commit.popleft()[1]()
        unplaced = self.unplaced
        placeable: list[Message] = []
        while unplaced and unplaced[0][0] <= trans_id:
            placeable.append(unplaced.popleft()[1])
        return placeable

    def take_records(self) -> tuple[list[Made], list[tuple[int, int]]]:
        """Take the records that are to be logged next, and which of them belong together (see `make_entries`)."""
        records, together = self.records, self.together
        self.records, self.together = [], []
        return records, together

    def take_answers(self) -> list[Answer]:
        """Hand over the answers that may leave; they are the caller's now."""
        answers = self.answers
        self.answers = []
        return answers

    @property
    def parked_count(self) -> int:
        """How many replies wait for a commit."""
        return len(self._parked) + len(self.replicated)

    @property
    def is_awaited(self) -> bool:
        """Whether anyone waits for a commit."""
        return bool(self._parked or self._after_commit or self.replicated.is_awaited)

    @property
    def is_settled(self) -> bool:
        """Whether everything applied is committed."""
        return self.committed == self.state.trans_id

    def uncommitted_due(self, queue: str, count: int) -> int:
        """How many of a queue's messages are due and not committed; at most `count` are looked for."""
        due = 0
        for _, message in self.unplaced:
            if message.queue == queue and message.due_at <= self.now:
                due += 1
                if due == count:
                    break
        return due

    @property
    def uncommitted_ids(self) -> list[int]:
        """The ids of the messages that stand nowhere before something is committed."""
        return [message.msg_id for _, message in self.unplaced]
